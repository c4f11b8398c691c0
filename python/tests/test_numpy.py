"""Instances with NumPy arrays, beside the sequential reference: rows that are looked up, and the drained table with its
state, have the reference's bits."""
import os
import tempfile
import threading
import unittest

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error

import frugal
from frugal.settings import KINDS
from reference import F, Reference, pool, spread


def all_rows(f):
    parts = [f.read_rows(np.arange(rows), table, state=True) for table, rows in enumerate(f.rows)]
    return np.concatenate([weights for weights, _ in parts]), np.concatenate([state for _, state in parts])


class Bits(unittest.TestCase):
    def same(self, f, reference, message=""):
        weights, state = all_rows(f)
        self.assertEqual(weights.tobytes(), reference.weights.tobytes(), message)
        self.assertEqual(state.tobytes(), reference.state.tobytes(), message)

    def train(self, kind, devices, bags, **settings):
        """30 steps of two tables; duplicate keys, more than 32 of one; int32 and int64; empty batches."""
        generator = np.random.default_rng(7)
        reduce = settings.pop("reduce", "sum")
        cache_rows = settings.pop("cache_rows", 16)
        lookahead = settings.pop("lookahead", 3)
        tables = [frugal.Table(40, frugal.Uniform(-1, 1)), frugal.Table(20, frugal.Normal(0, 0.5))]
        dim, steps = 5, 30
        with frugal.Frugal(tables, dim, max_keys=160, devices=devices, lookahead=lookahead, optimizer=kind, seed=3,
                           reduce=reduce, **settings) as f:
            for device in range(devices):
                f.attach_cpu(device, cache_rows=cache_rows)
            reference = Reference(all_rows(f)[0], kind, devices, reduce == "mean")
            batches = []
            for step in range(steps):
                of_step = []
                for device in range(devices):
                    n = [int(generator.integers(0, 70)) if step % 7 else 0 for _ in range(2)]
                    keys = [(generator.zipf(1.3, count) % rows).astype(np.int32 if step % 2 else np.int64)
                            for count, rows in zip(n, f.rows)]
                    of_step.append(keys)
                batches.append(of_step)
            ahead = 0
            for step in range(steps):
                while ahead < steps and ahead <= step + lookahead:
                    for device in range(devices):
                        f.announce(device, ahead, list(enumerate(batches[ahead][device])))
                    ahead += 1
                brought = []
                for device in range(devices):
                    first, second = batches[step][device]
                    rows = np.concatenate([first.astype(np.int64), second.astype(np.int64) + 40])
                    n = len(rows)
                    looked_up = f.lookup(device, step)
                    self.assertEqual(looked_up.tobytes(), reference.weights[rows].tobytes())
                    if step % 5 == 4:
                        f.update(device, step)
                        brought.append(None)
                        continue
                    lr = 0.05 * (1 + step % 3)
                    if bags:
                        offsets = np.unique(np.concatenate([[0, n], generator.integers(0, n + 1, 20)])).astype(np.int32)
                        weights = generator.standard_normal(n, F) if bags == "weights" else None
                        mean = bags == "mean"
                        pooled = f.lookup_bags(device, step, offsets, weights, "mean" if mean else "sum")
                        self.assertEqual(pooled.tobytes(), pool(looked_up, offsets, weights, mean).tobytes())
                        grads = generator.standard_normal(pooled.shape, F)
                        f.update(device, step, grads, lr, by_bag=True)
                        grads = spread(grads, offsets, weights, mean)
                    else:
                        grads = generator.standard_normal((n, dim), F)
                        f.update(device, step, grads, lr)
                    brought.append((rows, grads))
                reference.train(brought, 0.05 * (1 + step % 3))
            f.drain()
            f.verify()
            self.same(f, reference)
            self.assertEqual(np.array_equal(f.view(0), reference.weights[:40]), True)
            return all_rows(f)

    def test_optimizers(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.train(kind, 1, None)

    def test_devices(self):
        for reduce in ("sum", "mean"):
            with self.subTest(reduce):
                self.train("adagrad", 3, None, reduce=reduce)

    def test_bags(self):
        for bags in ("sum", "weights", "mean"):
            with self.subTest(bags):
                self.train("adagrad", 2, bags)

    def test_settings_that_the_bits_do_not_depend_on(self):
        for settings in (dict(workers=2), dict(lookahead=0), dict(cache_rows=0), dict(alone="staged", workers=1),
                         dict(alone="kept"), dict(mode="sync", workers=1)):
            with self.subTest(settings):
                self.train("rowwise_adagrad", 2, None, **settings)


class Arrays(unittest.TestCase):
    def open(self, **settings):
        f = frugal.Frugal([frugal.Table(100, frugal.Normal())], 4, max_keys=50, **settings)
        self.addCleanup(f.close)
        f.attach_cpu()
        return f

    def test_nothing_is_copied(self):
        matrix = np.arange(400, dtype=F).reshape(100, 4)
        f = frugal.Frugal([100], 4, max_keys=50, weights=matrix)
        f.attach_cpu()
        view = f.view()
        self.assertEqual(view.__array_interface__["data"][0], matrix.__array_interface__["data"][0])
        self.assertFalse(view.flags.writeable)
        out = np.empty((3, 4), F)
        f.announce(0, 0, np.array([5, 6, 5], np.uint64))
        self.assertIs(f.lookup(0, 0, out), out)
        self.assertEqual(out.tolist(), matrix[[5, 6, 5]].tolist())
        f.update(0, 0, np.ones((3, 4), F), lr=1.0)
        f.drain()
        self.assertEqual(matrix[5].tolist(), [18, 19, 20, 21])
        del view
        f.close()

    def test_an_array_by_dlpack_alone(self):
        class Foreign:  # as an array of another library: neither NumPy's nor a buffer
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **arguments):
                return self.array.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        f = self.open()
        out = np.empty((3, 4), F)
        f.announce(0, 0, Foreign(np.array([1, 2, 1])))
        f.lookup(0, 0, Foreign(out))
        self.assertEqual(out.tobytes(), np.ascontiguousarray(f.view()[[1, 2, 1]]).tobytes())
        f.update(0, 0, Foreign(np.ones((3, 4), F)), lr=0.5)
        with self.assertRaisesRegex(TypeError, "DLPack type"):
            f.announce(0, 1, Foreign(np.array([1.0])))
        f.drain()
        rows = f.read_rows(np.arange(100))
        odd = np.frombuffer(bytearray(b"x" + np.array([4, 2, 0]).tobytes()), np.uint8)[1:].view(np.int64)
        same = np.lib.stride_tricks.as_strided(np.array([3]), (3,), (0,))
        for gaps in (np.arange(6)[::2], np.arange(6)[::-2], same, odd):
            for keys in (Foreign(gaps), gaps):  # keys are copied anyway
                self.assertEqual(f.read_rows(keys).tobytes(), rows[gaps].tobytes())
        f.announce(0, 1, Foreign(np.arange(6)[::2]))
        self.assertEqual(f.lookup(0, 1).tobytes(), rows[::2][:3].tobytes())
        with self.assertRaisesRegex(ValueError, "contiguous"):
            f.update(0, 1, Foreign(np.ones((6, 4), F)[::2]), lr=0.5)
        with self.assertRaisesRegex(ValueError, "multiple of 4 bytes"):
            f.update(0, 1, np.zeros(49, np.uint8)[1:].view(F).reshape(3, 4), lr=0.5)
        f.update(0, 1)

        class OnGpu(Foreign):
            def __dlpack_device__(self):
                return (2, 1)
        with self.assertRaisesRegex(ValueError, r"host memory is wanted; DLPack device \(2, 1\)"):
            f.announce(0, 2, OnGpu(np.array([1])))

    def test_an_export_that_is_a_copy_lives_until_it_is_read(self):
        class Copy:  # DLPack allows it: the copy lives as long as its capsule
            def __init__(self, of):
                self.of = of

            def __dlpack__(self, **options):
                return self.of.copy().__dlpack__(**options)

            def __dlpack_device__(self):
                return self.of.__dlpack_device__()
        n = 20_000
        with frugal.Frugal([n], 64, max_keys=n, optimizer="sgd") as f:
            f.attach_cpu()
            f.announce(0, 0, Copy(np.arange(n)))
            f.lookup(0, 0)
            f.update(0, 0, Copy(np.ones((n, 64), np.float32)), lr=1.0)
            f.drain()
            self.assertTrue((f.view() == -1).all())

    def test_an_array_by_dlpack_that_is_read_only(self):
        class Constant:  # as of JAX
            def __init__(self, of):
                of.flags.writeable = False
                self.of = of

            def __dlpack__(self, **options):
                return self.of.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.of.__dlpack_device__()
        f = self.open()
        f.announce(0, 0, np.arange(3))
        with self.assertRaises((ValueError, BufferError)):
            f.lookup(0, 0, Constant(np.zeros((3, 4), np.float32)))

    def test_wrong_arrays_are_named(self):
        f = self.open()
        f.announce(0, 0, np.array([1, 2]))
        f.lookup(0, 0)
        with self.assertRaisesRegex(TypeError, "float32 is wanted; float64 of shape"):
            f.update(0, 0, np.ones((2, 4)), lr=0.1)
        with self.assertRaisesRegex(ValueError, r"shape \(2, 4\) is wanted"):
            f.update(0, 0, np.ones((3, 4), F), lr=0.1)
        with self.assertRaisesRegex(ValueError, "ascontiguousarray"):
            f.update(0, 0, np.ones((4, 2), F).T, lr=0.1)
        with self.assertRaisesRegex(TypeError, "no mask is read"):
            f.update(0, 0, np.ma.masked_array(np.ones((2, 4), F), mask=True), lr=0.1)
        with self.assertRaisesRegex(TypeError, "no mask is read"):
            f.read_rows(np.ma.masked_array([1, 2], mask=[False, True]))
        with self.assertRaisesRegex(ValueError, "by_bag"):
            f.update(0, 0, np.ones((2, 4), F), lr=0.1, by_bag=True)
        with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_ARGUMENT"):
            f.lookup_bags(0, 0, np.array([0, 1], np.int32))  # the last is not 2
        f.update(0, 0, np.ones((2, 4), F), lr=0.1)

    def test_write_rows_and_state(self):
        f = self.open(optimizer="adagrad")
        weights, state = np.full((2, 4), 3, F), np.full((2, 4), 9, F)
        f.write_rows(np.array([4, 8], np.int32), weights, state=state)
        read = f.read_rows(np.array([8]), state=True)
        self.assertEqual(read[0].tolist(), [[3] * 4])
        self.assertEqual(read[1].tolist(), [[9] * 4])

    def test_table_in_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table")
            with frugal.Frugal([frugal.Table(100, frugal.Normal())], 4, max_keys=50, file=path) as f:
                f.attach_cpu()
                f.announce(0, 0, np.array([1, 2]))
                f.lookup(0, 0)
                f.update(0, 0, np.ones((2, 4), F), lr=0.1)
                f.drain()
                before = f.read_rows(np.arange(100))
            with frugal.Frugal([100], 4, max_keys=50, file=path, first_step=1) as f:
                self.assertEqual(f.read_rows(np.arange(100)).tobytes(), before.tobytes())

    def test_increments(self):
        with tempfile.TemporaryDirectory() as folder:
            base, more = os.path.join(folder, "base"), os.path.join(folder, "more")
            f = self.open(increments=True)
            f.save(base)
            f.announce(0, 0, np.array([1, 2]))
            f.lookup(0, 0)
            f.update(0, 0, np.ones((2, 4), F), lr=0.1)
            f.drain()
            f.save(more, increment=True)
            with frugal.Frugal([100], 4, max_keys=50, saved=[base, more]) as again:
                self.assertEqual(again.view().tobytes(), f.view().tobytes())

    def test_cancel(self):
        f = self.open(lookahead=4)
        for step in range(4):
            f.announce(0, step, np.array([step]))
        f.cancel(1)
        f.lookup(0, 0)
        f.update(0, 0)
        f.announce(0, 1, np.array([50, 51]))
        self.assertEqual(f.lookup(0, 1).shape, (2, 4))

    def test_a_loader_in_a_thread(self):
        f = self.open(lookahead=3, optimizer="adagrad", workers=1)
        batches = np.random.default_rng(1).integers(0, 100, (200, 50))
        reference = Reference(f.read_rows(np.arange(100)), "adagrad")
        loader = threading.Thread(target=lambda: [f.announce(0, step, keys) for step, keys in enumerate(batches)])
        loader.start()
        grads = np.random.default_rng(2).standard_normal((50, 4), F)
        for step, keys in enumerate(batches):
            f.lookup(0, step)
            f.update(0, step, grads, lr=0.1)
            reference.train([(keys, grads)], 0.1)
        loader.join()
        f.drain()
        self.assertEqual(np.ascontiguousarray(f.view()).tobytes(), reference.weights.tobytes())


if __name__ == "__main__":
    unittest.main()
