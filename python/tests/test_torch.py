"""Modules for PyTorch: bits beside the sequential reference, gradients, what autograd and loaders may do, state."""
import copy
import gc
import os
import pickle
import signal
import tempfile
import threading
import time
import unittest
import warnings

try:
    import torch
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error

import frugal_embedding as frugal
import frugal_embedding.torch as ft
from frugal_embedding.torch import operators
from interrupts import Interrupt
from reference import Reference, floats_of, pool, rounded, spread

warnings.filterwarnings("ignore", message=".*double precision floating point.*")
warnings.filterwarnings("ignore", message=".*[Ss]parse invariant.*")


def weights_of(bag, name=""):
    bag.drain()
    return torch.from_numpy(floats_of(bag.view(name)))


def bag_of(rows=50, dim=4, **settings):
    settings = {"max_keys": 400, "mode": "sum", "lr": 0.1, "seed": 3, "lookahead": 10, **settings}
    return ft.EmbeddingBag(rows, dim, **settings)


class Bits(unittest.TestCase):
    def test_bags_are_those_of_the_reference(self):
        for mode, weighted, kind, narrow in (("sum", False, "adagrad", False), ("sum", True, "sgd", True),
                                             ("mean", False, "adam", False), ("mean", False, "rowwise_adagrad", True)):
            with self.subTest(mode=mode, weighted=weighted, kind=kind, narrow=narrow):
                generator = torch.Generator().manual_seed(1)
                bag = bag_of(mode=mode, optimizer=kind, cache_rows=16)
                reference = Reference(weights_of(bag).numpy(), kind)
                key_type = torch.int32 if narrow else torch.int64
                for step in range(15):
                    ids = torch.randint(0, 50, (200,), generator=generator, dtype=key_type)
                    drawn = torch.randint(0, 201, (20,), generator=generator)
                    offsets = torch.cat([torch.tensor([0]), drawn]).sort()[0]
                    weights = torch.randn(200, generator=generator) if weighted else None
                    direction = torch.randn(21, 4, generator=generator)
                    out = bag(ids, offsets, weights)
                    bounds = np.append(offsets.numpy(), 200)
                    plain = None if weights is None else weights.numpy()
                    pooled = pool(reference.weights[ids.numpy()], bounds, plain, mode == "mean")
                    self.assertEqual(out.detach().numpy().tobytes(), pooled.tobytes())
                    (out * direction).sum().backward()
                    grads = spread(direction.numpy(), bounds, plain, mode == "mean")
                    reference.train([(ids.numpy(), grads)], 0.1)
                self.assertEqual(weights_of(bag).numpy().tobytes(), reference.weights.tobytes())

    def test_beside_torch(self):
        """The same model with nn.EmbeddingBag and sparse Adagrad: the same losses, to rounding."""
        torch.manual_seed(0)
        bag, theirs = bag_of(100, 8), torch.nn.EmbeddingBag(100, 8, mode="sum", sparse=True)
        with torch.no_grad():
            theirs.weight.copy_(weights_of(bag))
        heads = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
        heads[1].load_state_dict(heads[0].state_dict())
        dense = [torch.optim.SGD(head.parameters(), lr=0.01) for head in heads]
        optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
        for _ in range(20):
            ids, label = torch.randint(0, 100, (32, 6)), torch.rand(32, 1)
            losses = []
            for embed, head, of_head in ((bag, heads[0], dense[0]), (theirs, heads[1], dense[1])):
                of_head.zero_grad()
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(head(embed(ids)).sigmoid(), label)
                loss.backward()
                of_head.step()
                losses.append(loss.item())
            optimizer.step()
            self.assertAlmostEqual(*losses, places=6)

    def test_embedding_by_position(self):
        rows = ft.Embedding(50, 4, max_keys=60, optimizer="sgd", lr=1.0)
        before = weights_of(rows)
        ids = torch.tensor([[1, 2], [2, 3]])
        out = rows(ids)
        self.assertEqual(out.shape, (2, 2, 4))
        self.assertTrue(torch.equal(out, before[ids]))
        (out * torch.arange(16.).view(2, 2, 4)).sum().backward()
        after = weights_of(rows)
        self.assertTrue(torch.equal(after[2], before[2] - (torch.arange(4., 8.) + torch.arange(8., 12.))))

    def test_collection_of_several_dims_shares_workers(self):
        torch.manual_seed(1)
        for workers in (0, 2):
            tables = ft.EmbeddingBagCollection({"a": (30, 4), "b": (20, 8), "c": (10, 4)}, max_keys=200, lr=0.1, seed=1,
                                               workers=workers)
            self.assertEqual(len(tables.instances), 2)
            references = {name: Reference(weights_of(tables, name).numpy(), "adagrad") for name in "abc"}
            for _ in range(10):
                ids = {"a": torch.randint(0, 30, (16, 3)), "b": (torch.randint(0, 20, (40,)), torch.arange(0, 32, 2)),
                       "c": torch.randint(0, 10, (16, 1))}
                out = tables(ids)
                self.assertEqual(list(out), ["a", "b", "c"])
                bounds = {"a": np.arange(0, 49, 3), "b": np.append(np.arange(0, 32, 2), 40), "c": np.arange(17)}
                flat = {"a": ids["a"].view(-1), "b": ids["b"][0], "c": ids["c"].view(-1)}
                direction = {name: torch.randn_like(value) for name, value in out.items()}
                for name in "abc":
                    pooled = pool(references[name].weights[flat[name].numpy()], bounds[name])
                    self.assertEqual(out[name].detach().numpy().tobytes(), pooled.tobytes())
                sum((out[name] * direction[name]).sum() for name in "abc").backward()
                for name in "abc":
                    references[name].train([(flat[name].numpy(), spread(direction[name].numpy(), bounds[name]))], 0.1)
            for name in "abc":
                self.assertEqual(weights_of(tables, name).numpy().tobytes(), references[name].weights.tobytes())
            tables.close()

    def test_stacked_collection(self):
        tables = ft.EmbeddingBagCollection({"a": (30, 4), "b": (20, 4)}, max_keys=200, stacked=True)
        out = tables({"a": torch.tensor([[1], [2], [3]]), "b": torch.tensor([[1], [1], [1]])})
        self.assertEqual(out.shape, (2, 3, 4))
        self.assertTrue(torch.equal(out[1, 2].detach(), weights_of(tables, "b")[1]))
        with self.assertRaisesRegex(ValueError, "stacked"):
            ft.EmbeddingBagCollection({"a": (30, 4), "b": (20, 8)}, max_keys=200, stacked=True)

    def test_several_devices(self):
        """Two logical devices, driven by one thread and by two: the bits of the reference with two devices."""
        for threads in (1, 2):
            with self.subTest(threads=threads):
                first = bag_of(device=["cpu", "cpu"], cache_rows=8, reduce="mean")
                bags = [first, first.on(1)]
                reference = Reference(weights_of(first).numpy(), "adagrad", 2, True)
                data = np.random.default_rng(3).integers(0, 50, (20, 2, 30, 2))
                grads = np.random.default_rng(4).standard_normal((20, 2, 30, 4)).astype(np.float32)

                def train(device, step):
                    out = bags[device](torch.from_numpy(data[step, device]))
                    (out * torch.from_numpy(grads[step, device])).sum().backward()
                if threads == 2:
                    run = [threading.Thread(target=lambda d=d: [train(d, step) for step in range(20)]) for d in (0, 1)]
                    for thread in run:
                        thread.start()
                    for thread in run:
                        thread.join()
                else:
                    for step in range(20):  # both announce before either looks up
                        for device in (0, 1):
                            bags[device].announce(torch.from_numpy(data[step, device]))
                        for device in (0, 1):
                            train(device, step)
                for step in range(20):
                    reference.train([(data[step, d].reshape(-1), np.repeat(grads[step, d], 2, axis=0)) for d in (0, 1)],
                                    0.1)
                self.assertEqual(weights_of(first).numpy().tobytes(), reference.weights.tobytes())


    def test_one_learning_rate_of_all_devices(self):
        first = bag_of(device=["cpu", "cpu"])
        bags, ids = [first, first.on(1)], torch.tensor([[1]])

        def step():
            for bag in bags:
                bag.announce(ids)
            for out in [bag(ids) for bag in bags]:
                out.sum().backward()  # SETTINGS, if the rates differ
        first.lr = 0.5
        step()
        optimizers = [ft.Optimizer(bags[1], lr=0.25)]
        step()
        optimizers[0].step()  # of its own device; the other commits in its backward
        optimizers[0].param_groups[0]["lr"] = 0.125
        step()
        optimizers[0].step()
        self.assertEqual([bag.lr for bag in bags], [0.125, 0.125])

    def test_workers_that_a_collection_made_end(self):
        before = len(os.listdir("/proc/self/task"))
        for closed in (True, False):
            tables = ft.EmbeddingBagCollection({"a": (50, 4), "b": (20, 8)}, max_keys=100, workers=2)
            if closed:
                tables.close()
            del tables
            gc.collect()
            self.assertEqual(len(os.listdir("/proc/self/task")), before)


