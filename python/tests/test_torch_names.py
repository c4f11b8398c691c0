"""What people of PyTorch, TorchRec and CachedEmbedding call by name: each name works, or a sentence says why not."""
import copy
import tempfile
import unittest
import warnings

try:
    import torch
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error

import frugal_embedding as frugal
import frugal_embedding.torch as ft
from frugal_embedding.torch import compiled
from reference import Reference

warnings.filterwarnings("ignore")


def bag_of(rows=50, dim=4, **settings):
    return ft.EmbeddingBag(rows, dim, **{"max_keys": 400, "mode": "sum", "optimizer": "sgd", "lr": 0.1, **settings})


def rows_of(module, name=""):
    module.drain()
    return module.view_tensor(name).clone()


class Padding(unittest.TestCase):
    def test_bags_beside_torch(self):
        """The rows that nn.EmbeddingBag trains, to rounding, and the padding's row untouched; in each form of input."""
        for mode in ("sum", "mean", "max"):
            for weighted in (False, True)[:1 + (mode == "sum")]:
                ours = bag_of(mode=mode, padding_idx=3)
                theirs = torch.nn.EmbeddingBag(50, 4, mode=mode, padding_idx=3)
                before = rows_of(ours)
                theirs.weight.data.copy_(before)
                optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
                generator = torch.Generator().manual_seed(5)
                for step in range(12):
                    ids = torch.randint(0, 8, (20, 1 if step % 3 == 2 else 3), generator=generator)
                    ids[:2] = 3
                    weights = torch.randn(ids.shape, generator=generator).requires_grad_() if weighted else None
                    given = (ids, None, weights)
                    if step % 3 == 1:
                        given = (ids.view(-1), torch.tensor([0, 0, 6, 7, 20, 20]),
                                 None if weights is None else weights.view(-1))
                    out, wanted = ours(*given), theirs(*given)
                    self.assertTrue(torch.allclose(out, wanted, atol=1e-5), (mode, step))
                    direction = torch.randn(out.shape, generator=generator)
                    (out * direction).sum().backward()
                    of_weights = None if weights is None else weights.grad.clone()
                    optimizer.zero_grad()
                    if weights is not None:
                        weights.grad = None
                    (wanted * direction).sum().backward()
                    optimizer.step()
                    if weights is not None:
                        self.assertTrue(torch.allclose(of_weights, weights.grad, atol=1e-4))
                self.assertTrue(torch.allclose(rows_of(ours), theirs.weight, atol=1e-5))
                self.assertTrue(torch.equal(rows_of(ours)[3], before[3]))

    def test_bits_touches_and_max_keys(self):
        """The bits of steps that never had the positions, no touch, and no part of max_keys; by an Optimizer, too."""
        for waits in (False, True):
            ours, plain = (bag_of(seed=3, optimizer="adam", max_keys=30, padding_idx=key) for key in (49, None))
            optimizers = [ft.Optimizer(one) for one in (ours, plain)] if waits else []
            for step in range(5):
                ids = torch.randint(0, 40, (10, 3))
                padded = torch.cat([ids, torch.full((10, 9), 49)], 1)
                for bag, keys in ((ours, padded), (plain, ids)):
                    out = bag(keys)
                    (out * torch.arange(40.).view(10, 4)).sum().backward()
                if waits:
                    norms = [one.clip_grad_norm_([], 1.0) for one in optimizers]
                    self.assertEqual(*norms)
                    for one in optimizers:
                        one.step()
            self.assertTrue(torch.equal(rows_of(ours), rows_of(plain)))
            self.assertEqual(ours.instance.stats()["unique_rows"], plain.instance.stats()["unique_rows"])

    def test_embedding_shows_its_row(self):
        ours = ft.Embedding(9, 4, max_keys=9, optimizer="sgd", lr=1.0, padding_idx=-2)
        self.assertEqual(ours.padding_idx, 7)
        before = rows_of(ours)
        self.assertEqual(before[7].abs().sum(), 0)  # as torch.nn
        ids = torch.tensor([[1, 7], [7, 1]])
        out = ours(ids)
        self.assertTrue(torch.equal(out, before[ids]))
        (out * torch.arange(16.).view(2, 2, 4)).sum().backward()
        before[1] -= torch.arange(4.) + torch.arange(12., 16.)
        self.assertTrue(torch.equal(rows_of(ours), before))
        ours.instance.write_rows(torch.tensor([7]), torch.full((1, 4), 2.0))
        self.assertTrue(torch.equal(ours(torch.tensor([7, 7])), torch.full((2, 4), 2.0)))
        ours.load_state_dict({"weight": torch.full((9, 4), 5.0)}, strict=False)
        self.assertTrue(torch.equal(ours(torch.tensor([7])), torch.full((1, 4), 5.0)))
        given = ft.Embedding.from_pretrained(torch.ones(3, 2), max_keys=3, padding_idx=1)
        self.assertTrue(torch.equal(given(torch.tensor([1])), torch.ones(1, 2)))  # as torch.nn

    def test_steps_of_all_kinds(self):
        """Loaders, micro-batches, lists, evaluation, several devices, a collection, 16 bits: the rows of steps without
        the positions."""
        batches = [torch.randint(0, 9, (6, 3)) for _ in range(8)]

        def train(**settings):
            kind = settings.pop("kind")
            bag = bag_of(10, 4, seed=1, lookahead=4, **settings)
            optimizer = ft.Optimizer(bag)
            of = {"accumulate": 2} if kind == "micro" else {"thread": kind == "thread"}
            for at, ids in enumerate(ft.Loader(batches, bag, ahead=2, **of)):
                (bag(ids) * 2.0).sum().backward()
                if kind != "micro" or at % 2:
                    optimizer.step()
            with torch.no_grad():
                shown = bag([batches[0], batches[1]])
            return rows_of(bag), torch.cat(shown)

        def by_hand(micro):
            bag = bag_of(10, 4, seed=1)
            for at in range(0, 8, 1 + micro):
                ids = torch.cat(batches[at:at + 1 + micro])
                stay = ids != 5
                (bag(ids[stay], lengths=stay.sum(1)) * 2.0).sum().backward()
            return rows_of(bag)
        for kind in ("between", "thread", "micro"):
            rows, shown = train(kind=kind, padding_idx=5)
            self.assertTrue(torch.equal(rows, by_hand(kind == "micro")), kind)
            rows[5] = 0
            self.assertTrue(torch.allclose(shown, rows[torch.cat(batches[:2])].sum(1)))
        tables = ft.EmbeddingBagCollection({"a": (10, 4), "b": (10, 4)}, max_keys=90, optimizer="sgd", lr=1.0,
                                           padding_idx={"b": 2}, mode="mean")
        ids = torch.tensor([[2, 1], [2, 2]])
        a, b = rows_of(tables, "a"), rows_of(tables, "b")
        out = tables({"a": ids, "b": ids})
        self.assertTrue(torch.allclose(out["a"], a[ids].mean(1)))
        self.assertTrue(torch.equal(out["b"], torch.stack([b[1], torch.zeros(4)])))
        (out["a"].sum() + out["b"].sum()).backward()
        self.assertTrue(torch.equal(rows_of(tables, "b")[2], b[2]))
        both = bag_of(device=["cpu", "cpu"], padding_idx=0, rows_as="bf16")
        each = [both, both.on(1)]
        for one in each:
            one.announce(torch.tensor([[0, 1]]))
        for one in [one(torch.tensor([[0, 1]])) for one in each]:
            one.sum().backward()
        self.assertEqual(both.instance.next_steps(1)["update"], 1)

    @unittest.skipIf(compiled.module is None, "the operators are in Python")
    def test_steps_that_are_compiled(self):
        """The usual step with padding does not come to Python: `begin` and `update` of its session."""
        for module, ids in ((bag_of(padding_idx=3), torch.tensor([[1, 3], [3, 3]])),
                            (bag_of(padding_idx=3, mode="max"), torch.tensor([[1, 3], [3, 3]])),
                            (ft.Embedding(50, 4, max_keys=9, padding_idx=3, rows_as="bf16"), torch.tensor([1, 3]))):
            module(ids).sum().backward()  # the first asks for an optimizer of the model
            session, before = module._parts[0][1], rows_of(module)
            session.begin = session.update = None
            out = module(ids)
            self.assertTrue(torch.equal(out[0], before[1].float()))
            self.assertEqual(out[1].abs().sum(), 0)
            out.sum().backward()
            self.assertFalse(torch.equal(rows_of(module)[1], before[1]))
            self.assertTrue(torch.equal(rows_of(module)[3], before[3]))

    def test_compiled_graphs(self):
        for mode in ("sum", "max"):
            bag = bag_of(padding_idx=3, mode=mode)
            before = rows_of(bag)
            graph = torch.compile(bag, fullgraph=True, backend="aot_eager")
            out = graph(torch.tensor([1, 3, 2, 3]), torch.tensor([0, 3]))
            first = before[1] + before[2] if mode == "sum" else torch.maximum(before[1], before[2])
            self.assertTrue(torch.equal(out, torch.stack([first, torch.zeros(4)])))
            out.sum().backward()
            self.assertTrue(torch.equal(rows_of(bag)[3], before[3]))
            self.assertFalse(torch.equal(rows_of(bag), before))

    def test_wrong_keys(self):
        for key in (50, -51, 1.5, True, "a"):
            with self.assertRaisesRegex(ValueError, "padding_idx: a key of the table is wanted, -50 to 49"):
                bag_of(padding_idx=key)
        with self.assertRaisesRegex(ValueError, r"\['c'\] were given"):
            ft.EmbeddingBagCollection({"a": (9, 4)}, max_keys=9, padding_idx={"c": 1})


