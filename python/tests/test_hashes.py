"""The same seed gives the same bits, whatever else is set: python/bench/hashes.py with a small table."""
import os
import subprocess
import sys
import unittest

try:
    import numpy  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "hashes.py")


class Hashes(unittest.TestCase):
    def test_all_of_frugals_are_equal(self):
        for optimizer, rows_as in (("adagrad", "fp32"), ("adam", "bf16")):
            run = subprocess.run([sys.executable, SCRIPT, "--rows=300", "--dim=4", "--batch=32", "--steps=24",
                                  "--check", f"--optimizer={optimizer}", f"--rows-as={rows_as}"],
                                 stdout=subprocess.PIPE, text=True)
            self.assertEqual(run.returncode, 0, run.stdout)
            hashes = [line.split()[0] for line in run.stdout.splitlines() if len(line) > 64 and line[64] == " "]
            self.assertGreaterEqual(len(hashes), 7, run.stdout)
            self.assertEqual(len(set(hashes)), 1, run.stdout)


if __name__ == "__main__":
    unittest.main()