class Gradients(unittest.TestCase):
    def test_opcheck(self):
        """Schemas, fake tensors, autograd registration, and AOT dispatch with symbolic shapes. The learning rate is 0,
        because opcheck runs an operator several times and compares."""
        bag = bag_of(lr=0.0, optimizer="sgd")
        session = bag._parts[0][1]
        session.direct = False  # so that compiled.cc calls what is replaced here
        # Outputs of several runs are compared, and each run is another step: here all tokens are equal.
        session.token = lambda step: torch.zeros(2, dtype=torch.int64)
        plain_update = session.update
        session.update = lambda step, micro_batch, *of: plain_update(session.open, 0, *of)
        anchor = torch.zeros(0, requires_grad=True)
        ids, offsets = torch.randint(0, 50, (12,)), torch.tensor([0, 3, 7, 12], dtype=torch.int32)
        halves = torch.zeros(0, dtype=torch.bfloat16, requires_grad=True)
        for bounds, weights, train in ((offsets, None, True), (None, None, True), (offsets, torch.rand(12), True),
                                       (offsets, torch.rand(12, requires_grad=True), True), (offsets, None, False)):
            anchor, halves = halves, anchor  # of whose type the rows are
            given = (anchor if train else anchor.detach(), [ids[:5], ids[5:]][:1] if bounds is None else [ids], bounds,
                     weights, session.id, 0, 4, train)
            results = torch.library.opcheck(operators.lookup, given)
            self.assertEqual(set(results.values()), {"SUCCESS"}, results)
        bag(ids, offsets.long()[:-1])
        session.update = lambda *_: None  # a step has one update, and opcheck calls it several times
        for weights in (None, torch.rand(12)):
            bag(ids, offsets.long()[:-1], weights)
            bounds = torch.tensor([0, 3, 7, 12], dtype=torch.int32)
            token = torch.tensor([session.open, 0])
            grads = torch.ones(3, 4, dtype=torch.float16 if weights is None else torch.float32)
            given = (grads, token, bounds, weights, session.id, weights is not None)
            results = torch.library.opcheck(operators.update, given)
            self.assertEqual(set(results.values()), {"SUCCESS"}, results)

    def test_gradcheck_of_rows(self):
        """The table's rows as the input of a function in double: its backward trains a step of SGD with the learning
        rate 1, so the change of the rows is their gradient. The function is linear, so a large difference is exact but
        for float32's rounding; the tolerance is that rounding."""
        for mode, weighted in (("sum", False), ("mean", False), ("sum", True)):
            bag = bag_of(6, 3, mode=mode, optimizer="sgd", lr=1.0)
            ids, offsets = torch.tensor([0, 5, 5, 2, 1, 5]), torch.tensor([0, 2, 2, 5])
            weights = torch.tensor([.5, -1, 2, 3, .25, 1]) if weighted else None

            class Rows(torch.autograd.Function):
                @staticmethod
                def forward(ctx, rows):
                    ctx.save_for_backward(rows)
                    self.write(bag, rows)
                    with torch.no_grad():
                        return bag(ids, offsets, weights).double()

                @staticmethod
                def backward(ctx, grad):
                    rows, = ctx.saved_tensors
                    self.write(bag, rows)
                    before = weights_of(bag)
                    with torch.enable_grad():
                        bag(ids, offsets, weights).backward(grad.float())
                    return (before - weights_of(bag)).double()

            rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(Rows.apply, (rows,), eps=0.25, atol=1e-5, rtol=1e-5))

    def write(self, bag, rows):
        bag.drain()
        bag.instance.write_rows(np.arange(len(rows)), rows.detach().float().numpy())

    def test_gradcheck_of_per_sample_weights(self):
        bag = bag_of(6, 3, optimizer="sgd", lr=0.0)
        ids, offsets = torch.tensor([0, 5, 5, 2, 1, 5]), torch.tensor([0, 2, 2, 5])

        class Weights(torch.autograd.Function):  # gradcheck runs several backwards of a forward; a step has one
            @staticmethod
            def forward(ctx, weights):
                ctx.save_for_backward(weights)
                with torch.no_grad():
                    return bag(ids, offsets, weights.float()).double()

            @staticmethod
            def backward(ctx, grad):
                weights = ctx.saved_tensors[0].float().requires_grad_()
                with torch.enable_grad():
                    bag(ids, offsets, weights).backward(grad.float())
                return weights.grad.double()

        weights = torch.randn(6, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(Weights.apply, (weights,), eps=0.25, atol=1e-5, rtol=1e-5))

    def test_weights_that_want_gradients_do_not_change_the_rows(self):
        out = []
        for wants in (False, True):
            bag = bag_of()
            weights = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_(wants)
            bag(torch.arange(12).view(4, 3) % 5, per_sample_weights=weights).pow(2).sum().backward()
            out.append(weights_of(bag))
        self.assertTrue(torch.equal(*out))

    def test_gradient_of_any_layout(self):
        """Expanded, transposed, and a part of a wider tensor: the same rows as from a contiguous copy."""
        ids, results = torch.arange(12).view(6, 2), []
        for shape in ("contiguous", "part", "transposed"):
            bag = bag_of(optimizer="sgd", lr=1.0)
            wide = torch.randn(6, 9, generator=torch.Generator().manual_seed(1))
            grad = wide[:, 2:6]
            grad = grad.contiguous() if shape == "contiguous" else grad.t().contiguous().t() if shape == "transposed" \
                else grad
            bag(ids).backward(grad)
            results.append(weights_of(bag))
        bag = bag_of(optimizer="sgd", lr=1.0)
        before = weights_of(bag)
        bag(ids).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag)[:12], before[:12] - 1))
        self.assertTrue(torch.equal(results[0], results[1]) and torch.equal(results[0], results[2]))

    def test_compile(self):
        """The operators inside a compiled graph, where a backend that needs no compiler takes it."""
        eager, compiled = bag_of(), bag_of()
        head = torch.nn.Linear(4, 1)

        def loss_of(bag, ids):
            return head(bag(ids)).tanh().sum()

        ids = torch.randint(0, 50, (8, 3))
        as_graph = torch.compile(lambda keys, bounds, anchor, number: operators.lookup(
            anchor, [keys], bounds, None, number, 0, 4, True)[0].tanh().sum(), backend="aot_eager", fullgraph=True)
        bounds = torch.arange(0, 25, 3, dtype=torch.int32)
        for _ in range(3):
            eager(ids).tanh().sum().backward()
            as_graph(ids.view(-1), bounds, compiled._hidden["anchor"], compiled._parts[0][1].id).backward()
        self.assertTrue(torch.equal(weights_of(eager), weights_of(compiled)))


    def test_compiled_autograd(self):
        """The backward as a graph of its own."""
        try:
            from torch._dynamo.compiled_autograd import _enable
        except ImportError:
            self.skipTest("this PyTorch has no compiled autograd, or keeps it elsewhere")
        bags, ids = [bag_of(), bag_of()], torch.tensor([[1, 2], [2, 3]])
        for _ in range(3):
            bags[0](ids).pow(2).sum().backward()
            loss = bags[1](ids).pow(2).sum()
            with _enable(torch.compile(backend="eager")):
                loss.backward()
        self.assertTrue(torch.equal(*map(weights_of, bags)))

    def test_equal_calls_in_a_graph_are_two_steps(self):
        """A graph that merged them would train half of the gradient."""
        bag, ids = bag_of(), torch.tensor([[1], [2]])
        twice = torch.compile(lambda keys: bag(keys).sum() + bag(keys).sum(), backend="aot_eager", fullgraph=True)
        with self.assertRaisesRegex(RuntimeError, "closed already"):
            twice(ids).backward()