class Max(unittest.TestCase):
    def test_rows_of_the_reference(self):
        """The gradient of an element goes to the first position with the maximum; all rows of a bag are touched."""
        bag = bag_of(20, 3, mode="max", optimizer="adam")
        reference = Reference(rows_of(bag).numpy(), "adam")
        generator = np.random.default_rng(1)
        for _ in range(8):
            ids, bounds = generator.integers(0, 20, 30), np.array([0, 4, 4, 19, 30])
            out = bag(torch.from_numpy(ids), torch.from_numpy(bounds[:-1]))
            rows = reference.weights[ids]
            direction = generator.standard_normal((4, 3)).astype(np.float32)
            grads = np.zeros((30, 3), np.float32)
            for at, (first, end) in enumerate(zip(bounds, bounds[1:])):
                for d in range(3 if end > first else 0):
                    self.assertEqual(out[at, d].item(), rows[first:end, d].max())
                    grads[first + rows[first:end, d].argmax(), d] = direction[at, d]
            self.assertEqual(out[1].abs().sum(), 0)
            (out * torch.from_numpy(direction)).sum().backward()
            reference.train([(ids, grads)], 0.1)
        self.assertEqual(rows_of(bag).numpy().tobytes(), reference.weights.tobytes())

    def test_collections_and_refusals(self):
        tables = ft.EmbeddingBagCollection({"a": (10, 4), "b": (10, 8)}, max_keys=90, mode="max")
        ids = torch.tensor([[2, 1], [3, 4]])
        out = tables({"a": ids, "b": (ids.view(-1), torch.tensor([0, 0]))})
        self.assertTrue(torch.equal(out["a"], rows_of(tables, "a")[ids].amax(1)))
        self.assertTrue(torch.equal(out["b"][1], rows_of(tables, "b")[ids.view(-1)].amax(0)))
        with self.assertRaisesRegex(ValueError, "only mode 'sum'"):
            bag_of(mode="max")(ids, per_sample_weights=torch.ones(2, 2))
        with self.assertRaisesRegex(ValueError, "'sum', 'mean' or 'max' is wanted; 'min' was given"):
            bag_of(mode="min")
        bag = bag_of(mode="max")
        self.assertEqual(bag(torch.zeros(0, dtype=torch.long), torch.tensor([0, 0])).shape, (2, 4))
        bag.instance.drain()


