"""Instances with NumPy arrays, beside the sequential reference: rows that are looked up, and the drained table with its
state, have the reference's bits."""
import os
import sys
import tempfile
import threading
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error

import frugal_embedding as frugal
from frugal_embedding import _arrays
from frugal_embedding.settings import KINDS, TYPES
from reference import F, Reference, array_as, bfloat16, floats_of, pool, rounded, spread


def all_rows(f):
    parts = [f.read_rows(np.arange(rows), table, state=True) for table, rows in enumerate(f.rows)]
    return np.concatenate([weights for weights, _ in parts]), np.concatenate([state for _, state in parts])


class Bits(unittest.TestCase):
    def same(self, f, reference, message=""):
        weights, state = all_rows(f)
        self.assertEqual(weights.tobytes(), reference.weights.tobytes(), message)
        self.assertEqual(state.tobytes(), reference.state.tobytes(), message)

    def lookup(self, f, device, step, dtype):
        """The rows, as float32, looked up into an array of `dtype`; in every second step into a part of a wider one."""
        out = f.lookup(device, step, dtype=dtype)
        if step % 2:
            wide = np.zeros((len(out), f.dim + 3), out.dtype)
            part = wide[:, 1:1 + f.dim]
            self.assertIs(f.lookup(device, step, part), part)
            self.assertEqual(part.tobytes(), out.tobytes())
            self.assertFalse(wide[:, 0].any() or wide[:, 1 + f.dim:].any())
        return floats_of(out)

    def train(self, kind, devices, bags, **settings):
        """30 steps of two tables; duplicate keys, more than 32 of one; int32 and int64; empty batches. `dtypes`: of
        arrays, in turn."""
        generator = np.random.default_rng(7)
        dtypes = settings.pop("dtypes", ["fp32"])
        rows_as, rounding = settings.get("rows_as", "fp32"), settings.get("rounding", "stochastic")
        reduce = settings.pop("reduce", "sum")
        cache_rows = settings.pop("cache_rows", 16)
        lookahead = settings.pop("lookahead", 3)
        tables = [frugal.Table(40, frugal.Uniform(-1, 1)), frugal.Table(20, frugal.Normal(0, 0.5))]
        dim, steps = 5, 30
        with frugal.Frugal(tables, dim, max_keys=160, devices=devices, lookahead=lookahead, optimizer=kind, seed=3,
                           reduce=reduce, **settings) as f:
            for device in range(devices):
                f.attach_cpu(device, cache_rows=cache_rows)
            reference = Reference(all_rows(f)[0], kind, devices, reduce == "mean", 0, rows_as, rounding, 3)
            self.assertEqual(rounded(reference.weights, rows_as).tobytes(), reference.weights.tobytes())
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
                dtype = dtypes[step % len(dtypes)]
                for device in range(devices):
                    first, second = batches[step][device]
                    rows = np.concatenate([first.astype(np.int64), second.astype(np.int64) + 40])
                    n = len(rows)
                    looked_up = self.lookup(f, device, step, dtype)
                    self.assertEqual(looked_up.tobytes(), rounded(reference.weights[rows], dtype).tobytes())
                    if step % 5 == 4:
                        f.update(device, step)
                        brought.append(None)
                        continue
                    lr = 0.05 * (1 + step % 3)
                    if bags:
                        offsets = np.unique(np.concatenate([[0, n], generator.integers(0, n + 1, 20)])).astype(np.int32)
                        weights = generator.standard_normal(n, F) if bags == "weights" else None
                        mean = bags == "mean"
                        pooled = f.lookup_bags(device, step, offsets, weights, "mean" if mean else "sum", dtype=dtype)
                        wanted = pool(reference.weights[rows], offsets, weights, mean)
                        self.assertEqual(floats_of(pooled).tobytes(), rounded(wanted, dtype).tobytes())
                        grads = array_as(generator.standard_normal(pooled.shape, F), dtype, step % 2)
                        f.update(device, step, grads, lr, by_bag=True)
                        grads = spread(floats_of(grads), offsets, weights, mean)
                    else:
                        grads = array_as(generator.standard_normal((n, dim + step % 2), F), dtype, step % 2)[:, :dim]
                        f.update(device, step, grads, lr)
                        grads = floats_of(grads)
                    brought.append((rows, grads))
                reference.train(brought, 0.05 * (1 + step % 3))
            f.drain()
            f.verify()
            self.same(f, reference)
            self.assertEqual(floats_of(f.view(0)).tobytes(), reference.weights[:40].tobytes())
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


    def test_rows_of_16_bits(self):
        for rows_as in ("bf16", "fp16"):
            for rounding, kind, devices, bags, settings in (
                    ("stochastic", "sgd", 1, None, dict(cache_rows=0)),
                    ("stochastic", "adam", 1, "weights", dict(alone="kept")),
                    ("nearest", "adagrad", 2, "mean", dict(workers=1, alone="staged")),
                    ("nearest", "rowwise_adagrad", 1, None, {})):
                with self.subTest(rows_as=rows_as, rounding=rounding, kind=kind):
                    self.train(kind, devices, bags, rows_as=rows_as, rounding=rounding, dtypes=list(TYPES), **settings)

    def test_arrays_of_16_bits(self):
        for bags in (None, "weights"):
            with self.subTest(bags):
                self.train("adagrad", 2, bags, dtypes=["fp16", "fp32", "bf16"])

    def test_the_seed_decides_the_rounding(self):
        made = [self.train("adagrad", 1, None, rows_as="bf16", rounding=rounding, **settings)[0].tobytes()
                for rounding, settings in (("stochastic", {}), ("stochastic", dict(lookahead=0)), ("nearest", {}))]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])


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
            f.update(0, 1, Foreign(np.ones((3, 8), F)[:, ::2]), lr=0.5)
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
        with self.assertRaisesRegex(TypeError, "float32 or .* is wanted; float64 of shape"):
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