class Steps(unittest.TestCase):
    def test_evaluation_is_read_only_and_has_the_same_bits(self):
        bag = bag_of()
        ids = torch.randint(0, 50, (8, 3))
        before = weights_of(bag)
        with torch.no_grad():
            seen = bag(ids)
        self.assertFalse(seen.requires_grad)
        self.assertTrue(torch.equal(seen, bag(ids)))
        self.assertTrue(torch.equal(before, weights_of(bag)))

    def test_a_forward_without_backward_leaks_nothing(self):
        bag = bag_of(optimizer="sgd", lr=1.0)
        before = weights_of(bag)
        for _ in range(200):  # far more than lookahead and staging hold
            bag(torch.randint(0, 50, (8, 3)))
        self.assertTrue(torch.equal(before, weights_of(bag)))
        self.assertEqual(bag.instance.stats()["staging_in_use"], 0)
        bag(torch.tensor([[1]])).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 1))

    def test_a_backward_that_comes_too_late_is_refused(self):
        bag = bag_of()
        first, second = bag(torch.tensor([[1]])).sum(), bag(torch.tensor([[2]])).sum()
        with self.assertRaisesRegex(RuntimeError, "step 0 is closed already, and step 1 is under way"):
            first.backward()
        second.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "step 1 is closed already"):
            second.backward()

    def test_optimizer_closes_a_step_and_schedulers_drive_it(self):
        bag = bag_of(optimizer="sgd")
        optimizer = ft.Optimizer(bag, lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        before = weights_of(bag)
        for _ in range(3):
            optimizer.zero_grad()
            bag(torch.tensor([[1]])).sum().backward()
            optimizer.step()
            schedule.step()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 1 - 0.5 - 0.25))
        self.assertEqual(bag.lr, 0.125)
        optimizer.zero_grad()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 1 - 0.5 - 0.25))
        late = bag(torch.tensor([[1]])).sum()
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "closed already"):
            late.backward()
        saved = optimizer.state_dict()
        optimizer.param_groups[0]["lr"] = 7.0
        self.assertEqual(bag.lr, 7.0)
        optimizer.load_state_dict(saved)
        self.assertEqual(bag.lr, 0.125)
        bag.lr = 2.0
        self.assertEqual(optimizer.param_groups[0]["lr"], 2.0)

    def test_modules_have_no_parameters(self):
        model = torch.nn.Sequential(bag_of(), torch.nn.Linear(4, 1))
        self.assertEqual(len(list(model.parameters())), 2)
        for copied in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "cannot be"):
                copied(model)

    def test_wrong_input_is_named(self):
        bag = bag_of()
        for args, kind, said in (
                ((torch.rand(3, 2),), TypeError, "int64 or int32 are wanted; torch.float32"),
                (([1, 2],), TypeError, "a tensor of keys is wanted; a list"),
                ((torch.arange(3),), ValueError, "without offsets"),
                ((torch.arange(4).view(2, 2), torch.tensor([0])), ValueError, "with offsets"),
                ((torch.arange(3), torch.tensor([1, 2])), ValueError, "first must be 0; 1"),
                ((torch.arange(3), torch.tensor([0, 2, 1])), ValueError, "these fall"),
                ((torch.arange(3), torch.tensor([0, 4])), ValueError, "at most 3.* 4 was given"),
                ((torch.arange(3), torch.tensor([0, 2**32 + 1])), ValueError, "at most 3"),
                ((torch.arange(3), torch.tensor([], dtype=torch.int64)), ValueError, "there are none, and 3"),
                ((torch.arange(3), torch.tensor([0.])), TypeError, "int32 or int64"),
                ((torch.tensor([[50]]),), IndexError, "FRUGAL_ERR_KEY"),
                ((torch.zeros(1, 500, dtype=torch.int64),), ValueError, "FRUGAL_ERR_KEYS"),
                ((torch.arange(3), torch.tensor([0]), torch.rand(2)), ValueError, "per_sample_weights")):
            with self.assertRaisesRegex(kind, said):
                bag(*args)
        with self.assertRaisesRegex(ValueError, "mode 'sum'"):
            bag_of(mode="mean")(torch.arange(3), torch.tensor([0]), torch.rand(3))
        bag(torch.tensor([[1]])).sum().backward()  # it still trains
        with self.assertRaisesRegex(ValueError, "last must be 5, .* 3 was given"):
            bag_of(include_last_offset=True)(torch.arange(5), torch.tensor([0, 1, 3]))
        with self.assertRaisesRegex(ValueError, "first must be 0"):  # the bags of one table do not get keys of another
            ft.EmbeddingBagCollection({"a": (50, 4), "b": (50, 4)}, max_keys=100)(
                {"a": (torch.tensor([1, 2]), torch.tensor([0])), "b": (torch.tensor([3, 4, 5]), torch.tensor([1, 2]))})

    def test_any_default_of_pytorch(self):
        ids = torch.tensor([[1, 2], [3, 1]])
        wanted = {}
        for default in (torch.float32, torch.float64, torch.bfloat16):
            torch.set_default_dtype(default)
            try:
                bag = bag_of(optimizer="adagrad")
                out = bag(ids, None, torch.ones(2, 2, dtype=torch.float32, requires_grad=True))
                self.assertEqual(out.dtype, torch.float32)
                out.pow(2).sum().backward()
                state = bag.state_dict()
                bag_of(optimizer="adagrad").load_state_dict(state)
                wanted.setdefault("weight", state["weight"])
                self.assertEqual(state["weight"].dtype, torch.float32)
                self.assertTrue(torch.equal(state["weight"], wanted["weight"]))
            finally:
                torch.set_default_dtype(torch.float32)
        with torch.device("meta"):  # every tensor that the module makes says where it is
            bag = bag_of(optimizer="adagrad")
            one = torch.ones((), dtype=torch.float32, device="cpu")
            (bag(ids, None, torch.ones(2, 2, device="cpu")).pow(2) * one).sum().backward()
            state = bag.state_dict()
            bag_of(optimizer="adagrad").load_state_dict(state)
        self.assertTrue(torch.equal(state["weight"], wanted["weight"]))

    def test_weights_of_keys_that_change_before_the_backward(self):
        bag, weights = bag_of(optimizer="sgd"), torch.ones(2, 1)
        out = bag(torch.tensor([[1], [2]]), None, weights)
        weights.mul_(100)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()
        before = weights_of(bag)
        plain = np.ones((2, 1), np.float32)  # NumPy's memory has no version; it is copied
        out = bag(torch.tensor([[1], [2]]), None, torch.from_numpy(plain))
        plain *= 100
        out.sum().backward()
        self.assertTrue(torch.allclose(weights_of(bag)[1], before[1] - 0.1))

    def test_a_step_of_several_dims_is_one_step(self):
        tables = ft.EmbeddingBagCollection({"a": (50, 4), "b": (20, 8)}, max_keys=100, optimizer="adam", seed=1)
        right, wrong = {"a": torch.tensor([[1]]), "b": torch.tensor([[3]])}, {"a": torch.tensor([[1]]),
                                                                              "b": torch.tensor([[30]])}
        for _ in range(2):
            with self.assertRaises(IndexError):
                tables(wrong)
            with self.assertRaises(IndexError):
                tables.announce(wrong)
            with torch.no_grad():
                tables(right)
            out = tables(right)
            (out["a"].sum() + out["b"].sum()).backward()
        self.assertEqual([session.step for _, session, _ in tables._parts], [4, 4])
        for batch in ft.Loader([right] * 5, tables):
            tables(batch)["a"].sum().backward()
        tables.drain()
        self.assertEqual([f.stats()["steps"] for f in tables.instances], [9, 9])
        state = tables.state_dict()
        self.assertEqual(state["step"].tolist(), [9, 9])
        other = ft.EmbeddingBagCollection({"a": (50, 4), "b": (20, 8)}, max_keys=100, optimizer="adam", seed=2)
        other.load_state_dict(state)
        for one in (tables, other):
            out = one(right)
            (out["a"].sum() + out["b"].sum()).backward()
        for name in "ab":
            self.assertTrue(torch.equal(weights_of(tables, name), weights_of(other, name)))

    def test_evaluation_in_inference_mode(self):
        bag, ids = bag_of(), torch.arange(12).view(4, 3)
        with torch.inference_mode():
            seen = bag(ids)
        rows = bag(ids)
        self.assertTrue(torch.equal(seen, rows))
        rows.sum().backward()

    def test_nothing_is_kept_of_steps_that_are_done(self):
        bag, tables = bag_of(), ft.EmbeddingBagCollection({"a": (50, 4), "b": (20, 8)}, max_keys=100)
        ids = torch.tensor([[1, 2], [2, 3]])
        for batch in ft.Loader([ids] * 20, bag, ahead=3):
            bag(batch).sum().backward()
        for _ in range(20):
            sum(rows.sum() for rows in tables({"a": ids, "b": ids}).values()).backward()
        for instance in (*bag.instances, *tables.instances):
            self.assertEqual((instance._devices[0].n, instance._devices[0].kept), ({}, None))

    def test_keys_without_memory(self):
        with self.assertRaisesRegex(ValueError, "keys in memory are wanted; some on the device meta"):
            bag_of()(torch.zeros(4, 1, dtype=torch.int64, device="meta"))

    def test_an_interrupt_of_the_waking_of_others(self):
        """With several devices, behind the announcement: the next forward takes the batch."""
        first = bag_of(device=["cpu", "cpu"])
        bags, ids = [first, first.on(1)], torch.tensor([[1]])
        bags[1].announce(ids)
        first.instance._waiters += 1
        wake, first.instance._wake = first.instance._wake, interrupts
        with self.assertRaises(KeyboardInterrupt):
            first(ids)
        first.instance._wake = wake
        first.instance._waiters -= 1
        for bag in bags:
            bag(ids).sum().backward()
        self.assertEqual(first._parts[0][1].step, 1)

    def test_interrupts_at_each_place(self):
        """KeyboardInterrupt at the n-th place of a forward and its backward where Python looks for signals: the module
        can be used again, and the library has the steps that the module has."""
        bag, ids = bag_of(lookahead=3), torch.tensor([[1], [2]])
        for ahead in (False, True):
            for at in range(1, 1000):
                with Interrupt(at, os.sep + "frugal_embedding" + os.sep) as interrupt:
                    if ahead:
                        for batch in ft.Loader([ids] * 2, bag):
                            bag(batch).sum().backward()
                    else:
                        bag(ids).sum().backward()
                if ahead:
                    bag.cancel()
                bag(ids).sum().backward()
                if interrupt.left > 0:
                    break
            self.assertGreater(at, 5)
            self.assertLess(at, 999)
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], bag._parts[0][1].step)


