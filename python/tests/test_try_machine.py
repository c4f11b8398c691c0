"""python/bench/try_machine.py, which strangers run, and its notebook: on host cores, and on the simulated GPUs of
tests/cuda/cuda_on_host.h where FRUGAL_LIBRARY names a library that has them."""
import ctypes
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench")
sys.path.insert(0, BENCH)

import notebook  # noqa: E402
import try_machine  # noqa: E402
import frugal_embedding  # noqa: E402
from frugal_embedding import _library  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
SCRIPT = os.path.join(BENCH, "try_machine.py")
SIMULATED = hasattr(_library.lib, "cuda_on_host_set_devices")
TINY = ["--rows", "500", "--dim", "4", "--keys", "64"]


def only_numpy(name):
    return (numpy, "") if name == "numpy" else (None, f"{name} is not there")


on_host = unittest.skipIf(SIMULATED, "this run is that of simulated GPUs")


class Simulated(try_machine.Gpus):
    """GPUs whose memory is the host's."""

    def __init__(self, count):
        self.lib, self.count = _library.lib, count
        self.lib.cuda_on_host_set_devices(count)

    def call(self, name, *arguments):
        assert getattr(self.lib, name)(*arguments) == 0, name

    def enter(self, ordinal):
        self.call("_Z13cudaSetDevicei", ordinal)

    def memory(self, ordinal):
        return 1 << 30, 1 << 30

    def name(self, ordinal):
        return f"simulated {ordinal}"

    def peers(self):
        return "none"

    def new(self, ordinal, size):
        self.enter(ordinal)
        address = ctypes.c_void_p()
        self.call("_Z10cudaMallocPPvm", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, ordinal, address):
        self.enter(ordinal)
        self.call("_Z8cudaFreePv", ctypes.c_void_p(address))

    def synchronize(self, ordinal):
        self.enter(ordinal)
        self.call("_Z21cudaDeviceSynchronizev")

    def stream(self, ordinal):
        self.enter(ordinal)
        made = ctypes.c_void_p()
        self.call("_Z25cudaStreamCreateWithFlagsPP11CUstream_stj", ctypes.byref(made), 1)
        return made.value

    def put(self, ordinal, address, data):
        ctypes.memmove(address, data, len(data))

    def get(self, ordinal, address, size):
        self.synchronize(ordinal)
        return ctypes.string_at(address, size)