class Rows(unittest.TestCase):
    def test_from_pretrained(self):
        given = torch.arange(12.).view(4, 3)
        for kind in (ft.Embedding, ft.EmbeddingBag):
            for rows in (given, given.numpy()):
                module = kind.from_pretrained(rows, max_keys=9)
                self.assertFalse(module.trains)
                self.assertTrue(torch.equal(module.weight, given))
                self.assertFalse(module(torch.tensor([[1]])).requires_grad)
                self.assertTrue(kind.from_pretrained(rows, freeze=False, max_keys=9).trains)
        bag = ft.EmbeddingBag.from_pretrained(given, max_keys=9, mode="max", padding_idx=0)
        self.assertTrue(torch.equal(bag(torch.tensor([[0, 3]]))[0], given[3]))
        with self.assertRaisesRegex(ValueError, r"from_pretrained: float32 \[rows, dim\].*of shape \(12,\) was given"):
            ft.Embedding.from_pretrained(given.view(-1), max_keys=9)
        with self.assertRaisesRegex(TypeError, "float32 is wanted; torch.float64|float32 is wanted"):
            ft.Embedding.from_pretrained(given.double(), max_keys=9)
        with self.assertRaisesRegex(TypeError, "`init` was given, too"):
            ft.Embedding.from_pretrained(given, max_keys=9, init=given)

    def test_weight_is_read(self):
        for rows_as in ("fp32", "bf16"):
            bag = bag_of(rows_as=rows_as)
            weight = bag.weight
            self.assertEqual((weight.shape, weight.requires_grad), ((50, 4), False))
            self.assertTrue(torch.equal(weight, bag.view_tensor()))
            self.assertIs(type(weight + 1), torch.Tensor)
            self.assertIs(type(weight.clone()), torch.Tensor)
            self.assertIs(type(copy.deepcopy(weight)), torch.Tensor)
            self.assertTrue(torch.equal(torch.zeros(50, 4).copy_(weight), weight.float()))
            self.assertEqual(torch.nn.functional.linear(torch.ones(2, 4, dtype=weight.dtype), weight).shape, (2, 50))

    def test_weight_is_not_written(self):
        bag = bag_of()
        before, w = rows_of(bag), bag.weight
        writes = [lambda: w.zero_(), lambda: w.__setitem__(0, 1.0), lambda: torch.nn.init.uniform_(w),
                  lambda: w.data.fill_(2.0), lambda: w[0].add_(1), lambda: w.t().zero_(), lambda: w.split(9)[0].mul_(2),
                  lambda: torch.add(w, 1, out=w), lambda: torch._foreach_mul_([w], 2.0), lambda: w.requires_grad_(),
                  lambda: w.__iadd__(1), lambda: setattr(w, "data", before), lambda: setattr(w, "requires_grad", True),
                  lambda: torch.nn.functional.embedding(torch.tensor([1]), w, max_norm=0.1),
                  lambda: setattr(bag, "weight", before), lambda: setattr(bag, "weight", torch.nn.Parameter(before))]
        for at, write in enumerate(writes):
            with self.subTest(at=at), self.assertRaisesRegex(RuntimeError, "weight: .* is refused, because the rows"):
                write()
        with self.assertRaisesRegex(ValueError, "read-only"):
            w.numpy()[0] = 1.0
        self.assertTrue(torch.equal(rows_of(bag), before))
        self.assertNotIn("weight", dict(bag.named_parameters()))

    def test_weight_and_steps(self):
        bag = bag_of()
        w, kept = bag.weight, bag.weight.clone()
        out = bag(torch.tensor([[1, 2]]))
        with self.assertRaisesRegex(RuntimeError, "weight: step 0 is under way.*for a loss on rows use"):
            bag.weight
        out.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "of step 0, and training has come to step 1.*Read module.weight"):
            w.sum()
        self.assertFalse(torch.equal(bag.weight, kept))
        with self.assertRaisesRegex(AttributeError, "several tables.*view"):
            ft.EmbeddingBagCollection({"a": (9, 4)}, max_keys=9).weight

    def test_export_as_numpy(self):
        bag = bag_of()
        bag(torch.tensor([[1, 2]])).sum().backward()
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/rows.npy", bag.weight.numpy())
            self.assertTrue(np.array_equal(np.load(f"{folder}/rows.npy", mmap_mode="r"), bag.view()))


