"""The programs of examples/migration: little differs between a model before and after, and they learn the same."""
import difflib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "migration"
SIZE = ["--steps", "60", "--rows", "2000", "--batch", "256", "--dim", "8"]


def run(program):
    """What it prints: the losses, and the AUC."""
    done = subprocess.run([sys.executable, "-W", "ignore", str(FOLDER / program)] + SIZE, capture_output=True,
                          text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    last = re.search(r"AUC ([\d.]+); (\d+) MB at most; ([\d.]+) ms a step", done.stdout)
    assert last and int(last[2]) > 0 and float(last[3]) > 0, done.stdout
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)], float(last[1])


class Migration(unittest.TestCase):
    def learns_the_same(self, name):
        before, after = f"dlrm_{name}_before.py", f"dlrm_{name}_after.py"
        (losses, auc), (ours, our_auc) = run(before), run(after)
        self.assertEqual(len(losses), 2)
        for loss, our_loss in zip(losses, ours):
            self.assertAlmostEqual(loss, our_loss, delta=1e-4 * loss)
        self.assertAlmostEqual(auc, our_auc, delta=1e-3)
        self.assertGreater(our_auc, 0.6)  # there is something to learn, and it was learnt

    def test_little_differs(self):
        for name in ("torch", "torchrec"):
            texts = [(FOLDER / f"dlrm_{name}_{when}.py").read_text().splitlines() for when in ("before", "after")]
            changed = [line for line in difflib.ndiff(*texts) if line[0] in "+-"]
            self.assertTrue(5 < len(changed) < 40, changed)

    def test_of_torch(self):
        self.learns_the_same("torch")

    @unittest.skipUnless(importlib.util.find_spec("torchrec"), "no torchrec (pip install torchrec)")
    def test_of_torchrec(self):
        self.learns_the_same("torchrec")


if __name__ == "__main__":
    unittest.main()