class Committed(unittest.TestCase):
    """With an Optimizer its step commits: what PyTorch does between the backward and the step reaches the table."""

    def setUp(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
        self.ids = torch.tensor([[1], [2], [1]])

    def model(self, **settings):
        torch.manual_seed(1)
        model = torch.nn.Sequential(bag_of(optimizer="sgd", **settings), torch.nn.Linear(4, 1))
        return model, ft.Optimizer(model[0]), torch.optim.SGD(model[1].parameters(), lr=0.1)

    def test_the_step_commits(self):
        bag = bag_of(optimizer="sgd", lr=1.0)
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        bag(self.ids).sum().backward()
        for call in (lambda: bag(self.ids), bag.drain, bag.state_dict, bag.finish,
                     lambda: list(ft.Loader([self.ids], bag, ahead=0))):
            with self.assertRaisesRegex(RuntimeError, "wait for step().*zero_grad"):
                call()
        optimizer.step()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 2))
        out = bag(self.ids).sum()
        out.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "closed already"):
            out.backward()
        optimizer.zero_grad()
        optimizer.step()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 2))
        del optimizer
        gc.collect()
        bag(self.ids).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 4))

    def test_gradients_that_others_hold(self):
        """Who writes into a gradient after the backward changes nothing of what waits."""
        bag = bag_of(optimizer="sgd", lr=1.0)
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        seen, given = [], torch.ones(3, 4)
        rows = bag(self.ids)
        rows.register_hook(seen.append)
        rows.backward(given)
        for one in (given, *seen):
            one.mul_(100)
        optimizer.step()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 2))
        flat = bag(self.ids).view(-1)  # its gradient is other memory's view
        flat.retain_grad()
        flat.sum().backward()
        flat.grad.mul_(100)
        optimizer.step()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 4))

    def test_what_the_table_reads_stays_until_the_step(self):
        """Offsets and weights of a forward whose graph is gone, and the bits of a backward that commits itself."""
        ids, offsets = torch.arange(40) % 50, torch.arange(0, 40, 4)
        for mode, weighted in (("mean", False), ("sum", True)):
            tables = []
            for optimizes in (False, True):
                bag = bag_of(optimizer="sgd", mode=mode)
                optimizer = ft.Optimizer(bag) if optimizes else None
                for seed in range(3):
                    weights = torch.rand(40, generator=torch.Generator().manual_seed(seed)) if weighted else None
                    bag(ids, offsets.clone(), weights).sum().backward()
                    del weights
                    taken = [torch.full((n,), 7, dtype=torch.int32) for n in (11, 40) for _ in range(8)]
                    if optimizer is not None:
                        optimizer.clip_grad_norm_([], 1e9)
                        optimizer.step()
                    del taken
                tables.append(weights_of(bag))
            self.assertTrue(torch.equal(*tables), mode)
        bag, weights = bag_of(optimizer="sgd"), torch.ones(3, 1)
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        bag(self.ids, None, weights).sum().backward()
        weights.mul_(100)
        for call in (optimizer.step, lambda: optimizer.clip_grad_norm_([], 1.0)):
            with self.assertRaisesRegex(RuntimeError, "per_sample_weights of step 0 were changed in place"):
                call()
        optimizer.zero_grad()
        self.assertTrue(torch.equal(weights_of(bag), before))

    def test_no_scale_is_left_over(self):
        """Clipping and a GradScaler scale what waits, once."""
        a, b = (bag_of(optimizer="sgd", lr=1.0, seed=seed) for seed in (1, 2))
        optimizer, before = ft.Optimizer([a, b]), weights_of(b)
        (a(self.ids) * 1000).sum().backward()
        optimizer.clip_grad_norm_([], 1e-3)
        optimizer.zero_grad()
        rows = b(self.ids)
        optimizer.clip_grad_norm_([], 1e-3)  # there is nothing to clip
        rows.sum().backward()
        optimizer.step()
        self.assertTrue(torch.equal(weights_of(b)[2], before[2] - 1))
        before, scaler = weights_of(a), torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(a(self.ids).sum() + b(self.ids).sum()).backward()
        for lr, error in ((float("nan"), ValueError), (None, TypeError), (-1.0, ValueError)):
            optimizer.param_groups[1]["lr"] = lr
            with self.assertRaises(error):  # before the first module is committed
                scaler.step(optimizer)
        optimizer.param_groups[1]["lr"] = 1.0
        scaler.step(optimizer)
        self.assertTrue(torch.equal(weights_of(a)[2], before[2] - 1))

    def test_one_optimizer_a_module(self):
        bag = bag_of(optimizer="sgd", lr=1.0)
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        with self.assertRaisesRegex(ValueError, "has one, whose step commits"):
            ft.Optimizer(bag, lr=0.0)
        bag(self.ids[:1]).sum().backward()
        del optimizer  # then the next forward commits what waits
        gc.collect()
        bag(self.ids[:1]).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag)[1], before[1] - 2))

    def test_a_scaler_scales_back(self):
        (scaled, of_table, dense), (plain, of_plain, dense_plain) = self.model(), self.model()
        for unscales in (False, True, False):
            for one in (dense, dense_plain, of_table, of_plain):
                one.zero_grad()
            self.scaler.scale(scaled(self.ids).sum()).backward()
            plain(self.ids).sum().backward()
            if unscales:
                self.scaler.unscale_(of_table)
            for one in (dense, of_table):
                self.scaler.step(one)
            self.scaler.update()
            dense_plain.step()
            of_plain.step()
        self.assertTrue(torch.equal(weights_of(scaled[0]), weights_of(plain[0])))
        with self.assertRaisesRegex(RuntimeError, "already been called"):
            self.scaler.scale(scaled(self.ids).sum()).backward()
            self.scaler.step(of_table)
            self.scaler.step(of_table)

    def test_a_step_that_overflows(self):
        for unscales in (False, True):
            bag = bag_of(optimizer="sgd")
            optimizer, before, scaler = ft.Optimizer(bag), weights_of(bag), torch.amp.GradScaler("cpu")
            for value in (float("inf"), float("nan")):
                scale = scaler.get_scale()
                scaler.scale((bag(self.ids) * value).sum()).backward()
                if unscales:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                self.assertLess(scaler.get_scale(), scale)
            self.assertTrue(torch.equal(weights_of(bag), before))
            scaler.scale(bag(self.ids).sum()).backward()
            scaler.step(optimizer)
            self.assertFalse(torch.equal(weights_of(bag), before))

    def test_a_scaled_backward_is_refused_without_an_optimizer(self):
        self.ids = torch.tensor([[1]])
        for model in (bag_of(), ft.EmbeddingBagCollection({"a": (50, 4), "b": (50, 8)}, max_keys=9)):
            names = [name for part in model._parts for name in part[2]]
            before = [weights_of(model, name) for name in names]
            out = model(self.ids if names == [""] else {name: self.ids for name in names})
            out = out if names == [""] else out["a"].sum() + out["b"].sum()
            with self.assertRaisesRegex(RuntimeError, r"with scaled gradients.*scaler.step\(optimizer\)"):
                self.scaler.scale(out.sum()).backward()
            for name, rows in zip(names, before):
                self.assertTrue(torch.equal(weights_of(model, name), rows))

    def test_a_scaled_backward_after_a_state_was_loaded(self):
        bag = bag_of()
        bag.load_state_dict({"step": torch.tensor(5)}, strict=False)
        with self.assertRaisesRegex(RuntimeError, "with scaled gradients"):
            self.scaler.scale(bag(self.ids).sum()).backward()

    def test_a_loss_that_is_not_scaled(self):
        """Beside a scaler of something else, and with one that is not enabled."""
        self.scaler.scale(torch.ones(1))
        for optimizes in (False, True):
            bag = bag_of(optimizer="sgd")
            before, optimizer = weights_of(bag), ft.Optimizer(bag) if optimizes else None
            loss = bag(self.ids[:1]).sum()
            if optimizer is not None:  # a product may be a scaled loss
                (loss * torch.ones(())).backward()
                optimizer.step()
            else:
                loss.backward()
            self.assertTrue(torch.allclose(weights_of(bag)[1], before[1] - 0.1))
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        bag = bag_of(optimizer="sgd")
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        scaler.scale(bag(self.ids[:1]).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        self.assertTrue(torch.allclose(weights_of(bag)[1], before[1] - 0.1))

    def test_clipping_by_norm(self):
        """As by torch.nn.Embedding, whose gradient is summed by row."""
        for pooled in (False, True):
            ids = torch.tensor([[1, 2], [1, 1], [7, 2]])
            ours = bag_of(optimizer="sgd", lr=0.5) if pooled else \
                ft.Embedding(50, 4, max_keys=9, optimizer="sgd", lr=0.5)
            theirs = (torch.nn.EmbeddingBag(50, 4, mode="sum") if pooled else torch.nn.Embedding(50, 4))
            theirs.weight.data.copy_(weights_of(ours))
            heads = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
            heads[1].load_state_dict(heads[0].state_dict())
            optimizer = ft.Optimizer(ours)
            for embed, head in zip((ours, theirs), heads):
                (head(embed(ids)).pow(2).sum() * 10).backward()
            norm = optimizer.clip_grad_norm_(heads[0].parameters(), 0.5)
            wanted = torch.nn.utils.clip_grad_norm_([*theirs.parameters(), *heads[1].parameters()], 0.5)
            self.assertTrue(torch.allclose(norm.float(), wanted))
            optimizer.step()
            torch.optim.SGD(theirs.parameters(), lr=0.5).step()
            self.assertTrue(torch.allclose(weights_of(ours), theirs.weight, atol=1e-6))
            self.assertTrue(torch.allclose(heads[0].weight.grad, heads[1].weight.grad))
            ours(ids).sum().backward()  # below the bound nothing changes
            before = ours._parts[0][1].gradient.clone()
            optimizer.clip_grad_norm_(heads[0].parameters(), 1e9)
            self.assertEqual(ours._parts[0][1].scale, 1.0)
            self.assertTrue(torch.equal(before, ours._parts[0][1].gradient))
            for call in (lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0), lambda p: p[0].grad.norm(),
                         lambda p: torch.nn.utils.clip_grad_value_(p, 1.0)):
                with self.assertRaisesRegex(TypeError, "by position.*optimizer.clip_grad_norm_"):
                    call(optimizer.param_groups[0]["params"])
        first = bag_of(device=["cpu", "cpu"])
        with self.assertRaisesRegex(ValueError, "one device is wanted; .* has 2"):
            ft.Optimizer(first).clip_grad_norm_([], 1.0)