class Tries(unittest.TestCase):
    def setUp(self):
        for name, value in (("STEPS", 3), ("KEYS", 40)):  # more than 32 of some keys
            patch = mock.patch.object(try_machine, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def main(self, *words):
        """Status, the JSON, and what was said."""
        said, printed = io.StringIO(), io.StringIO()
        with redirect_stderr(said), redirect_stdout(printed):
            status = try_machine.main(list(words))
        text = printed.getvalue()
        self.assertNotRegex(text, rf"\b{re.escape(socket.gethostname())}\b")
        self.assertNotRegex(text, r"/\w+/")
        self.assertLess(len(text), 3000)
        return status, json.loads(text) if text else None, said.getvalue()

    def few_cases(self):
        cases = list(try_machine.bit_cases(try_machine.Host()))[:2]
        patch = mock.patch.object(try_machine, "bit_cases", lambda place: cases)
        patch.start()
        self.addCleanup(patch.stop)

    def refused(self, text, *words):
        said = io.StringIO()
        with redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            try_machine.main(list(words))
        self.assertEqual(ended.exception.code, 2)
        self.assertRegex(said.getvalue(), text)


@on_host
class OnHost(Tries):
    def test_all_of_it(self):
        status, report, said = self.main("--minutes", "0.05", *TINY)
        self.assertEqual((status, report["failed"], report["cut"]), (0, [], ""), said)
        self.assertEqual(report["bits"]["differ"], 0)
        self.assertGreater(report["bits"]["same"], 0)
        self.assertRegex(report["devices"], "^host cores: .*libcuda|^host cores: .*GPU")
        self.assertIn("NO GPU", said)
        self.assertIn("attach this JSON to an issue", said)
        if numpy is None:
            self.assertRegex(" ".join(report["skipped"]), "steps: numpy cannot be imported.*pip install numpy")
            return
        ours = [row for row in report["steps"] if row[0] == "Frugal"]
        self.assertEqual([(row[1], row[3]) for row in ours[:2]], [(1, "uniform"), (1, "Zipf 0.99")])
        for _, devices, _, _, middle, least, most, millions in report["steps"]:
            self.assertTrue(least <= middle <= most)
            self.assertAlmostEqual(millions, 64 * devices / middle / 1e3, delta=0.05 * millions + 0.002)

    def test_each_case_has_the_bits_of_the_reference(self):
        status, report, said = self.main("--parts", "bits", "--host")
        self.assertEqual((status, report["bits"]["same"], report["bits"]["not_run"]), (0, 48, 0), said)

    def test_other_bits_are_found(self):
        """Another rounding, and another order of a sum."""
        for name, wrong in (("fma", lambda a, b, c: try_machine.f32(try_machine.f32(a * b) + c)),
                            ("noise", lambda seed, step, row, dim: [0x8000] * dim),
                            ("add_up", lambda parts: [try_machine.f32(sum(column)) for column in zip(*parts)])):
            with mock.patch.object(try_machine, name, wrong):
                status, report, said = self.main("--parts", "bits", "--host")
            self.assertEqual(status, 1)
            self.assertGreater(report["bits"]["differ"], 0, name)
            self.assertRegex(said, "DIFFERS: 1 device on host cores, .*(looks up in step|at the end)")

    def test_wrong_usage(self):
        for text, *words in (("minutes 0", "--minutes", "0"), ("at least 100", "--rows", "7"), ("dim 0", "--dim", "0"),
                             ("keys 0", "--keys", "0"), ("bits and steps", "--parts", "speed"), ("--fast", "--fast"),
                             ("invalid", "--minutes", "ten"), ("unrecognized", "a.whl", "b.whl")):
            self.refused(text, *words)

    def test_neither_package_nor_wheel(self):
        done = subprocess.run([sys.executable, "-S", "-E", SCRIPT], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "not installed(.*\n)*.*FRUGAL_BUILD_CUDA=1 pip install ./python .*nvcc")

    def test_a_wheel_that_pip_cannot_install(self):
        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(try_machine.main(["nothing-1-py3-none-any.whl"]), 1)
        self.assertRegex(said.getvalue(), "pip could not install the wheel")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_a_contender_that_fails(self):
        """Ours is a failure; another's, or that memory is missing, is no failure, and is said."""
        for error, status in ((ValueError("a value"), 1), (MemoryError("no memory"), 0)):
            with mock.patch.object(try_machine.Instances, "prepare", mock.Mock(side_effect=error)), \
                    mock.patch.object(try_machine, "module_of", only_numpy):
                found, report, said = self.main("--parts", "steps", "--minutes", "0.05", *TINY)
            self.assertEqual(found, status)
            self.assertRegex(said, f"{'FAILED' if status else 'SKIPPED'}: Frugal, 1 device, adagrad: .*{error}")
            self.assertEqual(len(report["failed"]), 4 * status)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_too_many_rows(self):
        status, report, said = self.main("--parts", "steps", "--rows", str(1 << 38))
        self.assertEqual(status, 1)
        self.assertRegex(report["failed"][0], "Give fewer --rows")

    def test_an_interrupt_keeps_what_was_measured(self):
        cases = [("bits", signal.SIGINT), ("bits", signal.SIGHUP)] + [("steps", signal.SIGTERM)] * (numpy is not None)
        for part, by in cases:
            started = subprocess.Popen([sys.executable, "-u", SCRIPT, "--parts", part, "--minutes", "0.3", *TINY],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not any(line.startswith(("bits: ", "Frugal, 1 device, ")) for line in (started.stderr.readline(),)):
                self.assertIsNone(started.poll())
            time.sleep(0.3)
            started.send_signal(by)
            printed, said = started.communicate(timeout=60)
            self.assertEqual(started.returncode, 1, said)
            report = json.loads(printed)
            self.assertRegex(report["cut"], "^ended from outside in (bits|Frugal|PyTorch)")
            self.assertTrue(report["bits"]["same"] if part == "bits" else report["steps"])

    def test_what_hangs_is_cut(self):
        report, ended = {"doing": "a call", "bits": {"same": 3}}, []
        said, printed = io.StringIO(), io.StringIO()
        with redirect_stderr(said), redirect_stdout(printed), mock.patch.object(os, "_exit", ended.append):
            try_machine.watch(report, "", 0.01).join()
        self.assertEqual(ended, [1])
        self.assertEqual(json.loads(printed.getvalue()), {"bits": {"same": 3}, "cut": "still in a call after 0 s"})

    def test_no_names(self):
        found = try_machine.without_names(f"{socket.gethostname()}: /home/somebody/x.py and ~/a/b: 1/2, a/b")
        self.assertEqual(found, "NAME: PATH and PATH: 1/2, a/b")
        with mock.patch.object(socket, "gethostname", lambda: "box.example.org"), \
                mock.patch.object(try_machine.pwd, "getpwuid", lambda _: mock.Mock(pw_name="mary-ann")), \
                mock.patch.dict(os.environ, {"USER": "", "LOGNAME": "", "HOME": "/home/mary ann"}):
            for text, expected in (("box: mary-ann, mary-annex", "NAME: NAME, mary-annex"),
                                   ("/data: full", "PATH: full"),
                                   ("No such file: '/home/m a/x y.so'", "No such file: 'PATH'"),
                                   ("/home/mary ann/x.so: no", "PATH: no"), ("venv/lib/x.so, ~mary/x", "PATH, PATH"),
                                   ("3 keys/s of 1/2 / 4", "3 keys/s of 1/2 / 4")):
                self.assertEqual(try_machine.without_names(text), expected)

    def test_an_output_that_cannot_be_written(self):
        """Before the minutes are spent; and if it fails after them, the JSON is printed."""
        with tempfile.TemporaryDirectory(prefix="a b") as folder:
            for output in (folder, os.path.join(folder, "none", "x.json")):
                self.refused("can be written to", "--output", output)
            there = os.path.join(folder, "-x.json")
            with open(there, "w") as file:
                file.write("before")
            words = ("--parts", "bits", "--output", there)
            self.few_cases()
            with mock.patch.object(os, "replace", mock.Mock(side_effect=OSError(28, "No space left on device"))):
                status, report, said = self.main(*words)
            self.assertEqual((status, report["bits"]["differ"]), (0, 0))
            self.assertIn("No space left on device; the JSON is printed instead", said)
            with open(there) as file:
                self.assertEqual(file.read(), "before")
            self.assertEqual(self.main(*words)[:2], (0, None))
            with open(there) as file:
                self.assertEqual(json.load(file)["bits"]["differ"], 0)
            self.assertEqual(os.listdir(folder), ["-x.json"])

    def test_a_stdout_that_takes_nothing(self):
        self.few_cases()
        with open("/dev/full", "w") as full:
            for stdout in (None, full):
                said = io.StringIO()
                with mock.patch.object(sys, "stdout", stdout), redirect_stderr(said):
                    self.assertEqual(try_machine.main(["--parts", "bits"]), 1)
                self.assertRegex(said.getvalue(), "the JSON cannot be printed: .*--output")
            with self.assertRaises(OSError):
                full.flush()
            os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # what it still has goes there

    def test_a_fault_of_its_own_keeps_what_was_measured(self):
        with mock.patch.object(try_machine, "measure", mock.Mock(side_effect=RuntimeError("a fault"))):
            self.few_cases()
            status, report, said = self.main()
        self.assertEqual((status, report["bits"]["differ"]), (1, 0))
        self.assertRegex(report["failed"][0], "RuntimeError: a fault$")
        self.assertIn("Traceback", said)

    def test_cases_that_a_cut_leaves_out_are_counted(self):
        tried = []

        def some(*_):
            tried.append(1)
            if len(tried) > 5:
                raise KeyboardInterrupt
            return ""
        with mock.patch.object(try_machine, "difference", some):
            status, report, said = self.main("--parts", "bits", "--host")
        self.assertEqual((status, report["bits"]["same"], report["bits"]["not_run"]), (1, 5, 43))

    def test_a_wheel_into_a_python_that_has_loaded_another(self):
        with mock.patch.object(try_machine, "install"):
            self.assertRaisesRegex(try_machine.Failed, "restart the kernel", try_machine.package_of, "new.whl")

    def test_what_pip_refuses_in_the_python_of_a_system(self):
        done = mock.Mock(returncode=1, stdout="", stderr="error: externally-managed-environment\n")
        with mock.patch.object(subprocess, "run", lambda *_, **__: done), redirect_stderr(io.StringIO()):
            self.assertRaisesRegex(try_machine.Failed, "python3 -m venv", try_machine.install, "new.whl")

    def test_the_memory_of_a_container(self):
        free = try_machine.memory_free(())
        with tempfile.TemporaryDirectory() as folder:
            limits = [os.path.join(folder, name) for name in ("max", "number", "none")]
            for limit, text in zip(limits, ("max\n", "1000000\n")):
                with open(limit, "w") as file:
                    file.write(text)
            self.assertEqual(try_machine.memory_free(limits), 1000000)
            self.assertGreater(try_machine.memory_free(limits[::2]), free / 2)


@on_host
class Notebook(Tries):
    def test_it_is_made_of_the_script(self):
        with open(notebook.NOTEBOOK, encoding="utf-8") as file:
            self.assertEqual(file.read(), notebook.made(), "run python3 python/bench/notebook.py")

    def test_its_cells_run(self):
        made = json.loads(notebook.made())
        self.assertEqual((made["nbformat"], made["nbformat_minor"]), (4, 5))
        self.assertEqual(len({cell["id"] for cell in made["cells"]}), len(made["cells"]))
        cells = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
        self.assertTrue(cells[0].startswith("WHEEL = "))
        names, printed, before = {"__name__": "__main__"}, io.StringIO(), os.getcwd()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(printed), redirect_stderr(io.StringIO()):
            os.chdir(folder)
            try:
                for number, text in enumerate(cells):
                    exec(compile(text, f"cell {number}", "exec"), names)
                    if number == 0:
                        names.update(MINUTES=0.05, MORE=TINY)
                self.assertEqual(names["status"], 0)
                self.assertGreater(json.loads(printed.getvalue())["bits"]["same"], 0)
                printed.truncate(0)
                names["package_of"] = mock.Mock(side_effect=names["Failed"]("none"))
                exec(cells[-1], names)
                self.assertEqual((names["status"], printed.getvalue()), (1, ""), "the JSON of an earlier run")
            finally:
                os.chdir(before)


@unittest.skipUnless(SIMULATED, "FRUGAL_LIBRARY does not name a library with simulated GPUs")
class OnSimulatedGpus(Tries):
    def tried(self, count, *words):
        with mock.patch.object(try_machine, "Gpus", lambda: Simulated(count)):
            return self.main(*words)

    def test_bits(self):
        for count, devices in ((1, ["1 GPU", "2 devices on 1 GPU", "1 GPU and 1 device on host cores"]),
                               (2, ["1 GPU", "2 GPUs", "2 GPUs and 1 device on host cores"])):
            status, report, said = self.tried(count, "--parts", "bits")
            self.assertEqual((status, report["bits"]["not_run"], report["bits"]["devices"]), (0, 0, devices), said)
            self.assertEqual(report["bits"]["same"], 26 * 3)
            self.assertEqual([gpu["name"] for gpu in report["machine"]["gpus"]],
                             [f"simulated {at}" for at in range(count)])

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_steps(self):
        for count in (1, 2):
            with mock.patch.object(try_machine, "module_of", only_numpy):
                status, report, said = self.tried(count, "--parts", "steps", "--minutes", "0.05", *TINY)
            self.assertEqual((status, report["failed"]), (0, []), said)
            self.assertGreater(len(report["steps"]), 1)
            table = try_machine.Instances(frugal_embedding, Simulated(count), {**report["shape"], "optimizer": "adam"},
                                          count)
            middle, least, most, _ = try_machine.timed(table, try_machine.Draws(numpy, 500, 0.99), 64, 0)
            self.assertTrue(0 < least <= middle <= most)
            self.assertEqual(table.step, 3 + 3 + 4 * 3)  # the last steps of rounds are as few as may be
            table.f.verify()
            table.close()

    def test_other_bits_are_found(self):
        """A copy of gradients that comes to the wrong place."""
        with mock.patch.object(Simulated, "put", lambda *_: None):
            status, report, said = self.tried(1, "--parts", "bits")
        self.assertEqual(status, 1)
        self.assertRegex(said, "DIFFERS: 1 GPU, sgd, fp32, cache of 0 rows: ")


if __name__ == "__main__":
    unittest.main()
