"""The blocks of code of python/README.md, run in their order, each with the names that a reader has by then, and what
must hold after it. A block that is not known here fails. The commands are run by tests/python/run."""
import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    if torch.cuda.is_available():
        import frugal_embedding
        ON_GPU = frugal_embedding.has_cuda
    else:
        ON_GPU = False
except ImportError:
    torch = None

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def blocks_of(path):
    """[(language, text)] of all blocks, also of those that are indented; ValueError, if one has no end."""
    found = re.findall(r"^ *```(\S*)\n(.*?)^ *```$", path.read_text(encoding="utf-8"), re.S | re.M)
    if 2 * len(found) != len(re.findall(r"^ *```", path.read_text(encoding="utf-8"), re.M)):
        raise ValueError(f"{path}: a block has no end, or something behind it")
    return found


def guesses_no_more(test, names):
    test.assertLess(float(names["loss"].detach()), 0.3)
    test.assertRegex(names["said"], r"^loss 0\.\d{3}\n$")


def has_settings(test, names):
    small = names["small"]
    before = small.weight.clone()
    small(torch.tensor([[1, 2]])).sum().backward()
    test.assertEqual((small.lr, small.instance.stats()["steps"]), (0.0005, 1))
    test.assertEqual((small.weight != before).any(1).nonzero().flatten().tolist(), [1, 2])


def is_driven(test, names):
    """100 steps, of which none was skipped: half a period of the cosine."""
    test.assertAlmostEqual(names["bag"].lr, 0.0)
    test.assertLess(float(names["loss"].detach()), 0.3)
    test.assertEqual(names["bag"].instance.stats()["steps"], 200)


def is_restored(test, names):
    test.assertTrue(torch.equal(names["again"].weight, names["bag"].weight))
    state, saved = names["again"].state_dict(), torch.load("checkpoint.pt")["bag"]
    test.assertEqual(set(state), set(saved))
    test.assertTrue(torch.equal(state["state"], saved["state"]))


def is_evaluated(test, names):
    right = ((names["guessed"] > 0.5) == (names["keys"][:, :1] % 2 == 1)).float().mean()
    test.assertGreater(float(right), 0.9)


def is_collected(test, names):
    test.assertEqual({name: tuple(rows.shape) for name, rows in names["pooled"].items()},
                     dict.fromkeys(("user", "item"), (512, 16)))
    test.assertLess(float(names["loss"].detach()), 0.3)
    state, loaded = names["tables"].state_dict(), names["loaded"].state_dict()
    test.assertEqual(set(state), set(loaded))
    for name, values in state.items():
        test.assertTrue(torch.equal(values, loaded[name]) if torch.is_tensor(values) else values == loaded[name], name)
    names["tables"].close()
    names["loaded"].close()


def is_large(test, names):
    rows = names["large"](torch.tensor([[0, 99_999 if not ON_GPU else 99_999_999]]))
    rows.sum().backward()
    names["large"].drain()  # a worker closes the step, which is counted then
    test.assertEqual((rows.shape[1], names["large"].instance.stats()["steps"]), (64, 1))
    names["large"].close()


def is_numpy(test, names):
    test.assertEqual((names["table"].shape, names["rows"].shape), ((100_000, 64), (4096, 64)))
    test.assertLess(abs(names["table"]).max(), 0.1)


def is_served(test, names):
    import numpy
    rows = names["bag"].weight
    test.assertTrue(numpy.array_equal(names["server"].lookup(numpy.arange(10)), rows[:10].numpy()))
    test.assertTrue(torch.equal(names["frozen"](torch.tensor([[1, 2]]))[0], rows[1] + rows[2]))
    test.assertEqual(names["answer"].shape, (10, 32))
    names["server"].close()


LARGE = (('"cuda:0"', '"cpu"'), ("100_000_000", "100_000"))  # without a GPU
# The first line of each block in Python, in their order; the check that follows it; what is replaced before it runs.
PYTHON = {
    "import torch": (guesses_no_more, ()),
    "from frugal_embedding.torch import EmbeddingBagCollection": (is_collected, ()),
    "import frugal_embedding": (has_settings, ()),
    "from frugal_embedding.torch import Optimizer": (is_driven, ()),
    'torch.save({"bag": bag.state_dict(), "rows": rows.state_dict(), "top": top.state_dict()}, "checkpoint.pt")':
        (is_restored, ()),
    "with torch.no_grad():": (is_evaluated, ()),
    "compiled = torch.compile(torch.nn.Sequential(bag, top), fullgraph=True)": (None, ()),  # Compiled
    "# train.py": (None, ()),  # Launched
    'large = EmbeddingBag(100_000_000, 64, max_keys=65536, device="cuda:0", cache_ratio=0.01, file="large", workers=1)':
        (is_large, LARGE),
    "import numpy": (is_numpy, ()),
    "from frugal_embedding.serve import Server": (is_served, ()),
}