def interrupts():
    raise KeyboardInterrupt


class MicroBatched(unittest.TestCase):
    """Several forwards in one step: the bits of one forward with all their keys."""

    def batches(self, n=12, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randint(0, 50, (8, 3), generator=generator) for _ in range(n)]

    def whole(self, batches, k, **settings):
        bag = bag_of(**settings)
        for first in range(0, len(batches), k):
            of_step = batches[first:first + k]
            out = bag(torch.cat(of_step))
            (out * torch.arange(4.)).pow(2).sum().backward()
        return weights_of(bag)

    def test_accumulated(self):
        batches = self.batches(11)
        for kind in ("sgd", "adagrad", "adam"):
            for settings in (dict(), dict(thread=True), dict(ahead=0)):
                for optimizes in (True, False):
                    with self.subTest(settings, kind=kind, optimizes=optimizes):
                        bag = bag_of(optimizer=kind)
                        optimizer = ft.Optimizer(bag) if optimizes else None
                        for at, ids in enumerate(ft.Loader(batches, bag, accumulate=3, **settings)):
                            (bag(ids) * torch.arange(4.)).pow(2).sum().backward()
                            if optimizer is not None and (at % 3 == 2 or at == 10):
                                optimizer.step()
                        self.assertTrue(torch.equal(weights_of(bag), self.whole(batches, 3, optimizer=kind)))
                        self.assertEqual(bag.instance.stats()["steps"], 4)

    def test_of_a_collection_of_several_dims_and_offsets(self):
        def made():
            return ft.EmbeddingBagCollection({"a": (30, 4), "b": (20, 8), "c": (10, 4)}, max_keys=200, seed=1)
        generator = torch.Generator().manual_seed(1)
        batches = [{"a": torch.randint(0, 30, (5, 2), generator=generator),
                    "b": (torch.randint(0, 20, (9,), generator=generator), torch.tensor([0, 2, 2])),
                    "c": (torch.randint(0, 10, (4 + i,), generator=generator), torch.tensor([0, i]))} for i in range(4)]
        one, other = made(), made()
        optimizer = ft.Optimizer(one)
        for first in (0, 2):
            pair = batches[first:first + 2]
            one.announce_micro_batches(pair)
            outs = [one(batch) for batch in pair]
            for out in reversed(outs):  # the backwards come in any order
                sum(part.pow(2).sum() for part in out.values()).backward()
            optimizer.step()
            joined = {"a": torch.cat([b["a"] for b in pair])}
            for name in "bc":
                n = pair[0][name][0].numel()
                joined[name] = (torch.cat([b[name][0] for b in pair]),
                                torch.cat([pair[0][name][1], pair[1][name][1] + n]))
            sum(part.pow(2).sum() for part in other(joined).values()).backward()
        for name in "abc":
            self.assertTrue(torch.equal(weights_of(one, name), weights_of(other, name)), name)

    def test_a_table_that_two_parts_of_a_model_look_up(self):
        """Two forwards before a backward, in one step, without an optimizer object."""
        rows, other = (ft.Embedding(50, 4, max_keys=60, optimizer="adagrad", lr=0.5, seed=1) for _ in range(2))
        a, b = torch.tensor([1, 2, 1]), torch.tensor([2, 3])
        for _ in range(3):
            rows.announce_micro_batches([a, b])
            (rows(a).sum(0) * rows(b).sum(0)).sum().backward()
            both = other(torch.cat([a, b]))
            (both[:3].sum(0) * both[3:].sum(0)).sum().backward()
        self.assertTrue(torch.equal(weights_of(rows), weights_of(other)))

    def test_wrong_uses_are_refused(self):
        bag, batches = bag_of(), self.batches(3)
        optimizer, before = ft.Optimizer(bag), weights_of(bag)
        with self.assertRaisesRegex(ValueError, "at least one"):
            bag.announce_micro_batches([])
        bag.announce_micro_batches(batches)
        bag(batches[0]).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "as 3 micro-batches, of which 1 have had a forward"):
            optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
            bag(batches[2])
        with self.assertRaisesRegex(RuntimeError, "announced with other bags"):
            bag(batches[1].view(-1), torch.tensor([0, 1]))
        with self.assertRaisesRegex(ValueError, "per_sample_weights"):
            bag(batches[1], None, torch.ones(8, 3))
        with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "Evaluate between steps"):
            bag(batches[1])
        bag(batches[1]).sum().backward()
        bag(batches[2]).sum().backward()
        optimizer.step()
        self.assertFalse(torch.equal(weights_of(bag), before))
        with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_KEYS"):
            bag.announce_micro_batches([torch.zeros(200, 1, dtype=torch.int64)] * 3)
        bag(batches[0]).sum().backward()
        optimizer.step()
        with self.assertRaisesRegex(ValueError, "does not train"):
            bag.requires_grad_(False).announce_micro_batches(batches)
        for wrong in (dict(accumulate=0), dict(accumulate=2, read_only=True)):
            with self.assertRaisesRegex(ValueError, "accumulate: 1 or more"):
                ft.Loader(batches, bag, **wrong)

    def test_some_have_no_backward(self):
        """They count as gradients of 0; those that a loop leaves out, too."""
        batches = self.batches(8)
        for optimizes in (True, False):
            for skips in ("backward", "forward"):
                bag, plain = bag_of(optimizer="sgd"), bag_of(optimizer="sgd")
                optimizer = ft.Optimizer(bag) if optimizes else None
                for at, ids in enumerate(ft.Loader(batches, bag, accumulate=2)):
                    if at % 2 == (at // 2) % 2:
                        bag(ids).sum().backward()
                    elif skips == "backward":
                        bag(ids)
                    if at % 2 == 1 and optimizer is not None:
                        if at % 4 == 1 and skips == "forward":
                            next_one = bag._parts[0][1]  # the last of a step is left out: the loader ends it
                            self.assertTrue(next_one.has_micro_batch())
                            next_one.skip()
                        optimizer.step()
                for at, ids in enumerate(batches):
                    if at % 2 == (at // 2) % 2:
                        plain(ids).sum().backward()
                self.assertTrue(torch.equal(weights_of(bag), weights_of(plain)), (optimizes, skips))


HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Types(unittest.TestCase):
    """Rows, what modules return, and gradients, of 16 bits."""

    def step(self, bag, reference, step, weighted, mode):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(0, 50, (120,), generator=generator)
        offsets = torch.cat([torch.tensor([0]), torch.randint(0, 121, (12,), generator=generator)]).sort()[0]
        weights = torch.randn(120, generator=generator) if weighted else None
        direction = torch.randn(13, 5, generator=generator).to(bag.output_dtype)
        dtype = next((name for name, dtype in HALVES.items() if dtype == bag.output_dtype), "fp32")
        out = bag(ids, offsets, weights)
        self.assertEqual(out.dtype, bag.output_dtype)
        bounds, plain = np.append(offsets.numpy(), 120), None if weights is None else weights.numpy()
        pooled = rounded(pool(reference.weights[ids.numpy()], bounds, plain, mode == "mean"), dtype)
        self.assertEqual(out.detach().float().numpy().tobytes(), pooled.tobytes())
        out.backward(direction)
        grads = spread(direction.float().numpy(), bounds, plain, mode == "mean")
        reference.train([(ids.numpy(), grads)], 0.1)

    def test_bits_are_those_of_the_reference(self):
        for at, (rows_as, output, kind, mode, weighted) in enumerate((
                ("bf16", "bf16", "adagrad", "sum", False), ("bf16", None, "sgd", "sum", True),
                ("fp16", "fp16", "rowwise_adagrad", "mean", False), ("bf16", "fp16", "adam", "sum", True),
                ("fp32", "bf16", "adagrad", "mean", False))):
            with self.subTest(rows_as=rows_as, output=output):
                rounding = "nearest" if at == 2 else "stochastic"
                bag = bag_of(50, 5, mode=mode, optimizer=kind, cache_rows=16, rows_as=rows_as, rounding=rounding,
                             output_dtype=output and HALVES[output])
                bag.drain()
                self.assertEqual(bag.view_tensor().dtype, HALVES.get(rows_as, torch.float32))
                reference = Reference(bag.view_tensor().float().numpy(), kind, 1, False, 0, rows_as, rounding, 3)
                for step in range(6):
                    self.step(bag, reference, step, weighted, mode)
                bag.drain()
                seen = bag.view_tensor()
                self.assertEqual(seen.float().numpy().tobytes(), reference.weights.tobytes())
                self.assertEqual(seen.data_ptr(), bag.view().__array_interface__["data"][0])
                with self.assertRaisesRegex(frugal.BusyError, "view"):
                    bag.close()
                state = bag.state_dict()
                self.assertEqual(state["weight"].dtype, torch.float32)
                self.assertTrue(torch.equal(state["weight"], seen.float()))
                del seen
                again = bag_of(50, 5, mode=mode, optimizer=kind, rows_as=rows_as, rounding=rounding,
                               output_dtype=output and HALVES[output])
                again.load_state_dict(state)
                self.step(again, reference, 6, weighted, mode)  # the random bits depend on the number of the step
                again.drain()
                self.assertEqual(again.view_tensor().float().numpy().tobytes(), reference.weights.tobytes())

    def test_all_ways_of_a_gradient(self):
        """An Optimizer, micro-batches, a part of a wider gradient, and per_sample_weights that want gradients."""
        ids = torch.arange(24).view(8, 3) % 7
        direction = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
        results = []
        for way in ("plain", "wide", "optimizer", "micro", "weights", "clipped"):
            bag = bag_of(optimizer="adagrad", rows_as="bf16", output_dtype=torch.bfloat16)
            optimizer = ft.Optimizer(bag) if way in ("optimizer", "micro", "clipped") else None
            weights = torch.ones(8, 3, requires_grad=True) if way == "weights" else None
            if way == "micro":
                bag.announce_micro_batches([ids[:3], ids[3:]])
                for first, end in ((0, 3), (3, 8)):
                    part = bag(ids[first:end])
                    self.assertEqual(part.dtype, torch.bfloat16)
                    part.backward(direction[first:end])
            else:
                wide = torch.cat([direction, direction], 1)
                bag(ids, per_sample_weights=weights).backward(wide[:, 4:] if way == "wide" else direction)
            if weights is not None:
                self.assertEqual(weights.grad.dtype, torch.float32)
                rows = weights_of(bag_of(rows_as="bf16")).float()[ids]  # before the step
                self.assertTrue(torch.allclose(weights.grad, (rows * direction.float()[:, None]).sum(2), atol=1e-5))
            if way == "clipped":
                self.assertGreater(optimizer.clip_grad_norm_([], 1e9).item(), 0)
            if optimizer is not None:
                optimizer.step()
            bag.drain()
            results.append(bag.view_tensor().clone())
            self.assertTrue(torch.equal(results[0], results[-1]), way)

    def test_in_a_model(self):
        """Under autocast a module returns what it was made for; one of a model in bfloat16 fits into it."""
        ids = torch.tensor([[1, 2], [3, 4]])
        bag = bag_of(rows_as="bf16")
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(bag(ids).dtype, torch.float32)
            torch.nn.Linear(4, 2)(bag(ids)).sum().backward()
        bag = bag_of(rows_as="bf16", output_dtype=torch.bfloat16)
        model = torch.nn.Sequential(bag, torch.nn.Linear(4, 2)).bfloat16()
        model(ids).sum().backward()
        for wrong in (model.float, model.half, model.double):
            with self.assertRaisesRegex(TypeError, "returns is torch.bfloat16 and stays so; .* was asked for"):
                wrong()
        compiled = torch.compile(lambda keys: model(keys).sum(), backend="aot_eager", fullgraph=True)
        other = torch.nn.Sequential(bag_of(rows_as="bf16", output_dtype=torch.bfloat16), model[1])
        other(ids).sum().backward()
        for _ in range(2):
            compiled(ids).backward()
            other(ids).sum().backward()
        self.assertTrue(torch.equal(*(one[0].state_dict()["weight"] for one in (model, other))))
        tables = ft.EmbeddingBagCollection({"a": (50, 4), "b": (20, 8)}, max_keys=50, output_dtype=torch.float16,
                                           rows_as="fp16")
        self.assertEqual({rows.dtype for rows in tables({"a": ids, "b": ids}).values()}, {torch.float16})
        self.assertEqual(ft.Embedding(9, 3, max_keys=5, output_dtype=torch.bfloat16)(ids).dtype, torch.bfloat16)
        for dtype in (torch.float64, "bf16"):
            with self.assertRaisesRegex(ValueError, "output_dtype: one of torch.float32, .* is wanted"):
                bag_of(output_dtype=dtype)
        with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_ARGUMENT.*rounding"):
            bag_of(rounding="nearest")

    def test_a_scaled_loss(self):
        for rows_as, dtype in HALVES.items():
            bag, ids = bag_of(rows_as=rows_as, optimizer="sgd", output_dtype=dtype), torch.tensor([[1], [2]])
            plain = bag_of(rows_as=rows_as, optimizer="sgd", output_dtype=dtype)
            plain(ids).sum().backward()
            optimizer, scaler = ft.Optimizer(bag), torch.amp.GradScaler("cpu", init_scale=8.0)
            scaler.scale(bag(ids).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertTrue(torch.equal(*(one.state_dict()["weight"] for one in (bag, plain))))

    def test_the_state_of_an_embedding_bag_of_16_bits(self):
        theirs = torch.nn.EmbeddingBag(50, 4, dtype=torch.bfloat16)
        for rows_as in ("fp32", "bf16", "fp16"):
            bag = bag_of(rows_as=rows_as)
            bag.load_state_dict(theirs.state_dict(), strict=False)
            bag.drain()
            self.assertTrue(torch.equal(bag.view_tensor(), theirs.weight.to(bag.view_tensor().dtype)))
        with self.assertRaisesRegex(RuntimeError, "weight: torch.float32 or torch.bfloat16 or .* is wanted"):
            bag.load_state_dict({"weight": torch.zeros(50, 4, dtype=torch.float64)}, strict=False)


class AsOfTorch(unittest.TestCase):
    """What modules of torch.nn can do, and these cannot, is honoured or refused, not ignored."""

    def test_conversions(self):
        for model in (bag_of(), torch.nn.Sequential(bag_of(), torch.nn.Linear(4, 1))):
            for call in (lambda: model.double(), lambda: model.half(), lambda: model.bfloat16(),
                         lambda: model.to(torch.float64), lambda: model.to(torch.empty(1, dtype=torch.half)),
                         lambda: model.type(torch.float64), lambda: model.share_memory()):
                with self.assertRaisesRegex(TypeError, "returns is torch.float32 and stays so|Processes"):
                    call()
            for call in (lambda: model.to("meta"), lambda: model.to_empty(device="meta")):
                with self.assertRaisesRegex(ValueError, "it stays on cpu; meta was asked for"):
                    call()
            for made in (model.float(), model.to("cpu"), model.cpu(), model.to(torch.float32), model.eval()):
                self.assertIs(made, model)
            if torch.cuda.is_available():
                with self.assertRaisesRegex(ValueError, "it stays on cpu; cuda"):
                    model.cuda()
        with self.assertRaisesRegex(TypeError, "list of devices"):
            bag_of()._replicate_for_data_parallel()

    def test_a_frozen_module(self):
        bag, ids = bag_of(), torch.tensor([[1], [2]])
        model, before = torch.nn.Sequential(bag, torch.nn.Linear(4, 1)), weights_of(bag)
        for freeze in (bag.requires_grad_, model.requires_grad_, model[0].requires_grad_):
            freeze(False)
            model[1].requires_grad_(True)
            self.assertFalse(bag.trains or bag.on(0).trains or bag(ids).requires_grad)
            model(ids).sum().backward()
            for batch in ft.Loader([ids] * 3, bag):
                model(batch).sum().backward()
            self.assertTrue(torch.equal(weights_of(bag), before))
            freeze(True)
            self.assertTrue(bag.trains)
        model(ids).sum().backward()
        self.assertFalse(torch.equal(weights_of(bag), before))
        tables = ft.EmbeddingBagCollection({"a": (50, 4), "b": (50, 8)}, max_keys=9).requires_grad_(False)
        self.assertFalse(tables({"a": ids, "b": ids})["b"].requires_grad)
        self.assertEqual(list(model.parameters()), list(model[1].parameters()))

    def test_sizes_are_integers(self):
        for made in (lambda: bag_of(10.5), lambda: bag_of(10, 4.5), lambda: bag_of(True),
                     lambda: ft.EmbeddingBagCollection({"a": (10.5, 4)}, max_keys=9),
                     lambda: ft.EmbeddingBagCollection({"a": (10, 4.5)}, max_keys=9), lambda: bag_of().on(True)):
            with self.assertRaisesRegex(TypeError, "an integer is wanted"):
                made()
        with self.assertRaises((IndexError, ValueError)):
            bag_of().on(-1)

    def test_a_file_with_holes(self):
        with tempfile.TemporaryDirectory() as folder:
            blocks = []
            for sparse in (True, False):
                path = os.path.join(folder, str(sparse))
                bag = ft.Embedding(50_000, 16, max_keys=9, init=None, file=path, file_sparse=sparse)
                blocks.append(os.stat(path).st_blocks)
                bag.close()
            self.assertLess(2 * blocks[0], blocks[1])

    def test_rows_of_torch(self):
        theirs = torch.nn.ModuleDict({"bag": torch.nn.EmbeddingBag(50, 4)})
        ours = torch.nn.ModuleDict({"bag": bag_of()})
        with self.assertRaisesRegex(RuntimeError, r"load_state_dict\(..., strict=False\) takes them"):
            ours.load_state_dict(theirs.state_dict())
        missing = ours.load_state_dict(theirs.state_dict(), strict=False).missing_keys
        self.assertEqual(sorted(missing), ["bag.state", "bag.step"])
        self.assertTrue(torch.equal(weights_of(ours["bag"]), theirs["bag"].weight))

    def told(self, optimizer_of, steps=2, **settings):
        bag = ft.EmbeddingBag(50, 4, max_keys=9, **settings)
        model = torch.nn.Sequential(bag, torch.nn.Linear(4, 1))
        kept = optimizer_of(model)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(steps):
                model.zero_grad()
                model(torch.tensor([[1]])).sum().backward()
                for one in kept if isinstance(kept, tuple) else ():
                    one.step()
        del kept
        return [str(one.message) for one in seen if "frugal" in str(one.message)]

    def test_an_optimizer_of_the_model_that_leaves_the_table_at_its_default(self):
        def adam(model):
            return torch.optim.Adam(model.parameters())
        said, = self.told(adam)
        self.assertRegex(said, r"no optimizer of torch.optim trains them. They train by the default, adagrad, with lr "
                         r"0.01. .*optimizer=.*frugal_embedding.torch.Optimizer")
        self.assertEqual(len(self.told(lambda model: torch.optim.SGD([p for _, p in model.named_parameters()]))), 1)
        self.assertEqual(self.told(adam, optimizer="adagrad"), [])
        self.assertEqual(self.told(lambda model: (adam(model), ft.Optimizer(model[0], lr=0.1))), [])
        self.assertEqual(self.told(lambda model: torch.optim.Adam(model[1].parameters())), [])
        self.assertEqual(self.told(lambda model: list(model.parameters())), [])

    def test_a_table_that_is_used_twice_in_a_step(self):
        bag, a, b = bag_of(optimizer="sgd"), torch.tensor([[1]]), torch.tensor([[2]])
        with self.assertRaisesRegex(RuntimeError, r"uses a table twice.*rows_b = bag\(\[a, b\]\)"):
            (bag(a) * bag(b)).sum().backward()
        before = weights_of(bag)
        rows = bag(torch.cat([a, b]))
        (rows[:1] * rows[1:]).sum().backward()
        self.assertTrue(torch.allclose(weights_of(bag)[1], before[1] - 0.1 * before[2]))

    def test_an_optimizer_of_something_else(self):
        bag, head = bag_of(), torch.nn.Linear(4, 1)
        for given in (head, [bag, head], torch.nn.Sequential(bag, head), head.parameters()):
            with self.assertRaisesRegex(TypeError, "modules of frugal_embedding.torch are wanted; a .* was given"):
                ft.Optimizer(given)
        optimizer = ft.Optimizer(bag)
        with self.assertRaisesRegex(TypeError, "another optimizer"):
            optimizer.add_param_group({"params": list(head.parameters())})
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "cannot be pickled or copied"):
                copied(optimizer)

    def test_keys_with_gaps_and_at_an_odd_address(self):
        bag, plain = bag_of(optimizer="sgd"), bag_of(optimizer="sgd")
        odd = torch.frombuffer(bytearray(b"x" + np.arange(6).tobytes()), dtype=torch.int64, offset=1).view(3, 2)
        for keys in (torch.arange(12).view(3, 4).t(), torch.arange(12).view(3, 4)[:, ::2], odd):
            for announced in (False, True):
                if announced:
                    bag.announce(keys)
                out, wanted = bag(keys), plain(keys.clone(memory_format=torch.contiguous_format))
                self.assertTrue(torch.equal(out, wanted))
                for one in (out, wanted):
                    one.pow(2).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag), weights_of(plain)))
        grads = torch.frombuffer(bytearray(33), dtype=torch.float32, offset=1).view(2, 4)
        bag(torch.tensor([[1], [2]])).backward(grads)