class Types(unittest.TestCase):
    """Arrays and tables of 16 bits, one call at a time."""

    def test_a_matrix_of_the_caller(self):
        values = np.arange(40, dtype=F).reshape(10, 4) / 8
        for rows_as, numpys_own in (("fp32", False), ("bf16", False), ("bf16", True), ("fp16", False)):
            with self.subTest(rows_as=rows_as, numpys_own=numpys_own):
                wide = np.zeros((10, 7), array_as(values, rows_as, numpys_own).dtype)
                matrix = wide[:, 2:6]
                matrix[...] = array_as(values, rows_as, numpys_own)
                state = np.zeros((10, 6), F)
                with frugal.Frugal([10], 4, max_keys=5, weights=matrix, state=state[:, 1:5], rows_as=rows_as,
                                   optimizer="adagrad") as f:
                    f.attach_cpu()
                    self.assertEqual(f.rows_as, rows_as)
                    view = f.view()
                    self.assertEqual((view.__array_interface__["data"][0], view.strides),
                                     (matrix.__array_interface__["data"][0], matrix.strides))
                    self.assertFalse(view.flags.writeable)
                    self.assertEqual(floats_of(view).tobytes(), values.tobytes())
                    self.assertEqual(f.read_rows(np.arange(10)).tobytes(), values.tobytes())
                    f.announce(0, 0, np.array([5]))
                    f.lookup(0, 0)
                    f.update(0, 0, np.ones((1, 4), F), lr=1.0)
                    f.drain()
                    self.assertEqual(floats_of(view)[5].tolist(), [1.5, 1.625, 1.75, 1.875])
                    self.assertEqual(state[5].tolist(), [0, 1, 1, 1, 1, 0])
                    self.assertFalse(wide[:, :2].any() or wide[:, 6:].any() or state[:, ::5].any())
                    del view

    def test_a_wrong_type_is_refused_and_both_are_named(self):
        def opened(rows_as, matrix):
            return lambda: frugal.Frugal([10], 4, max_keys=5, weights=matrix, rows_as=rows_as)
        of = {kind: array_as(np.zeros((10, 4), F), kind, kind == "bf16") for kind in TYPES}
        for rows_as, given, wanted, found in (
                ("bf16", "fp32", "bfloat16 or uint16", "float32"), ("bf16", "fp16", "bfloat16 or uint16", "float16"),
                ("fp16", "bf16", "float16", "uint16"), ("fp16", "fp32", "float16", "float32"),
                ("fp32", "fp16", "float32", "float16"), ("fp32", "bf16", "float32", "uint16")):
            with self.assertRaisesRegex(TypeError, rf"weights, with rows_as='{rows_as}': an array of {wanted} is "
                                        rf"wanted; {found} of shape \(10, 4\) was given"):
                opened(rows_as, of[given])()
        if bfloat16 is not None:
            with self.assertRaisesRegex(TypeError, "float16 is wanted; bfloat16 of"):
                opened("fp16", of["bf16"].view(bfloat16))()
        with self.assertRaisesRegex(TypeError, "Table.init: an array of float32 is wanted; float16"):
            frugal.Frugal([frugal.Table(10, of["fp16"])], 4, max_keys=5, rows_as="fp16")
        with self.assertRaisesRegex(ValueError, "rows_as: one of fp32, bf16, fp16 is wanted; 'float16' was given"):
            opened("float16", of["fp16"])()
        with self.assertRaisesRegex(ValueError, "rounding: one of stochastic, nearest is wanted; 'up' was given"):
            frugal.Frugal([10], 4, max_keys=5, rows_as="bf16", rounding="up")
        with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_ARGUMENT.*`rounding` is set"):
            frugal.Frugal([10], 4, max_keys=5, rounding="nearest")
        with frugal.Frugal([10], 4, max_keys=5, rows_as="bf16") as f:
            f.attach_cpu()
            f.announce(0, 0, np.arange(5))
            with self.assertRaisesRegex(TypeError, "lookup: out: an array of float16 is wanted; float32"):
                f.lookup(0, 0, np.empty((5, 4), F), dtype="fp16")
            with self.assertRaisesRegex(ValueError, "lookup: dtype: one of fp32, bf16, fp16"):
                f.lookup(0, 0, dtype="double")
            f.lookup(0, 0)
            with self.assertRaisesRegex(ValueError, "multiple of 2 bytes"):
                f.update(0, 0, np.zeros(41, np.uint8)[1:].view(np.float16).reshape(5, 4), lr=0.5)
            with self.assertRaisesRegex(ValueError, "contiguous rows that do not overlap"):
                f.update(0, 0, np.lib.stride_tricks.as_strided(np.zeros(20, F), (5, 4), (8, 4)), lr=0.5)
            for call in (f.read_rows, lambda keys, out: f.write_rows(keys, out)):
                with self.assertRaisesRegex(TypeError, "an array of float32 is wanted; float16"):
                    call(np.arange(5), out=np.zeros((5, 4), np.float16))

    def test_the_type_of_bf16_where_ml_dtypes_is_missing(self):
        found = []
        for missing in (False, True):
            _arrays._numpy_type.cache_clear()
            self.addCleanup(_arrays._numpy_type.cache_clear)
            with mock.patch.dict(sys.modules, {"ml_dtypes": None} if missing else {}), \
                    frugal.Frugal([frugal.Table(10, frugal.Normal())], 3, max_keys=5, rows_as="bf16") as f:
                f.attach_cpu()
                f.announce(0, 0, np.arange(5))
                rows = f.lookup(0, 0, dtype="bf16")
                self.assertEqual(rows.dtype, f.view().dtype)
                self.assertEqual(rows.tobytes(), f.view()[:5].tobytes())
                found.append(rows)
        self.assertEqual(found[0].dtype, np.uint16 if bfloat16 is None else bfloat16)
        self.assertEqual(found[1].dtype, np.uint16)
        self.assertEqual(found[0].tobytes(), found[1].tobytes())

    def test_rows_that_are_written_are_the_nearest(self):
        nan, inf = float("nan"), float("inf")
        given = [1 + 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65519.0, 65520.0, 2.0**-25, 2.0**-24, 3e38, 3.4e38, -nan, -inf,
                 -0.0]
        for rows_as, wanted in (
                ("bf16", [1.0, 1.0, 1 + 2**-6, 65536.0, 65536.0, 2.0**-25, 2.0**-24, 226 * 2.0**120, inf, nan, -inf,
                          -0.0]),
                ("fp16", [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 65504.0, inf, 0.0, 2.0**-24, inf, inf, nan, -inf, -0.0])):
            with frugal.Frugal([1], len(given), max_keys=1, rows_as=rows_as) as f:
                f.write_rows(np.array([0]), F([given]))
                self.assertEqual(str(f.read_rows(np.array([0]))[0].tolist()), str(wanted), rows_as)

    def test_saves_and_files(self):
        """A save is opened as another type, with a warning; a file is not. Both types are named."""
        def opened(**settings):
            return frugal.Frugal([frugal.Table(20, frugal.Normal() if "file" in settings else None)], 3, max_keys=5,
                                 **settings)
        with tempfile.TemporaryDirectory() as folder:
            base, more, file = (os.path.join(folder, name) for name in ("base", "more", "file"))
            with opened(file=file, rows_as="bf16", increments=True) as f:
                f.attach_cpu()
                f.save(base)
                f.announce(0, 0, np.arange(5))
                f.lookup(0, 0)
                f.update(0, 0, np.full((5, 3), 0.5, F), lr=1.0)
                f.drain()
                f.save(more, increment=True)
                rows = f.view().tobytes()
            self.assertEqual(len(rows), 20 * 3 * 2)
            saved = frugal.read_saved(more)
            self.assertEqual((saved["rows_as"], saved["rounding"]), (TYPES["bf16"], 0))
            with opened(saved=[base, more], rows_as="bf16") as f, opened(file=file, rows_as="bf16", first_step=1) as g:
                self.assertEqual((f.view().tobytes(), g.view().tobytes()), (rows, rows))
            for rows_as, said in (("fp32", "bf16.*fp32.*widened"), ("fp16", "bf16.*fp16.*rounded to the nearest")):
                with self.assertWarnsRegex(RuntimeWarning, said), opened(saved=[base, more], rows_as=rows_as) as f:
                    wanted = rounded(floats_of(np.frombuffer(rows, np.uint16)), rows_as)
                    self.assertEqual(f.read_rows(np.arange(20)).tobytes(), wanted.tobytes())
                with self.assertRaisesRegex(OSError, f"bf16.*{rows_as}|{rows_as}.*bf16"):
                    opened(file=file, first_step=1, rows_as=rows_as)

    def test_squares_of_gradients(self):
        with frugal.Frugal([10], 5, max_keys=6, rows_as="fp16") as f:
            f.attach_cpu()
            f.announce(0, 0, np.array([1, 2, 1, 3, 4, 9]))
            f.lookup(0, 0)
            of = F(np.random.default_rng(1).standard_normal((6, 5)))
            for dtype in TYPES:
                grads = array_as(of, dtype)
                self.assertEqual(f.sum_squares(0, 0, grads), f.sum_squares(0, 0, floats_of(grads)))


if __name__ == "__main__":
    unittest.main()
