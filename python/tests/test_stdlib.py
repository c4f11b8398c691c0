"""The package with Python's own library alone: no NumPy, no PyTorch."""
import array
import copy
import ctypes
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import frugal_embedding as frugal
from interrupts import Interrupt


class Plain(unittest.TestCase):
    def test_version(self):
        self.assertRegex(frugal.__version__, r"^\d+\.\d+\.\d+$")

    def test_frugal_does_not_import_torch(self):
        code = "import frugal_embedding, sys; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_torch_is_asked_for_where_it_is_missing(self):
        code = ("import sys; sys.modules['torch'] = None\ntry:\n import frugal_embedding.torch\n"
                "except ImportError as error:\n assert 'pip install torch' in str(error)\nelse:\n raise SystemExit(1)")
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_step_with_arrays_of_the_standard_library(self):
        with frugal.Frugal([10], dim=4, max_keys=8, optimizer="sgd") as f:
            f.attach_cpu()
            keys = array.array("q", [3, 7, 3])
            f.announce(0, 0, keys)
            rows = f.lookup(0, 0)
            self.assertEqual(tuple(memoryview(rows).shape), (3, 4))
            grads = memoryview(array.array("f", [1.0] * 12)).cast("B").cast("f", (3, 4))
            f.update(0, 0, grads, lr=0.5)
            f.drain()
            view = memoryview(f.view())
            self.assertTrue(view.readonly)
            self.assertEqual(view.tolist()[3], [-1.0] * 4)  # two gradients of 1, times -0.5
            self.assertEqual(view.tolist()[7], [-0.5] * 4)
            self.assertEqual(view.tolist()[0], [0.0] * 4)
            self.assertEqual(memoryview(f.read_rows(keys)).tolist()[1], [-0.5] * 4)
            del view
            self.assertEqual(f.stats()["steps"], 1)

    def test_int32_keys(self):
        with frugal.Frugal([10, 10], dim=4, max_keys=8) as f:
            f.attach_cpu()
            f.announce(0, 0, {1: array.array("i", [3, 9])})
            f.lookup(0, 0)
            f.update(0, 0, (ctypes.c_float * 4 * 2)((1, 2, 3, 4), (5, 6, 7, 8)), lr=1.0)
            f.drain()
            self.assertEqual(memoryview(f.read_rows(array.array("i", [9]), table=1)).tolist()[0], [-5, -6, -7, -8])

    def test_errors_have_the_librarys_message_and_change_nothing(self):
        with frugal.Frugal([10], dim=4, max_keys=3) as f:
            f.attach_cpu()
            with self.assertRaisesRegex(frugal.FrugalError, "FRUGAL_ERR_KEY: .*key 10.*10 rows"):
                f.announce(0, 0, array.array("q", [10]))
            with self.assertRaises(IndexError):
                f.announce(0, 0, array.array("q", [-1]))
            with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_KEYS"):
                f.announce(0, 0, array.array("q", [1, 2, 3, 4]))
            with self.assertRaisesRegex(frugal.OrderError, "FRUGAL_ERR_ORDER"):
                f.announce(0, 5, array.array("q", [1]))
            with self.assertRaisesRegex(TypeError, "int64 or uint64 or int32 is wanted; format 'f'.*astype"):
                f.announce(0, 0, array.array("f", [1]))
            with self.assertRaisesRegex(TypeError, "numpy.array"):
                f.announce(0, 0, [1, 2])
            with self.assertRaisesRegex(frugal.DeviceError, "numbered from 0"):
                f.announce(1, 0, array.array("q", [1]))
            f.announce(0, 0, array.array("q", [1]))
            with self.assertRaisesRegex(ValueError, r"shape \(1, 4\) is wanted; one of shape \(2, 4\)"):
                f.lookup(0, 0, memoryview((ctypes.c_float * 4 * 2)()))
            with self.assertRaisesRegex(ValueError, "read-only"):
                f.lookup(0, 0, memoryview((ctypes.c_float * 4 * 1)()).toreadonly())
            f.lookup(0, 0)
            with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_ARGUMENT.*lr|lr"):
                f.update(0, 0, (ctypes.c_float * 4 * 1)(), lr=math.nan)
        with self.assertRaisesRegex(ValueError, "closed"):
            f.announce(0, 1, array.array("q", [1]))
        with self.assertRaisesRegex(ValueError, "one of p2f, sync"):
            frugal.Frugal([10], dim=4, max_keys=3, mode="fast")
        with self.assertRaisesRegex(ValueError, "FRUGAL_ERR_LOOKAHEAD"):
            frugal.Frugal([10], dim=4, max_keys=3, lookahead=16)

    def test_keys_with_gaps_are_copied(self):
        gaps = memoryview(array.array("q", [1, 2, 3, 4]))[::-2]
        with frugal.Frugal([frugal.Table(10, frugal.Uniform(1, 2))], dim=4, max_keys=3) as f:
            f.attach_cpu()
            f.announce(0, 0, gaps)
            wanted = memoryview(f.read_rows(array.array("q", [4, 2]))).tolist()
            self.assertEqual(memoryview(f.lookup(0, 0)).tolist(), wanted)
            odd = memoryview(bytearray(b"x" + array.array("q", [4, 2]).tobytes()))[1:].cast("q")
            self.assertEqual(memoryview(f.read_rows(odd)).tolist(), wanted)
            with self.assertRaisesRegex(ValueError, "contiguous"):  # what is written, or large, is not copied
                f.update(0, 0, memoryview((ctypes.c_float * 4 * 4)())[::-2], lr=1.0)

    def test_rows_of_16_bits(self):
        without = mock.patch.object(frugal._arrays, "numpy", None)
        without.start()
        self.addCleanup(without.stop)
        for rows_as, one_and_a_half in (("bf16", 0x3fc0), ("fp16", 0x3e00)):
            matrix = array.array("H", [one_and_a_half] * 12)
            with frugal.Frugal([4], dim=3, max_keys=3, rows_as=rows_as, rounding="nearest",
                               weights=memoryview(matrix).cast("B").cast("H", (4, 3))) as f:
                f.attach_cpu()
                self.assertEqual((f.rows_as, f.rounding), (rows_as, "nearest"))
                f.announce(0, 0, array.array("q", [1]))
                self.assertEqual(memoryview(f.lookup(0, 0)).tolist(), [[1.5] * 3])
                self.assertEqual(f.lookup(0, 0, dtype=rows_as).tolist(), [[one_and_a_half] * 3])
                self.assertEqual((f.view().format, f.view().tolist()), ("H", [[one_and_a_half] * 3] * 4))
                out = array.array("H", bytes(6))
                f.lookup(0, 0, memoryview(out).cast("B").cast("H", (1, 3)), dtype=rows_as)
                self.assertEqual(out.tolist(), [one_and_a_half] * 3)
                half = array.array("H", [0x3f00 if rows_as == "bf16" else 0x3800] * 3)
                grads = memoryview(half).cast("B").cast("H", (1, 3))
                for unsaid in (lambda: f.update(0, 0, grads, lr=1.0), lambda: f.lookup(0, 0, grads),
                               lambda: f.sum_squares(0, 0, grads)):
                    with self.assertRaisesRegex(TypeError, "bf16 or of fp16, .* give dtype='bf16' or dtype='fp16'"):
                        unsaid()
                self.assertEqual(f.sum_squares(0, 0, grads, dtype=rows_as), 0.75)
                f.update(0, 0, grads, lr=1.0, dtype=rows_as)
                f.drain()
                self.assertEqual(memoryview(f.read_rows(array.array("q", [0, 1]))).tolist(), [[1.5] * 3, [1.0] * 3])
            with self.assertRaisesRegex(TypeError, f"rows_as='{rows_as}': an array of .*float16.* wanted; format 'f'"):
                frugal.Frugal([4], dim=3, max_keys=3, rows_as=rows_as,
                              weights=memoryview(bytearray(48)).cast("f", (4, 3)))

    def test_gaps_between_rows(self):
        with frugal.Frugal([frugal.Table(10, frugal.Uniform(1, 2))], dim=4, max_keys=3) as f:
            f.attach_cpu()
            keys = array.array("q", [4, 2])
            before = memoryview(f.read_rows(keys)).tolist()
            f.announce(0, 0, keys)
            out = (ctypes.c_float * 4 * 4)()
            f.lookup(0, 0, memoryview(out)[::2])
            self.assertEqual([list(row) for row in out], [before[0], [0] * 4, before[1], [0] * 4])
            grads = (ctypes.c_float * 4 * 4)((1, 1, 1, 1), (9, 9, 9, 9), (2, 2, 2, 2), (9, 9, 9, 9))
            f.update(0, 0, memoryview(grads)[::2], lr=1.0)
            f.drain()
            for now, then, lost in zip(memoryview(f.read_rows(keys)).tolist(), before, (1, 2)):
                for one, other in zip(now, then):
                    self.assertAlmostEqual(one, other - lost, places=5)

    def test_floats_at_an_odd_address_are_refused(self):
        def odd(count):
            return memoryview(bytearray(4 * count + 1))[1:].cast("f", (count // 4, 4))
        for settings in (dict(weights=odd(40)), dict(tables=[frugal.Table(10, odd(40))]),
                         dict(weights=memoryview(bytearray(160)).cast("f", (10, 4)), state=odd(40))):
            with self.assertRaisesRegex(ValueError, "begins at a multiple of 4 bytes is wanted; the one given begins "
                                        "at 0x.*Copy it"):
                frugal.Frugal(**{**dict(tables=[10], dim=4, max_keys=3, optimizer="adagrad"), **settings})
        with frugal.Frugal([10], dim=4, max_keys=3) as f:
            f.attach_cpu()
            key = array.array("q", [1])
            for call in (lambda: f.read_rows(key, out=odd(4)), lambda: f.write_rows(key, odd(4)),
                         lambda: f.lookup(0, 0, odd(4)), lambda: f.update(0, 0, odd(4), 0.1),
                         lambda: f.sum_squares(0, 0, odd(4))):
                if f.next_steps()["announce"] == 0 and call.__code__.co_names[0] not in ("read_rows", "write_rows"):
                    f.announce(0, 0, key)
                with self.assertRaisesRegex(ValueError, "multiple of 4 bytes"):
                    call()

    def test_a_nul_in_a_path_or_a_name(self):
        with tempfile.TemporaryDirectory() as folder, frugal.Frugal([10], dim=4, max_keys=3) as f:
            path = os.path.join(folder, "table")
            f.trace_start()
            for call in (lambda: frugal.Frugal([10], dim=4, max_keys=3, file=path + "\0x"),
                         lambda: frugal.Frugal([10], dim=4, max_keys=3, file=os.fsencode(path + "\0x")),
                         lambda: frugal.Frugal([10], dim=4, max_keys=3, saved=[path + "\0x"]),
                         lambda: frugal.Frugal([10], dim=4, max_keys=3, name="run\0x", workers=1),
                         lambda: frugal.join("run\0x", 0), lambda: f.save(path + "\0x"),
                         lambda: f.trace_write(path + "\0x"), lambda: frugal.read_saved(path + "\0x"),
                         lambda: f.metrics("mine\0x")):
                with self.assertRaisesRegex(ValueError, "NUL|none of them 0"):
                    call()
            self.assertEqual(os.listdir(folder), [])
            for call in (lambda: f.save(3), lambda: frugal.Frugal([10], dim=4, max_keys=3, file=3)):
                with self.assertRaisesRegex(TypeError, "a path is wanted"):
                    call()

    def test_names_with_a_hyphen(self):
        for name in ("rowwise-adagrad", "rowwise_adagrad"):
            with frugal.Frugal([10], dim=4, max_keys=3, optimizer=name) as f:
                self.assertEqual((f.optimizer.kind, f.state_floats), ("rowwise_adagrad", 1))
        with self.assertRaisesRegex(ValueError, "one of sgd, adagrad, .* is wanted; 'Adam' was"):
            frugal.Optimizer("Adam")

    def test_messages_have_names(self):
        """The library numbers optimizers and tables."""
        tables = [frugal.Table(10, name="user"), frugal.Table(5, name="item")]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved")
            with frugal.Frugal(tables, dim=4, max_keys=3, optimizer="adam") as f:
                f.attach_cpu()
                for call in (lambda: f.announce(0, 0, {1: array.array("q", [7])}),
                             lambda: f.read_rows(array.array("q", [7]), table=1)):
                    with self.assertRaisesRegex(IndexError, r"table 1 \(item\)"):
                        call()
                with self.assertRaisesRegex(TypeError, r"keys of table 1 \(item\)"):
                    f.announce(0, 0, {1: array.array("f", [7])})
                f.save(path)
            with self.assertRaisesRegex(OSError, r"optimizer 1 \(adagrad\) are wanted.*optimizer 3 \(adam\)"):
                frugal.Frugal(tables, dim=4, max_keys=3, optimizer="adagrad", saved=[path])
            with self.assertRaisesRegex(OSError, r"table 1 \(item\) has 6 rows, and 5"):
                frugal.Frugal([tables[0], frugal.Table(6, name="item")], dim=4, max_keys=3, optimizer="adam",
                              saved=[path])

    def test_a_long_wait_is_told(self):
        with mock.patch.object(frugal.instance, "NOTICE_SECONDS", 0.05), \
                frugal.Frugal([3], dim=1, max_keys=3, devices=2, lookahead=1, stuck_seconds=0.2) as f:
            f.attach_cpu(0)
            f.attach_cpu(1)
            key = array.array("q", [1])
            f.announce(0, 0, key)
            with self.assertWarnsRegex(RuntimeWarning, "has waited for 0.05 s: lookup of step 0: device 1 has "
                                       r"announced its steps below 0 only.*finish\(1\)") as seen:
                with self.assertRaises(frugal.StuckError):
                    f.lookup(0, 0)
            self.assertEqual(len(seen.warnings), 1)
            f.announce(1, 0, key)
            f.announce(0, 1, key)
            f.announce(1, 1, key)
            with self.assertWarnsRegex(RuntimeWarning, "announce of step 2: device 0 has updated its steps below 0 "
                                       "only; lookahead is 1. Update"):
                with self.assertRaises(frugal.StuckError):
                    f.announce(0, 2, key)

    def test_a_forked_child_ends_without_a_trace(self):
        """What Python runs at the end of a child (finalizers, with blocks, exit handlers) neither hangs nor frees: not
        the instance, not that of a view that is all that is left of it, not shared workers; also while another thread
        of the parent is in a call."""
        code = """if True:
            import array, os, sys, threading, warnings
            import frugal_embedding as frugal
            workers = frugal.Workers(1)
            f = frugal.Frugal([10], dim=4, max_keys=3, workers=workers)
            left = frugal.Frugal([frugal.Table(10, frugal.Uniform(1, 2))], dim=4, max_keys=3, file=sys.argv[1]).view()
            held = threading.Event()
            def hold():  # as a thread that announces
                with f._announcing:
                    held.set()
                    release.wait()
            release = threading.Event()
            thread = threading.Thread(target=hold)
            thread.start()
            held.wait()
            warnings.simplefilter("ignore")  # of Python 3.12: it forks although there are threads
            child = os.fork()
            if child == 0:
                for call in (f.drain, f.stats, lambda: f.cancel(0), lambda: f.read_rows(array.array("q", [1]))):
                    try:
                        call()
                    except ValueError as error:
                        assert "parent of this process" in str(error), error
                    else:
                        os._exit(3)
                f.close()
                workers.close()
                del left, f, workers
                sys.exit(0)  # exit handlers run
            ended = os.waitpid(child, 0)[1]
            release.set()
            thread.join()
            assert ended == 0, ended
            try:
                frugal.Frugal([10], dim=4, max_keys=3, file=sys.argv[1])
            except OSError:
                pass  # the view still has it, with its lock
            else:
                raise SystemExit("the child has freed the parent's file")
            assert 1 <= memoryview(left).tolist()[3][0] <= 2
            f.drain()
            f.close()
            workers.close()
        """
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", code, os.path.join(folder, "table")], timeout=60,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_cannot_be_copied(self):
        with frugal.Workers(1) as workers, frugal.Frugal([10], dim=4, max_keys=3, workers=workers) as f:
            for one in (workers, f):
                for made in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "cannot be pickled or copied"):
                        made(one)

    def test_a_forked_child_has_no_instance(self):
        f = frugal.Frugal([10], dim=4, max_keys=3, workers=1)
        f.attach_cpu()
        child = os.fork()
        if child == 0:
            try:
                f.stats()
            except ValueError as error:
                f.close()
                del f
                os._exit("parent of this process" not in str(error))
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        f.announce(0, 0, array.array("q", [1]))
        f.lookup(0, 0)
        f.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            f.drain()

    def test_a_view_keeps_the_memory(self):
        f = frugal.Frugal([10], dim=4, max_keys=3)
        f.attach_cpu()
        view = f.view()
        with self.assertRaisesRegex(frugal.BusyError, "delete the view"):
            f.close()
        del view
        f.close()
        f.close()

    def test_a_view_outlives_its_instance(self):
        def table():
            return frugal.Frugal([frugal.Table(50_000, frugal.Uniform(1, 2))], dim=4, max_keys=3).view()
        view = memoryview(table())
        others = [bytearray(b"x" * 800_000) for _ in range(8)]  # take the memory, if it was freed
        self.assertTrue(all(1 <= value <= 2 for value in view.tolist()[7]))
        del others

    def test_a_view_that_a_with_leaves(self):
        with frugal.Frugal([frugal.Table(10, frugal.Uniform(1, 2))], dim=4, max_keys=3) as f:
            view = memoryview(f.view())
        with self.assertRaisesRegex(ValueError, "closed"):
            f.stats()
        self.assertTrue(all(1 <= value <= 2 for value in view.tolist()[9]))
        with self.assertRaises(ZeroDivisionError):  # and not BusyError
            with frugal.Frugal([10], dim=4, max_keys=3) as f:
                view = f.view()
                raise ZeroDivisionError
        with tempfile.TemporaryDirectory() as folder:  # the last view frees: the lock of the file is gone
            path = os.path.join(folder, "table")
            with frugal.Frugal([10], dim=4, max_keys=3, file=path) as f:
                view = f.view()
            with self.assertRaises(OSError):
                frugal.Frugal([10], dim=4, max_keys=3, file=path)
            del view
            frugal.Frugal([10], dim=4, max_keys=3, file=path).close()

    def test_close_while_other_threads_are_in_calls(self):
        keys, grads = array.array("q", range(2000)), (ctypes.c_float * 16 * 2000)()
        for _ in range(12):
            f = frugal.Frugal([2000], dim=16, max_keys=2000, lookahead=2, workers=1, optimizer="adam")
            f.attach_cpu()
            ended = []

            def train():
                step = 0
                try:
                    while True:
                        f.announce(0, step, keys)
                        f.lookup(0, step)
                        f.update(0, step, grads, lr=0.1)
                        step += 1
                        started.set()
                except (ValueError, frugal.Stopped) as error:
                    ended.append(error)
            started = threading.Event()
            thread = threading.Thread(target=train)
            thread.start()
            started.wait()
            f.close()
            thread.join()
            self.assertEqual(len(ended), 1)
            with self.assertRaisesRegex(ValueError, "closed"):
                f.drain()

    def test_an_interrupt_at_each_bytecode(self):
        """KeyboardInterrupt at the n-th place of the package where Python looks for signals (after a call, a jump, the
        beginning of a function), for each n: what next_steps says is true, and training goes on with the bits of one
        that was never interrupted."""
        key, grad = array.array("q", [1]), (ctypes.c_float * 1 * 1)((1.0,))
        with frugal.Frugal([3], dim=1, max_keys=3, lookahead=1) as f:
            f.attach_cpu()
            step = 0
            for at in range(1, 2000):
                with Interrupt(at, "instance.py") as interrupt:
                    f.announce(0, step, key)
                    f.lookup(0, step)
                    f.update(0, step, grad, lr=1.0)
                following = f.next_steps()
                self.assertIn(list(following.values()), [[step + a, step + b, step + c] for a, b, c in
                                                         ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1))])
                if following["announce"] == step:
                    f.announce(0, step, key)
                if following["lookup"] == step:
                    f.lookup(0, step)
                if following["update"] == step:
                    f.update(0, step, grad, lr=1.0)
                step += 1
                if interrupt.left > 0:
                    break  # the calls have no more bytecodes
            self.assertGreater(at, 30)
            self.assertLess(at, 1999)
            f.drain()
            self.assertEqual(memoryview(f.read_rows(key)).tolist(), [[-float(step)]])
            self.assertEqual(f.stats()["steps"], step)
            for at in range(1, 300):  # cancel
                f.announce(0, step, key)
                with Interrupt(at, "instance.py") as interrupt:
                    f.cancel(step)
                if f.next_steps()["announce"] > step:
                    f.cancel(step)
                self.assertEqual(f.next_steps()["announce"], step)
                if interrupt.left > 0:
                    break

    def test_numbers_that_c_would_cut_off(self):
        plain = dict(dim=4, max_keys=4)
        for name, value in (("max_keys", 2**32 + 5), ("dim", 2**32 + 4), ("max_keys", -1), ("lookahead", -1),
                            ("workers", -1), ("devices", 2**32 + 1), ("staging_bytes", -1), ("seed", 2**64)):
            with self.assertRaisesRegex(ValueError, f"{name}: 0 to 2.* is wanted; {value} was given"):
                frugal.Frugal([10], **{**plain, name: value})
        with self.assertRaisesRegex(ValueError, "rows"):
            frugal.Frugal([-1], **plain)
        for name, value in (("max_keys", 3.0), ("dim", 4.5), ("lookahead", True), ("workers", True), ("devices", 1.5),
                            ("seed", "7"), ("first_step", 1.5), ("staging", None)):
            with self.assertRaisesRegex(TypeError, f"{name}: an integer is wanted"):
                frugal.Frugal([10], **{**plain, name: value})
        for name in ("defer", "sparse", "increments", "take_torn", "saved_settings_may_differ"):
            for value in ("no", 2, 0.5):
                with self.assertRaisesRegex(TypeError, f"{name}: True or False is wanted; {value!r} was given"):
                    frugal.Frugal([10], **{**plain, name: value})
        for rows in (10.7, True, "10"):
            with self.assertRaisesRegex(TypeError, "rows: an integer is wanted"):
                frugal.Frugal([rows], **plain)
            with self.assertRaisesRegex(TypeError, "rows: an integer is wanted"):
                frugal.Frugal([frugal.Table(rows)], **plain)
        for made in (lambda: frugal.Workers(1.5), lambda: frugal.Workers(True), lambda: frugal.Optimizer(frozen="no")
                     .struct(), lambda: frugal.Optimizer(eps="1e-8").struct()):
            with self.assertRaisesRegex(TypeError, "is wanted"):
                made()
        with self.assertRaisesRegex(ValueError, "eps: 1e-50 is 0 as a float of C, which stands for the default"):
            frugal.Frugal([10], **plain, optimizer=frugal.Optimizer("adam", eps=1e-50))
        for none in (0, 0.0):
            with self.assertRaisesRegex(ValueError, 'weight_decay: 0.* would be its default, 0.01; without .* "adam"'):
                frugal.Optimizer("adamw", weight_decay=none)
        self.assertEqual(frugal.Optimizer("adamw"), frugal.Optimizer("adamw", weight_decay=0.01))
        self.assertEqual(frugal.Optimizer("adam").weight_decay, 0)
        with self.assertRaisesRegex(TypeError, "saved=.path."):
            frugal.Frugal([10], saved="monday", **plain)
        workers = frugal.Workers(1)
        workers.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            frugal.Frugal([10], workers=workers, **plain)
        with frugal.Frugal([10], **plain) as f:
            with self.assertRaisesRegex(ValueError, "cache_rows"):
                f.attach_cpu(0, -1)
            with self.assertRaises(frugal.DeviceError):
                f.attach_cpu(2**32)
            f.attach_cpu()
            key = array.array("q", [1])
            for table in (-1, 1, 2**32):
                with self.assertRaisesRegex(frugal.TableError, "numbered from 0"):
                    f.announce(0, 0, {table: key})
                with self.assertRaisesRegex(frugal.TableError, "numbered from 0"):
                    f.read_rows(key, table=table)
                with self.assertRaisesRegex(frugal.TableError, "numbered from 0"):
                    f.view(table)
            for step in (-1, 2**64):
                with self.assertRaisesRegex(ValueError, "step"):
                    f.announce(0, step, key)
            row = (ctypes.c_float * 4 * 1)()
            for value in (1.5, 0.0, True, "0", None):
                for what, calls in (("step", (lambda: f.announce(0, value, key), lambda: f.lookup(0, value),
                                              lambda: f.lookup_bags(0, value, array.array("i", [0, 1])),
                                              lambda: f.update(0, value), lambda: f.update(0, value, row, 0.1),
                                              lambda: f.sum_squares(0, value, row), lambda: f.cancel(value))),
                                    ("device", (lambda: f.announce(value, 0, key), lambda: f.lookup(value, 0),
                                                lambda: f.update(value, 0), lambda: f.finish(value),
                                                lambda: f.next_steps(value), lambda: f.traffic(value),
                                                lambda: f.preload(value, key), lambda: f.attach_cpu(value))),
                                    ("table", (lambda: f.announce(0, 0, {value: key}), lambda: f.view(value),
                                               lambda: f.read_rows(key, table=value), lambda: f.rank_keys(1, value))),
                                    ("n:", (lambda: f.rank_keys(value),)),
                                    ("events", (lambda: f.trace_start(value),)),
                                    ("cache_rows", (lambda: f.attach_cpu(0, value),))):
                    for call in calls:
                        with self.assertRaisesRegex(TypeError, f"{what}.*an integer is wanted"):
                            call()
            self.assertEqual(f.next_steps(), {"announce": 0, "lookup": 0, "update": 0})

    def test_gradients_need_a_learning_rate_and_scale_0_brings_none(self):
        key, grad = array.array("q", [1]), (ctypes.c_float * 1 * 1)((1.0,))
        with frugal.Frugal([3], dim=1, max_keys=3) as f:
            f.attach_cpu()
            f.announce(0, 0, key)
            f.lookup(0, 0)
            with self.assertRaisesRegex(ValueError, "learning rate"):
                f.update(0, 0, grad)
            for step, scale in enumerate((0.0, 1e-50)):  # which is 0 as a float of C, and there stands for 1
                if step:
                    f.announce(0, step, key)
                    f.lookup(0, step)
                self.assertEqual(f.sum_squares(0, step, grad, scale=scale), 0.0)
                with self.assertRaisesRegex(TypeError, "by_bag: True or False"):
                    f.update(0, step, grad, lr=1.0, by_bag="no")
                f.update(0, step, grad, lr=1.0, scale=scale)
            f.drain()
            self.assertEqual(memoryview(f.read_rows(key)).tolist(), [[0.0]])

    def test_counts_traces_metrics_and_squares(self):
        key = array.array("q", [1, 5, 1])
        with tempfile.TemporaryDirectory() as folder, frugal.Frugal(
                [8], dim=2, max_keys=3, optimizer=frugal.Optimizer("sgd", clip_norm=1.0)) as f:
            f.attach_cpu(cache_rows=4)
            f.trace_start()
            f.announce(0, 0, key)
            f.lookup(0, 0)
            grads = (ctypes.c_float * 2 * 3)((1, 2), (3, 0), (2, 2))
            self.assertEqual(f.sum_squares(0, 0, grads), 9 + 16 + 9)
            f.update(0, 0, grads, lr=1.0)
            f.drain()
            rows = memoryview(f.read_rows(key)).tolist()
            self.assertAlmostEqual(rows[0][0], -0.6, places=6)  # (3, 4) has the norm 5, which is clipped to 1
            self.assertAlmostEqual(rows[1][0], -1.0, places=5)
            f.trace_stop()
            path = os.path.join(folder, "trace")
            f.trace_write(path)
            with open(path) as file:
                self.assertIn("traceEvents", file.read())
            self.assertIn('store="mine"', f.metrics("mine"))
            self.assertIn("# EOF", frugal.metrics([f]))
            f.set_counts(array.array("q", [2, 3]), array.array("Q", [2, 3]))
            self.assertEqual(list(f.get_counts(array.array("q", [3, 2]))), [3, 2])
            self.assertEqual(list(f.rank_keys(1)[0]), [3])

    def test_rows_apart(self):
        key = array.array("q", [1, 2])
        with frugal.Frugal([frugal.Table(4, frugal.Uniform(1, 2))], dim=2, max_keys=3) as f:
            f.attach_cpu()
            f.announce(0, 0, key)
            plain, apart = (ctypes.c_float * 4)(), (ctypes.c_float * 6)()
            f.lookup_address(0, 0, ctypes.addressof(plain))
            f.lookup_address(0, 0, ctypes.addressof(apart), stride=3)
            self.assertEqual(list(apart), [*plain[:2], 0.0, *plain[2:], 0.0])

    def test_save_and_restore(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved")
            settings = dict(dim=4, max_keys=8, optimizer="adam", seed=5)
            table = frugal.Table(10, frugal.Normal())
            with frugal.Frugal([table], **settings) as f:
                f.attach_cpu()
                f.announce(0, 0, array.array("q", [1, 2]))
                f.lookup(0, 0)
                f.update(0, 0, (ctypes.c_float * 4 * 2)((1, 2, 3, 4), (5, 6, 7, 8)), lr=1.0)
                f.drain()
                f.save(path)
                before = memoryview(f.read_rows(array.array("q", range(10)))).tolist()
            self.assertEqual(frugal.read_saved(path)["step"], 1)
            with frugal.Frugal([table], saved=[path], **settings) as f:
                self.assertEqual(f.first_step, 1)
                self.assertEqual(memoryview(f.read_rows(array.array("q", range(10)))).tolist(), before)
            with self.assertRaises(OSError):
                frugal.Frugal([table], saved=[path + "none"], **settings)

    def test_workers_are_shared(self):
        with frugal.Workers(2) as workers:
            a = frugal.Frugal([10], dim=4, max_keys=4, workers=workers)
            b = frugal.Frugal([10], dim=8, max_keys=4, workers=workers)
            with self.assertRaises(frugal.BusyError):
                workers.close()
            a.close()
            b.close()

    def test_several_devices_in_threads(self):
        steps, keys = 40, array.array("q", [0, 1, 2])
        with frugal.Frugal([3], dim=1, max_keys=3, devices=3, lookahead=4, stuck_seconds=60) as f:
            for device in range(3):
                f.attach_cpu(device, cache_rows=8)

            def train(device):
                ahead = 0
                for step in range(steps):
                    while ahead < steps and ahead <= step + 4:
                        f.announce(device, ahead, keys)
                        ahead += 1
                    rows = memoryview(f.lookup(device, step)).tolist()
                    seen.append((step, rows))
                    f.update(device, step, (ctypes.c_float * 1 * 3)((1.0,), (2.0,), (3.0,)), lr=1.0)

            seen = []
            threads = [threading.Thread(target=train, args=(device,)) for device in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            f.drain()
            for step, rows in seen:  # every lookup sees all updates of the steps before
                self.assertEqual(rows, [[-3.0 * step], [-6.0 * step], [-9.0 * step]])
            self.assertEqual(len(seen), 3 * steps)

    def test_data_of_different_length(self):
        key, grad = array.array("q", [0]), (ctypes.c_float * 1 * 1)((1.0,))
        with frugal.Frugal([3], dim=1, max_keys=3, devices=2, stuck_seconds=60) as f:
            def train(device, steps):
                f.attach_cpu(device)
                started.wait()
                for step in range(steps):
                    f.announce(device, step, key)
                    f.lookup(device, step)
                    f.update(device, step, grad, lr=1.0)
                f.finish(device)
            started = threading.Barrier(2)
            other = threading.Thread(target=train, args=(1, 5))
            other.start()
            train(0, 20)
            other.join()
            f.drain()
            self.assertEqual(memoryview(f.read_rows(key)).tolist(), [[-25.0]])
            with self.assertRaises(frugal.Finished):
                f.lookup(1, 5)

    def test_a_late_loader(self):
        with frugal.Frugal([3], dim=1, max_keys=3, stuck_seconds=60) as f:
            f.attach_cpu()
            late = threading.Timer(0.2, lambda: f.announce(0, 0, array.array("q", [2])))
            late.start()
            self.assertEqual(memoryview(f.lookup(0, 0)).tolist(), [[0.0]])
            late.join()

    def test_stuck_says_for_what(self):
        with frugal.Frugal([3], dim=1, max_keys=3, devices=2, stuck_seconds=0.2) as f:
            f.attach_cpu(0)
            f.attach_cpu(1)
            f.announce(0, 0, array.array("q", [1]))
            with self.assertRaisesRegex(frugal.StuckError, "device 1 has announced"):
                f.lookup(0, 0)
            f.announce(1, 0, array.array("q", [1]))
            f.lookup(0, 0)

    def test_stop_wakes_a_waiting_thread(self):
        with frugal.Frugal([3], dim=1, max_keys=3, devices=2) as f:
            f.attach_cpu(0)
            f.attach_cpu(1)
            f.announce(0, 0, array.array("q", [1]))
            stopper = threading.Timer(0.2, f.stop)
            stopper.start()
            with self.assertRaises(frugal.Stopped):
                f.lookup(0, 0)
            stopper.join()

    @unittest.skipUnless(threading.current_thread() is threading.main_thread(), "signals come to the main thread")
    def test_ctrl_c_ends_a_wait_and_changes_nothing(self):
        with frugal.Frugal([3], dim=1, max_keys=3, devices=2) as f:
            f.attach_cpu(0)
            f.attach_cpu(1)
            f.announce(0, 0, array.array("q", [1]))
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise

            def send():  # once the call waits
                while not f._waiters:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
            interrupt = threading.Thread(target=send)
            interrupt.start()
            since = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                f.lookup(0, 0)
            self.assertLess(time.monotonic() - since, 30)
            interrupt.join()
            f.announce(1, 0, array.array("q", [1]))
            self.assertEqual(memoryview(f.lookup(0, 0)).tolist(), [[0.0]])

    def test_a_library_of_another_version_is_refused(self):
        script = ("import importlib.util, os, sys, types\n"
                  "root = os.path.dirname(importlib.util.find_spec('frugal_embedding').origin)\n"
                  "package = sys.modules['frugal_embedding'] = types.ModuleType('frugal_embedding')\n"
                  "package.__path__ = [root]\n"
                  "import frugal_embedding._declarations as d\n"
                  "if sys.argv[1] == 'version': d.FRUGAL_VERSION += 1\n"
                  "else:\n"
                  "    import ctypes\n"
                  "    class frugal_keys(ctypes.Structure): _fields_ = [('table', ctypes.c_uint32)]\n"
                  "    d.STRUCTS += (frugal_keys,)\n"
                  "try:\n    import frugal_embedding._library\n"
                  "except ImportError as error:\n    assert sys.argv[2] in str(error), error\n"
                  "    assert 'pip install' in str(error)\n"
                  "else:\n    raise SystemExit('not refused')\n")
        for what, said in (("version", "declarations are of version"), ("size", "frugal_keys has 4 bytes")):
            subprocess.run([sys.executable, "-c", script, what, said], check=True)


if __name__ == "__main__":
    unittest.main()