class Loaders(unittest.TestCase):
    def batches(self, n=30, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randint(0, 50, (16, 3), generator=generator) for _ in range(n)]

    def plain(self, batches, **settings):
        bag = bag_of(**settings)
        for ids in batches:
            bag(ids).pow(2).sum().backward()
        return weights_of(bag)

    def test_announcing_ahead_changes_no_bits(self):
        batches = self.batches()
        expected = self.plain(batches)
        for settings in (dict(), dict(ahead=2), dict(ahead=0), dict(thread=True), dict(thread=True, ahead=1)):
            for workers in (0, 1):
                with self.subTest(settings, workers=workers):
                    bag = bag_of(workers=workers, cache_rows=16)
                    seen = 0
                    for ids in ft.Loader(batches, bag, **settings):
                        bag(ids).pow(2).sum().backward()
                        seen += 1
                    self.assertEqual(seen, len(batches))
                    self.assertTrue(torch.equal(weights_of(bag), expected))

    def test_it_announces_as_far_as_it_may(self):
        bag, batches = bag_of(lookahead=5, cache_rows=16), self.batches()
        loader = iter(ft.Loader(batches, bag))
        next(loader)
        self.assertEqual(len(bag._parts[0][1].queue), 6)  # this step, and five more
        loader.close()
        self.assertEqual(len(bag._parts[0][1].queue), 0)
        self.assertEqual(len(ft.Loader(batches, bag)), 30)
        with self.assertRaisesRegex(ValueError, "0 to the modules' lookahead, 5"):
            ft.Loader(batches, bag, ahead=6)
        plain = bag_of(lookahead=5)  # nothing to flush, nothing to copy: it only yields, unless it is told
        for settings, announced in ((dict(), 0), (dict(ahead=2), 3)):
            loader = iter(ft.Loader(batches, plain, **settings))
            next(loader)
            self.assertEqual(len(plain._parts[0][1].queue), announced)
            loader.close()

    def test_evaluation_in_the_middle(self):
        batches, other = self.batches(), self.batches(3, 2)
        expected = self.plain(batches)
        bag = bag_of()
        for at, ids in enumerate(ft.Loader(batches, bag)):
            if at % 7 == 3:
                with torch.no_grad():
                    for evaluated in other + [ids]:  # the batch of the step, too
                        self.assertTrue(bool(bag(evaluated).isfinite().all()))
            bag(ids).pow(2).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag), expected))

    def test_a_loader_of_an_evaluation(self):
        bag, batches = bag_of(), self.batches(10)
        before = weights_of(bag)
        with torch.no_grad():
            for ids in ft.Loader(batches, bag, read_only=True, ahead=3):
                bag(ids)
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], 10)
        self.assertTrue(torch.equal(weights_of(bag), before))
        for ids in ft.Loader(batches, bag, read_only=True, ahead=3):
            with self.assertRaisesRegex(RuntimeError, "announced read-only"):
                bag(ids)
            break

    def test_skipped_batches_and_a_loop_that_is_left(self):
        batches = self.batches()
        kept = [ids for at, ids in enumerate(batches) if at % 3][:12]
        for thread in (False, True):
            bag, trained = bag_of(), 0
            for at, ids in enumerate(ft.Loader(batches, bag, thread=thread)):
                if at % 3 == 0:
                    continue
                if trained == 12:
                    break
                bag(ids).pow(2).sum().backward()
                trained += 1
            gc.collect()
            self.assertTrue(torch.equal(weights_of(bag), self.plain(kept)), thread)
            bag(batches[0]).sum().backward()  # nothing is left that was announced

    def test_other_keys_than_announced(self):
        bag, batches = bag_of(), self.batches(5)
        for ids in ft.Loader(batches, bag, ahead=2):
            with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
                bag(ids + 1 - 2 * (ids > 40))
            bag(ids.clone()).sum().backward()  # equal keys are enough

    def test_keys_of_a_gpu_are_compared_where_they_lie(self):
        """Through the function that compares, with keys that say that they are on a GPU; the same number of keys is not
        enough. test_torch_gpu.py has the same on a GPU."""
        class OnGpu(torch.Tensor):
            is_cuda = True

        announced, version = torch.tensor([1, 2, 3]), 0
        for keys, same in (([1, 2, 3], True), ([1, 2, 4], False), ([1, 2], False)):
            given = torch.tensor(keys).as_subclass(OnGpu)
            self.assertTrue(given.is_cuda)
            self.assertEqual(ft.session._are_the_same(announced, version, given), same)

    def test_a_skipped_batch_is_a_step_announced_or_not(self):
        """Adam counts steps."""
        tables = []
        for settings in (dict(), dict(ahead=0), dict(ahead=3), dict(thread=True)):
            bag = bag_of(optimizer="adam")
            for at, ids in enumerate(ft.Loader(self.batches(12), bag, **settings)):
                if at % 4 != 2:
                    bag(ids).pow(2).sum().backward()
            tables.append(weights_of(bag))
            self.assertEqual(bag.instance.stats()["steps"], 12)
        for table in tables:
            self.assertTrue(torch.equal(table, tables[0]))

    def test_a_loader_that_is_not_told_where_the_keys_are(self):
        bag, tables = bag_of(), ft.EmbeddingBagCollection({"a": (50, 4)}, max_keys=9)
        batch = (torch.tensor([[1]]), torch.tensor([1.0]))
        for module in (bag, tables):
            for given, said in ((batch, "a tuple of Tensor, Tensor"), (list(batch), "a list of Tensor, Tensor")):
                for thread in (False, True):
                    with self.assertRaisesRegex(TypeError, f"no key function was given, and a batch is {said}.*"
                                                r"lambda batch: batch\[0\]"):
                        next(iter(ft.Loader([given], module, thread=thread)))
        head = torch.nn.Linear(4, 1)
        for modules, keys, said in ((torch.nn.Sequential(bag, head), None, "a Sequential was given.*model.bag"),
                                    ({head: len}, None, "a module of frugal_embedding.torch"),
                                    ({bag: len}, len, "`keys` was given, too")):
            with self.assertRaisesRegex(TypeError, said):
                ft.Loader([batch], modules, keys)
        for ahead in (1.5, True):
            with self.assertRaisesRegex(TypeError, "ahead: an integer is wanted"):
                ft.Loader([batch], bag, ahead=ahead)

    def test_messages_name_the_table(self):
        tables = ft.EmbeddingBagCollection({"user": (50, 8), "item": (50, 4), "shop": (9, 8)}, max_keys=9)
        ids = {name: torch.tensor([[1]]) for name in ("user", "item", "shop")}
        with self.assertRaisesRegex(IndexError, r"table 1 \(shop\) has 9 rows"):  # of its dim
            tables({**ids, "shop": torch.tensor([[10]])})

    def test_a_loop_that_a_forked_child_leaves(self):
        for thread in (False, True):
            bag = bag_of()
            loop = iter(ft.Loader(self.batches(6), bag, thread=thread))
            for at, ids in enumerate(loop):
                if at == 2:
                    child = os.fork()
                    if child == 0:
                        signal.alarm(60)  # ends the child, if it hangs
                        try:
                            loop.close()
                            os._exit(0)
                        finally:
                            os._exit(1)
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
                bag(ids).sum().backward()
            bag.drain()
            self.assertEqual(bag.instance.stats()["steps"], 6)

    def test_a_failed_forward_can_be_repeated(self):
        batches = self.batches(12)
        bag, wrong = bag_of(), torch.tensor([0, 3, 2])
        check = ft.inputs.check_offsets
        self.addCleanup(setattr, ft.inputs, "check_offsets", check)
        ft.inputs.check_offsets = lambda *_: False  # so that the library refuses
        for at, ids in enumerate(ft.Loader(batches, bag)):
            if at % 3 == 1:
                with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_ARGUMENT"):
                    bag(ids.view(-1), wrong)
            if at % 4 == 1:
                with torch.no_grad(), self.assertRaises(ValueError):
                    bag(ids.view(-1), wrong)
                with torch.no_grad(), self.assertRaises(IndexError):
                    bag(ids + 1000)
            bag(ids).pow(2).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag), self.plain(batches)))

    def test_keys_that_change_after_they_were_announced(self):
        for made in (lambda: torch.tensor([[1], [2]]), lambda: torch.from_numpy(np.array([[1], [2]]))):
            bag = bag_of()
            with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
                for ids in ft.Loader([made() for _ in range(3)], bag, ahead=2):
                    ids[0, 0] = 7
                    bag(ids)
            bag = bag_of()
            kept = np.array([[1], [2]])
            bag.announce(torch.from_numpy(kept))
            kept[0, 0] = 7
            with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
                bag(torch.from_numpy(kept))

    def test_no_backward_without_lookahead(self):
        bag = bag_of(lookahead=0)
        for at, ids in enumerate(ft.Loader(self.batches(8), bag, thread=True)):
            loss = bag(ids).sum()
            if at % 3 != 1:
                loss.backward()
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], 8)

    def test_an_error_of_the_data_reaches_the_loop(self):
        def broken():
            yield from self.batches(3)
            raise ValueError("no more data")
        for thread in (False, True):
            bag = bag_of()
            with self.assertRaisesRegex(ValueError, "no more data"):
                for ids in ft.Loader(broken(), bag, thread=thread):
                    bag(ids).sum().backward()
            with self.assertRaises(IndexError):
                for ids in ft.Loader([torch.tensor([[50]])], bag, thread=thread):
                    bag(ids)

    def test_a_data_loader_with_processes(self):
        data = torch.utils.data.TensorDataset(torch.randint(0, 50, (64, 3)), torch.rand(64))
        bag = bag_of(workers=1)
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
        for ids, label in ft.Loader(loader, bag, lambda batch: batch[0]):
            (bag(ids).sum(1) * label).sum().backward()
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], 8)

    def test_several_modules(self):
        users, items = bag_of(seed=1), bag_of(seed=2)
        batches = [(torch.randint(0, 50, (8, 1)), torch.randint(0, 50, (8, 1))) for _ in range(12)]
        for user, item in ft.Loader(batches, {users: lambda b: b[0], items: lambda b: b[1]}):
            (users(user) * items(item)).sum().backward()
        users.drain(), items.drain()
        self.assertEqual([module.instance.stats()["steps"] for module in (users, items)], [12, 12])

    def test_ctrl_c_in_a_forward_that_waits_for_another_device(self):
        first = bag_of(device=["cpu", "cpu"])
        first.announce(torch.tensor([[1]]))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise

        def send():  # once the forward waits
            while not first.instance._waiters:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Thread(target=send)
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            first(torch.tensor([[1]]))
        timer.join()


