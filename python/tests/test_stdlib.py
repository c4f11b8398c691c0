"""The package with Python's own library alone: no NumPy, no PyTorch."""
import array
import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import frugal
from interrupts import Interrupt


class Plain(unittest.TestCase):
    def test_version(self):
        self.assertRegex(frugal.__version__, r"^\d+\.\d+\.\d+$")

    def test_the_example_of_the_readme(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "README.md")
        with open(path, encoding="utf-8") as file:
            blocks = re.findall("```python\n(.*?)```", file.read(), re.S)
        block = next(block for block in blocks if block.startswith("import frugal, numpy"))
        names = {"batches": [numpy.arange(9) + step for step in range(30)], "forward_and_backward": lambda rows: rows}
        exec(block.replace("1_000_000", "1_000"), names)
        self.assertEqual(names["table"].shape, (1000, 64))

    def test_frugal_does_not_import_torch(self):
        code = "import frugal, sys; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_torch_is_asked_for_where_it_is_missing(self):
        code = ("import sys; sys.modules['torch'] = None\ntry:\n import frugal.torch\n"
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
            with self.assertRaisesRegex(ValueError, "contiguous"):
                f.announce(0, 0, memoryview(array.array("q", [1, 2, 3, 4]))[::2])
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

    def test_gradients_need_a_learning_rate_and_scale_0_brings_none(self):
        key, grad = array.array("q", [1]), (ctypes.c_float * 1 * 1)((1.0,))
        with frugal.Frugal([3], dim=1, max_keys=3) as f:
            f.attach_cpu()
            f.announce(0, 0, key)
            f.lookup(0, 0)
            with self.assertRaisesRegex(ValueError, "learning rate"):
                f.update(0, 0, grad)
            f.update(0, 0, grad, lr=1.0, scale=0.0)
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
            f.age_counts()
            self.assertEqual(list(f.get_counts(array.array("q", [3, 2]))), [1, 1])

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
                  "root = os.path.dirname(importlib.util.find_spec('frugal').origin)\n"
                  "package = types.ModuleType('frugal'); package.__path__ = [root]; sys.modules['frugal'] = package\n"
                  "import frugal._declarations as d\n"
                  "if sys.argv[1] == 'version': d.FRUGAL_VERSION += 1\n"
                  "else:\n"
                  "    import ctypes\n"
                  "    class frugal_keys(ctypes.Structure): _fields_ = [('table', ctypes.c_uint32)]\n"
                  "    d.STRUCTS += (frugal_keys,)\n"
                  "try:\n    import frugal._library\n"
                  "except ImportError as error:\n    assert sys.argv[2] in str(error), error\n"
                  "    assert 'pip install' in str(error)\n"
                  "else:\n    raise SystemExit('not refused')\n")
        for what, said in (("version", "declarations are of version"), ("size", "frugal_keys has 4 bytes")):
            subprocess.run([sys.executable, "-c", script, what, said], check=True)


if __name__ == "__main__":
    unittest.main()