class Caches(unittest.TestCase):
    def test_cached_embedding(self):
        """cache_ratio, ids_freq_mapping and warmup_ratio: the hottest rows are hits from the first step on."""
        counts = list(range(100))
        for policy in ("counted", "static"):
            bag = bag_of(100, 4, cache_ratio=0.2, policy=policy, ids_freq_mapping=counts, warmup_ratio=0.5)
            hot = torch.arange(90, 100)
            bag(hot.view(10, 1)).sum().backward()
            bag.drain()
            hits = bag.instance.stats()
            self.assertEqual((hits["hits"], hits["misses"]), (10, 0), hits)
        self.assertEqual([int(one) for one in bag_of(100, 4, cache_ratio=0.2, ids_freq_mapping=np.arange(100))
                          .instance.get_counts(torch.arange(4))], [0, 1, 2, 3])
        tables = ft.EmbeddingBagCollection({"a": (50, 4), "b": (50, 4)}, max_keys=99, cache_ratio=0.5, policy="static",
                                           ids_freq_mapping={"b": torch.arange(50)})
        tables({"a": torch.tensor([[1]]), "b": torch.tensor([[49]])})["b"].sum().backward()
        self.assertEqual(tables.instances[0].stats()["hits"], 1)

    def test_wrong_settings(self):
        for said, settings in (("share of 0 to 1 is wanted; 2 was", {"cache_ratio": 2}),
                               ("either cache_ratio or cache_rows", {"cache_ratio": 0.5, "cache_rows": 9}),
                               ("there is none. Give cache_ratio", {"ids_freq_mapping": [1] * 50}),
                               (r"tensor \[50\], is wanted; torch.int64 of shape \(3,\)",
                                {"ids_freq_mapping": [1] * 3, "cache_rows": 9}),
                               ("numbers of 0 to", {"ids_freq_mapping": [-1] * 50, "cache_rows": 9}),
                               ("none was given", {"warmup_ratio": 0.5, "cache_rows": 9})):
            with self.assertRaisesRegex((ValueError, TypeError), said):
                bag_of(**settings)
        with self.assertRaisesRegex(ValueError, r"\['c'\] were given"):
            ft.EmbeddingBagCollection({"a": (9, 4)}, max_keys=9, cache_rows=1, ids_freq_mapping={"c": [1] * 9})