class State(unittest.TestCase):
    def train(self, bag, steps, seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            bag(torch.randint(0, 50, (16, 3), generator=generator)).pow(2).sum().backward()

    def test_state_dict_goes_on_with_the_same_bits(self):
        for kind in frugal.settings.KINDS:
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                bag = bag_of(optimizer=kind)
                self.train(bag, 10, 1)
                path = os.path.join(folder, "model.pt")
                torch.save({"bag": bag.state_dict()}, path)
                again = bag_of(optimizer=kind, seed=99)
                self.train(again, 3, 5)
                self.assertEqual(str(again.load_state_dict(torch.load(path)["bag"])), "<All keys matched successfully>")
                self.train(bag, 10, 2)
                self.train(again, 10, 2)
                ours, theirs = bag.state_dict(), again.state_dict()
                self.assertEqual(ours.keys(), theirs.keys())
                for key in ours:
                    self.assertTrue(torch.equal(ours[key], theirs[key]), key)

    def test_state_dict_of_a_model(self):
        def model():
            return torch.nn.ModuleDict({"tables": ft.EmbeddingBagCollection(
                {"a": (30, 4), "b": (20, 8)}, max_keys=200), "head": torch.nn.Linear(12, 1)})
        one, other = model(), model()
        ids = {"a": torch.tensor([[1], [2]]), "b": torch.tensor([[3], [4]])}
        for _ in range(3):
            one["head"](torch.cat(list(one["tables"](ids).values()), 1)).sum().backward()
        state = one.state_dict()
        self.assertIn("tables.a.weight", state)
        other.load_state_dict(state)
        for key, value in other.state_dict().items():
            self.assertTrue(torch.equal(value, state[key]), key)
        del state["tables.b.state"]
        with self.assertRaisesRegex(RuntimeError, "tables.b.state"):
            other.load_state_dict(state)
        with self.assertRaisesRegex(RuntimeError, "is wanted"):
            bag_of().load_state_dict(bag_of(51).state_dict())

    def test_weights_alone(self):
        bag = bag_of()
        bag(torch.tensor([[1]])).sum().backward()
        with self.assertRaises(RuntimeError):
            bag.load_state_dict({"weight": torch.zeros(50, 4)})
        bag.load_state_dict({"weight": torch.ones(50, 4)}, strict=False)
        self.assertTrue(torch.equal(weights_of(bag), torch.ones(50, 4)))
        self.assertEqual(bag.state_dict()["step"].item(), 1)
        self.assertEqual(bag.state_dict()["state"].abs().sum().item(), 0)
        bag.load_state_dict({"step": torch.tensor(5)}, strict=False)
        self.assertTrue(torch.equal(weights_of(bag), torch.ones(50, 4)))
        self.assertEqual(bag.instance.first_step, 5)

    def test_file_of_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            base, more = os.path.join(folder, "base"), os.path.join(folder, "more")
            bag = bag_of(optimizer="adam", increments=True)
            self.train(bag, 5, 1)
            bag.save(base)
            self.train(bag, 5, 2)
            bag.save(more, increment=True)
            again = bag_of(optimizer="adam", saved=[base, more])
            self.train(bag, 5, 3)
            self.train(again, 5, 3)
            self.assertTrue(torch.equal(weights_of(bag), weights_of(again)))
            with self.assertRaisesRegex(RuntimeError, "saved=|first_step"):
                again.load_state_dict(bag_of(optimizer="adam").state_dict())

    def test_state_dict_while_batches_are_announced(self):
        bag = bag_of()
        batches = [torch.randint(0, 50, (4, 2)) for _ in range(20)]
        for at, ids in enumerate(ft.Loader(batches, bag, thread=True)):
            bag(ids).sum().backward()
            if at % 5 == 0:
                self.assertEqual(bag.state_dict()["step"], at + 1)


if __name__ == "__main__":
    unittest.main()
