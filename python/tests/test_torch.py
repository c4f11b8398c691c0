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

import frugal
import frugal.torch as ft
from frugal.torch import operators
from interrupts import Interrupt
from reference import Reference, pool, spread

warnings.filterwarnings("ignore", message=".*double precision floating point.*")
warnings.filterwarnings("ignore", message=".*[Ss]parse invariant.*")


def weights_of(bag, name=""):
    bag.drain()
    return torch.from_numpy(np.array(bag.view(name)))


def bag_of(rows=50, dim=4, **settings):
    settings = {"max_keys": 400, "mode": "sum", "lr": 0.1, "seed": 3, **settings}
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
        optimizer = ft.Optimizer(bags[1], lr=0.25)
        step()
        optimizer.param_groups[0]["lr"] = 0.125
        step()
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
        # Outputs of several runs are compared, and each run is another step: here all tokens are equal.
        session.token = lambda step: torch.tensor(0)
        plain_update = session.update
        session.update = lambda step, grads, by_bag: plain_update(session.open, grads, by_bag)
        anchor = torch.zeros(0, requires_grad=True)
        ids, offsets = torch.randint(0, 50, (12,)), torch.tensor([0, 3, 7, 12], dtype=torch.int32)
        for bounds, weights, train in ((offsets, None, True), (None, None, True), (offsets, torch.rand(12), True),
                                       (offsets, torch.rand(12, requires_grad=True), True), (offsets, None, False)):
            given = (anchor if train else anchor.detach(), [ids[:5], ids[5:]][:1] if bounds is None else [ids], bounds,
                     weights, session.id, 0, 4, train)
            results = torch.library.opcheck(operators.lookup, given)
            self.assertEqual(set(results.values()), {"SUCCESS"}, results)
        bag(ids, offsets.long()[:-1])
        session.update = lambda step, grads, by_bag: None  # a step has one update, and opcheck calls it several times
        for weights in (None, torch.rand(12)):
            bag(ids, offsets.long()[:-1], weights)
            given = (torch.ones(3, 4), torch.tensor(session.open), weights, session.id, True, weights is not None)
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

    def test_gradient_scale(self):
        one, other = bag_of(), bag_of()
        one(torch.tensor([[1]])).sum().backward()
        other.gradient_scale = 1 / 1024
        (other(torch.tensor([[1]])).sum() * 1024).backward()
        self.assertTrue(torch.equal(weights_of(one), weights_of(other)))

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
                ((torch.arange(12).view(3, 4).t(),), ValueError, "contiguous"),
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

    def test_gradients_that_are_not_finite(self):
        bag = bag_of()
        before = weights_of(bag)
        bag.skip_nonfinite = True
        for value in (float("inf"), float("nan")):
            (bag(torch.tensor([[1]])) * value).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag), before))
        bag.gradient_scale = 0.0
        bag(torch.tensor([[1]])).sum().backward()
        self.assertTrue(torch.equal(weights_of(bag), before))
        bag.gradient_scale = 0.5
        bag(torch.tensor([[1]])).sum().backward()
        self.assertFalse(torch.equal(weights_of(bag), before))

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

    def test_interrupts_at_each_place(self):
        """KeyboardInterrupt at the n-th place of a forward and its backward where Python looks for signals: the module
        can be used again, and the library has the steps that the module has."""
        bag, ids = bag_of(lookahead=3), torch.tensor([[1], [2]])
        for ahead in (False, True):
            for at in range(1, 1000):
                with Interrupt(at, os.sep + "frugal" + os.sep) as interrupt:
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
            self.assertGreater(at, 20)
            self.assertLess(at, 999)
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], bag._parts[0][1].step)


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
        bag, batches = bag_of(lookahead=5), self.batches()
        loader = iter(ft.Loader(batches, bag))
        next(loader)
        self.assertEqual(len(bag._parts[0][1].queue), 6)  # this step, and five more
        loader.close()
        self.assertEqual(len(bag._parts[0][1].queue), 0)
        self.assertEqual(len(ft.Loader(batches, bag)), 30)
        with self.assertRaisesRegex(ValueError, "0 to the modules' lookahead, 5"):
            ft.Loader(batches, bag, ahead=6)

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
            for ids in ft.Loader(batches, bag, read_only=True):
                bag(ids)
        bag.drain()
        self.assertEqual(bag.instance.stats()["steps"], 10)
        self.assertTrue(torch.equal(weights_of(bag), before))
        for ids in ft.Loader(batches, bag, read_only=True):
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
        for ids in ft.Loader(batches, bag):
            with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
                bag(ids + 1 - 2 * (ids > 40))
            bag(ids.clone()).sum().backward()  # equal keys are enough

    def test_a_failed_forward_can_be_repeated(self):
        batches = self.batches(12)
        bag, wrong = bag_of(), torch.tensor([0, 3, 2])
        check = ft.modules._check_offsets
        self.addCleanup(setattr, ft.modules, "_check_offsets", check)
        ft.modules._check_offsets = lambda *_: None  # so that the library refuses
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
                for ids in ft.Loader([made() for _ in range(3)], bag):
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
        for kind in ("sgd", "adagrad", "rowwise_adagrad", "adam"):
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
        bag.gradient_scale = 0.5
        with self.assertRaises(RuntimeError):
            bag.load_state_dict({"weight": torch.zeros(50, 4)})
        bag.load_state_dict({"weight": torch.ones(50, 4)}, strict=False)
        self.assertTrue(torch.equal(weights_of(bag), torch.ones(50, 4)))
        self.assertEqual(bag.state_dict()["step"].item(), 1)
        self.assertEqual(bag.state_dict()["state"].abs().sum().item(), 0)
        bag.load_state_dict({"step": torch.tensor(5)}, strict=False)
        self.assertTrue(torch.equal(weights_of(bag), torch.ones(50, 4)))
        self.assertEqual(bag.instance.first_step, 5)
        self.assertEqual(bag.gradient_scale, 0.5)

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