class Optimizers(unittest.TestCase):
    def test_adamw(self):
        """Its decay is that of torch.optim.AdamW where every row is touched, and leaves others alone."""
        for given, decay in (("adamw", 0.01), (frugal.Optimizer("adamw", weight_decay=0.3), 0.3)):
            ours, theirs = bag_of(9, 4, optimizer=given), torch.nn.EmbeddingBag(9, 4, mode="sum")
            theirs.weight.data.copy_(rows_of(ours))
            reference = Reference(rows_of(ours).numpy(), "adamw")
            optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=decay)
            for step in range(6):
                ids, direction = torch.randperm(9), torch.randn(9, 4)
                for bag in (ours, theirs):
                    (bag(ids.view(9, 1)) * direction).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                reference.train([(ids.numpy(), direction.numpy())], 0.1)
            self.assertTrue(torch.allclose(rows_of(ours), theirs.weight, atol=1e-5))
            if given == "adamw":
                self.assertEqual(rows_of(ours).numpy().tobytes(), reference.weights.tobytes())
            before = rows_of(ours)
            ours(torch.tensor([[1]])).sum().backward()
            before[1] = rows_of(ours)[1]
            self.assertTrue(torch.equal(rows_of(ours), before))
        self.assertEqual(ours.instance.optimizer.kind, "adamw")


class Refusals(unittest.TestCase):
    def test_options(self):
        for name, value, said in (("sparse", True, "sparse gradients.*file_sparse"), ("sparse", False, "file_sparse"),
                                  ("max_norm", 1.0, "clip_norm"), ("norm_type", 1.0, "max_norm"),
                                  ("scale_grad_by_freq", True, "how often"), ("dtype", torch.half, "output_dtype"),
                                  ("_weight", torch.ones(9, 4), "from_pretrained"), ("evict_strategy", 1, "policy"),
                                  ("pin_weight", True, "host memory"), ("buffer_size", 9, "one by one")):
            for made in (lambda: bag_of(**{name: value}), lambda: ft.Embedding(9, 4, max_keys=9, **{name: value}),
                         lambda: ft.EmbeddingBagCollection({"a": (9, 4)}, max_keys=9, **{name: value})):
                with self.assertRaisesRegex(TypeError, f"{name}: modules of .*embedding.torch do not have it.*{said}"):
                    made()
        plain = bag_of(padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, _weight=None)
        self.assertEqual(plain(torch.tensor([[1]])).shape, (1, 4))  # what torch.nn does without them

    def test_graphs_that_are_kept(self):
        model = torch.nn.Sequential(bag_of(), torch.nn.Linear(4, 1))
        given = (torch.tensor([[1, 2]]),)
        before = rows_of(model[0])
        for export in (lambda: torch.export.export(model, given),
                       lambda: torch.export.export(model, given, strict=False), lambda: torch.jit.trace(model, given),
                       lambda: torch.onnx.export(model, given, tempfile.gettempdir() + "/none.onnx")):
            with self.assertRaisesRegex(Exception, "keep a graph.*Export the rest of the model, with rows as"):
                export()
        with self.assertRaisesRegex(TypeError, r"cannot be copied; on\(device\)"):
            copy.deepcopy(model)
        with self.assertRaisesRegex(AttributeError, "first values are drawn by init="):
            model[0].reset_parameters()
        self.assertTrue(torch.equal(rows_of(model[0]), before))


if __name__ == "__main__":
    unittest.main()
