"""python/bench/bench_python.py: rows of all contenders are compared with PyTorch's before anything is timed, and a
contender that trains something else ends the run. So it is with python/bench/serving.py, beside mapped rows."""
import io
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench")
sys.path.insert(0, BENCH)

import bench_python  # noqa: E402
import contenders  # noqa: E402
import memory  # noqa: E402
import serving  # noqa: E402
import steps  # noqa: E402

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
TINY = ["--rows", "300", "--dim", "4", "--keys", "40", "--loader", "none", "--rounds", "1", "--parts", "steps"]


class Checks(unittest.TestCase):
    def test_ours_agree_with_torch(self):
        for optimizer in OPTIMIZERS:
            for bag in (0, 1, 4):
                shape = contenders.Shape(300, 4, optimizer, 40, bag)
                names = ["frugal", "frugal/2", "frugal+loader", "frugal/2+loader", "frugal_bf16"]
                steps.check(names + (["torch"] if optimizer != "rowwise_adagrad" else []), shape)

    def test_another_training_is_found(self):
        """One batch less, a wrong gradient, a wrong optimizer: each is named."""
        train, use = contenders.Frugal.train, contenders.Frugal.use

        def less(table, batches):
            train(table, batches[1:])

        def other_gradient(table, keys, bag):
            use(table, keys, bag)
            table.gradient *= 1.01

        for optimizer in OPTIMIZERS:
            shape = contenders.Shape(300, 4, optimizer, 40, 2)
            with mock.patch.object(contenders.Frugal, "train", less), self.assertRaises(steps.Different) as raised:
                steps.check(["frugal"], shape)
            self.assertIn("rows that differ from PyTorch's", str(raised.exception))
        with mock.patch.object(contenders.Frugal, "use", other_gradient), self.assertRaises(steps.Different):
            steps.check(["frugal"], contenders.Shape(300, 4, "sgd", 40, 2))

    def test_a_difference_is_exit_status_1(self):
        def no_training(table, batches):
            pass

        with mock.patch.object(contenders.Torch, "train", no_training), redirect_stderr(io.StringIO()) as said, \
                mock.patch.object(sys, "argv", ["bench_python.py", "--contenders", "frugal", *TINY]):
            self.assertEqual(bench_python.main(), 1)
        self.assertIn("bench_python: frugal, ", said.getvalue())


class Keys(unittest.TestCase):
    def test_zipf(self):
        """With the exponent .99, the first of 1000 rows has 1 / sum of i ** -.99 of all keys."""
        drawn = steps.Draws("zipf.99", 1000).draw(100_000)
        counts = drawn.bincount(minlength=1000).sort(descending=True).values
        self.assertAlmostEqual(float(counts[0]) / 100_000, 1 / sum(i ** -0.99 for i in range(1, 1001)), delta=0.005)
        self.assertTrue(0 <= int(drawn.min()) and int(drawn.max()) < 1000)


class Memory(unittest.TestCase):
    def test_child(self):
        """Beside a table of 1.6 MB at least the keys and gradients of a step lie in memory, and less than 64 MB."""
        options = mock.Mock(keys=[4000], rows=100_000, dim=4, optimizers=["sgd"])
        skipped = []
        found = memory.run(options, ["frugal"], lambda text: None, lambda *reason: skipped.append(reason))
        if skipped:
            self.skipTest(str(skipped))
        self.assertEqual((found[0]["contender"], found[0]["table_bytes"]), ("frugal", 1_600_000))
        self.assertTrue(0 < found[0]["beside_bytes"] < 64 << 20, found)


class Ends(unittest.TestCase):
    def test_wrong_usage(self):
        for wrong in (["--keys", "0"], ["--keys", "x"], ["--bags", "-1"], ["--distributions", "normal"],
                      ["--contenders", "others"],
                      ["--optimizers", "sgd,other"], ["--devices", "33"], ["--loader", "7"], ["--parts", "all"]):
            with self.subTest(wrong), redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as raised, \
                    mock.patch.object(sys, "argv", ["bench_python.py", *wrong]):
                bench_python.main()
            self.assertEqual(raised.exception.code, 2)
            self.assertIn(wrong[0], said.getvalue())

    def test_serving(self):
        tiny = ["serving.py", "--json", "--rows", "500", "--dim", "4", "--keys", "40", "--seconds", "0.01", "--rounds",
                "1", "--threads", "2"]
        with mock.patch.object(sys, "argv", tiny), redirect_stdout(io.StringIO()) as said:
            serving.main()
        found = json.loads(said.getvalue())["requests"]
        self.assertEqual([(one["what"], one["contender"], one["threads"]) for one in found],
                         [("rows", "frugal", 2), ("rows", "mapped", 2), ("bags", "frugal", 2), ("bags", "mapped", 2),
                          ("rows", "refreshed", 2)])
        self.assertTrue(all(one["least"] > 0 for one in found))
        wrong = mock.patch.object(serving.frugal.serve.Server, "lookup", lambda server, keys: server.lookup_bags(
            keys, serving.np.arange(len(keys) + 1, dtype="int32")) + 1)
        with mock.patch.object(sys, "argv", tiny), wrong, self.assertRaisesRegex(SystemExit, "the rows differ"):
            serving.main()

    def test_interrupt(self):
        """Ctrl-C while tables are trained: no traceback, and exit status 130."""
        command = [sys.executable, "-W", "ignore", os.path.join(BENCH, "bench_python.py"), "--contenders", "frugal",
                   "--devices", "1,2", *TINY, "--rounds", "1000000"]
        def listen():  # a shell's background job ignores the signal, and so would its children
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen) as process:
            process.stderr.readline()  # a table is open
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=60)[1]
            finally:
                process.kill()
        self.assertEqual((process.returncode, said.splitlines()[-1]), (130, "interrupted"))
        self.assertNotIn("Traceback", said)


if __name__ == "__main__":
    unittest.main()