def first_line(text):
    return text.splitlines()[0]


class Known(unittest.TestCase):

    def test_each_block_is_known(self):
        blocks = blocks_of(README)
        self.assertEqual({language for language, _ in blocks}, {"python", "sh"})
        self.assertEqual([first_line(text) for language, text in blocks if language == "python"], list(PYTHON))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Blocks(unittest.TestCase):

    def setUp(self):
        self.before = os.getcwd()
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(os.chdir, self.before)
        torch.manual_seed(1)

    def run_blocks(self, last=None):
        """Runs the blocks up to the one that begins with the line `last`, or all; returns their names."""
        names, ran = {}, 0
        for language, text in blocks_of(README):
            line = first_line(text)
            if language != "python":
                continue
            check, replaced = PYTHON[line]
            for old, new in () if ON_GPU else replaced:
                self.assertIn(old, text)
                text = text.replace(old, new)
            if check is not None:
                with self.subTest(block=line), contextlib.redirect_stdout(io.StringIO()) as said:
                    exec(compile(text, f"{README}: {line}", "exec"), names)
                    names["said"] = said.getvalue()
                    check(self, names)
                    ran += 1
            if line == last:
                return names
        self.assertEqual(ran, sum(check is not None for check, _ in PYTHON.values()))
        return names

    def test_they_run(self):
        self.run_blocks()

    @unittest.skipUnless(ON_GPU if torch else False, "a GPU, and the library with GPUs, are wanted for cuda:0; "
                                                     "test_they_run has that block on host cores")
    def test_on_a_gpu(self):
        self.run_blocks()


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Compiled(Blocks):
    """By aot_eager, because the C++ compiler takes minutes for what torch.compile generates by default."""

    def test_they_run(self):
        names = self.run_blocks("import torch")
        line = next(line for line in PYTHON if "torch.compile" in line)
        exec(line.replace("fullgraph=True", 'fullgraph=True, backend="aot_eager"'), names)
        keys, bag, top = names["keys"], names["bag"], names["top"]
        made = names["compiled"](keys)
        with torch.no_grad():
            self.assertTrue(torch.allclose(made, top(bag(keys)), atol=1e-5))
        before = bag.weight.clone()
        names["compiled"](keys).sum().backward()
        self.assertFalse(torch.equal(before, bag.weight))

    test_on_a_gpu = None


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Launched(Blocks):
    """train.py, by the command below it; and as several machines, which are processes of this one."""

    def launch(self, replaced=()):
        blocks = blocks_of(README)
        text = next(text for _, text in blocks if first_line(text) == "# train.py")
        command, = [line for language, block in blocks if language == "sh" for line in block.splitlines()
                    if line.startswith("torchrun")]
        for old, new in replaced:
            self.assertIn(old, text)
            text = text.replace(old, new)
        pathlib.Path("train.py").write_text(text, encoding="utf-8")
        self.assertTrue(command.endswith(" train.py"), command)
        subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                        *command.split()[1:]], check=True, timeout=300)

    def test_they_run(self):
        self.launch()
        from frugal_embedding import read_saved
        self.assertEqual(read_saved("trained")["step"], 20)

    def test_around_a_model_with_tables(self):
        self.launch((("top = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 1))",
                      "top = torch.nn.Linear(32, 1)\n"
                      "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(bag, top))"),
                     ("top(bag(ids))", "model(ids)")))
        self.assertTrue(os.path.exists("trained"))

    def test_as_machines(self):
        self.launch((("Loader, Processes", "Loader, Machines"), ("processes=Processes()", "machines=Machines()")))
        self.assertTrue(any(name.startswith("trained") for name in os.listdir(".")), os.listdir("."))

    test_on_a_gpu = None


if __name__ == "__main__":
    unittest.main()
