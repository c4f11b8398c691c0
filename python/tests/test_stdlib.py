"""The package with Python's own library alone: no NumPy, no PyTorch."""
import array
import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import frugal


class Plain(unittest.TestCase):
    def test_version(self):
        self.assertRegex(frugal.__version__, r"^\d+\.\d+\.\d+$")

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
            interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
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
