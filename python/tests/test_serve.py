"""A Server: rows of a save in each version, from several threads and while they change; what is refused. With NumPy
and PyTorch, where they are there; on GPUs, where FRUGAL_LIBRARY has simulated ones (test_gpu.py says how)."""
import array
import os
import pickle
import tempfile
import threading
import unittest

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error
try:
    import torch
    import frugal_embedding.torch as ft
except ImportError:
    torch = None

import frugal_embedding as frugal
from frugal_embedding._library import lib
from frugal_embedding.serve import Server
from reference import pool

SIMULATED = hasattr(lib, "_Z21cudaStreamSynchronizeP11CUstream_st")


class World(unittest.TestCase):
    """A save of two tables, and an increment of it: `rows` of both steps, of all tables."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base, self.next = os.path.join(folder.name, "monday"), os.path.join(folder.name, "tuesday")
        self.file = os.path.join(folder.name, "file")
        self.rows = []
        with frugal.Frugal([frugal.Table(60, frugal.Normal()), frugal.Table(40, frugal.Normal())], 6, max_keys=30,
                           seed=1, increments=True) as f:
            f.attach_cpu()
            for path in (self.base, self.next):
                f.save(path, increment=path == self.next)
                self.rows.append([f.read_rows(np.arange(n), table) for table, n in ((0, 60), (1, 40))])
                step = f.next_steps()["update"]
                f.announce(0, step, {0: np.arange(9), 1: np.arange(5)})
                f.lookup(0, step)
                f.update(0, step, np.ones((14, 6), np.float32), lr=1.0)
                f.drain()


class Lookups(World):
    def test_rows_of_each_version(self):
        first = np.array([3, 59, 3, 0])
        with Server([self.base]) as server:
            self.assertEqual((server.rows, server.dim, server.rows_as), ((60, 40), 6, "fp32"))
            for step, files in ((0, [self.base]), (1, [self.base, self.next]), (0, [self.base])):
                server.refresh(files)
                self.assertEqual(server.step, step)
                both = {0: first, 1: np.array([39, 1], np.int32)}
                wanted = np.concatenate([self.rows[step][0][first], self.rows[step][1][[39, 1]]])
                self.assertTrue(np.array_equal(server.lookup(first), self.rows[step][0][first]))
                rows, of = server.lookup(both, with_step=True)
                self.assertTrue(np.array_equal(rows, wanted))
                self.assertEqual(of, step)
                out = np.empty((6, 6), np.float32)
                self.assertIs(server.lookup(both, out), out)
                self.assertTrue(np.array_equal(out, wanted))
                bounds, weights = np.array([0, 0, 4, 6], np.int32), np.arange(6, dtype=np.float32)
                for pooling, given in (("sum", None), ("mean", None), ("sum", weights)):
                    self.assertEqual(server.lookup_bags(both, bounds, given, pooling).tobytes(),
                                     pool(wanted, bounds, given, pooling == "mean").tobytes())
            self.assertEqual(server.info()["versions"], 4)

    def test_threads_see_whole_versions(self):
        with Server([self.base]) as server:
            wrong, running = [], threading.Event()
            running.set()

            def look():
                keys = np.arange(9)
                while running.is_set():
                    rows, step = server.lookup(keys, with_step=True)
                    if not np.array_equal(rows, self.rows[step][0][:9]):
                        wrong.append(step)
            threads = [threading.Thread(target=look) for _ in range(3)]
            for thread in threads:
                thread.start()
            for turn in range(20):
                server.refresh([self.base, self.next][:1 + turn % 2])
            running.clear()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_a_file_and_16_bits(self):
        with frugal.Frugal([frugal.Table(9, frugal.Normal())], 3, max_keys=9, file=self.file, rows_as="bf16") as f:
            wanted = f.read_rows(np.arange(9))
            with self.assertRaisesRegex(frugal.errors.FileError, "in use"):
                Server(file=self.file)
        with Server(file=self.file) as server:
            self.assertEqual(server.rows_as, "bf16")
            self.assertTrue(np.array_equal(server.lookup(array.array("q", range(9))), wanted))

    def test_what_is_refused(self):
        with self.assertRaisesRegex(frugal.errors.FileError, "none"):
            Server([self.base + "none"])
        with self.assertRaisesRegex(TypeError, r"Write \[path\]"):
            Server(self.base)
        for wrong in (lambda: Server(), lambda: Server([self.base], file=self.file)):
            with self.assertRaises(frugal.errors.ArgumentError):
                wrong()
        server = Server([self.base])
        for wrong, of in ((lambda: server.lookup(np.array([60])), frugal.errors.KeyRangeError),
                          (lambda: server.lookup({2: np.array([0])}), frugal.errors.TableError),
                          (lambda: server.lookup(np.array([0.5])), TypeError),
                          (lambda: server.lookup(np.array([1]), np.empty((2, 6), np.float32)), ValueError),
                          (lambda: server.lookup_bags(np.array([1]), np.array([0, 2], np.int32)),
                           frugal.errors.ArgumentError),
                          (lambda: pickle.dumps(server), TypeError),
                          (lambda: server.refresh([self.next]), frugal.errors.FileError)):
            with self.assertRaises(of):
                wrong()
        if not hasattr(lib, "frugal_cuda_serve_open"):
            with self.assertRaisesRegex(frugal.errors.DeviceError, "FRUGAL_BUILD_CUDA=1"):
                server.on_gpus()
        self.assertEqual(server.step, 0)
        server.close()
        server.close()
        with self.assertRaisesRegex(ValueError, r"is closed. Open another one: frugal_embedding.serve.Server\(saved\)"):
            server.lookup(np.array([1]))

    def test_a_forked_child_looks_up(self):
        with Server([self.base]) as server:
            child = os.fork()
            if child == 0:
                try:
                    right = np.array_equal(server.lookup(np.arange(60)), self.rows[0][0])
                    server.close()
                    os._exit(0 if right else 3)
                finally:
                    os._exit(4)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertTrue(np.array_equal(server.lookup(np.arange(60)), self.rows[0][0]))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Modules(World):
    def test_beside_frozen_modules_of_torch(self):
        server = Server([self.base])
        table = torch.from_numpy(self.rows[0][1])
        ids, offsets = torch.tensor([1, 7, 7, 39, 2]), torch.tensor([0, 2, 2])
        rows = ft.ServedEmbedding(server, 1)
        self.assertTrue(torch.equal(rows(ids.view(5, 1)), table[ids].view(5, 1, 6)))
        for mode in ("sum", "mean", "max"):
            for padding in (None, 7):
                ours = ft.ServedEmbeddingBag(server, 1, mode=mode, padding_idx=padding)
                theirs = torch.nn.EmbeddingBag.from_pretrained(table, mode=mode, padding_idx=padding)
                weights = (torch.rand(5),) if mode == "sum" else ()
                for given in ((ids, offsets), (ids[:4].view(2, 2),), (ids, offsets, *weights)):
                    self.assertTrue(torch.allclose(ours(*given), theirs(*given)), (mode, padding))
        server.refresh([self.base, self.next])
        self.assertTrue(torch.equal(rows(ids), torch.from_numpy(self.rows[1][1])[ids]))

    def test_as_a_module(self):
        model = torch.nn.Sequential(ft.ServedEmbeddingBag(Server([self.base])), torch.nn.Linear(6, 1))
        ids = torch.tensor([[1, 2]])
        model(ids).sum().backward()  # of the layers alone
        self.assertEqual(len(list(model.parameters())), 2)
        self.assertEqual(list(model.state_dict()), ["1.weight", "1.bias"])
        self.assertTrue(torch.equal(torch.compile(model, backend="eager")(ids), model(ids)))
        with self.assertRaisesRegex(TypeError, "float64 was asked for"):
            model.double()
        with self.assertRaisesRegex(ValueError, "gives no gradients"):
            ft.ServedEmbeddingBag(Server([self.base]), mode="sum")(ids, None, torch.ones(1, 2, requires_grad=True))
        with self.assertRaisesRegex(IndexError, "table 2: the server has 2"):
            ft.ServedEmbedding(Server([self.base]), 2)
        with self.assertRaisesRegex(TypeError, r"Write frugal_embedding.serve.Server\(\[path\]\)"):
            ft.ServedEmbedding(self.base)
        with self.assertRaisesRegex(RuntimeError, "with rows as its input"):
            torch.jit.trace(model, (ids,))

    def test_a_save_of_a_module(self):
        bag = ft.EmbeddingBag(20, 4, max_keys=9, mode="sum")
        bag(torch.tensor([[1, 2]])).sum().backward()
        path = self.base + " of a module"
        bag.save(path)
        served = ft.ServedEmbeddingBag(Server([path]), mode="sum")
        ids = torch.tensor([[1, 2], [19, 0]])
        self.assertTrue(torch.equal(served(ids), bag(ids).detach()))


@unittest.skipUnless(SIMULATED, "FRUGAL_LIBRARY does not name a library with simulated GPUs")
class OnGpus(World):
    def test_rows_of_each_version(self):
        from test_gpu import OnGpu, new_stream, synchronize, there
        stream, keys = new_stream(), np.array([3, 59, 3, 0])
        first, second = OnGpu(there(keys)), OnGpu(there(np.array([1, 39])))
        wanted = [np.concatenate([rows[0][keys], rows[1][[1, 39]]]) for rows in self.rows]
        with Server([self.base]) as server:
            for hottest, cache_rows in ((None, 0), (None, 70), ({0: np.array([3, 0]), 1: np.array([39])}, 3)):
                with server.on_gpus([0], hottest=hottest, cache_rows=cache_rows) as on:
                    for step in (0, 1):
                        server.refresh([self.base, self.next][:1 + step])
                        on.refresh()
                        out, pooled = np.zeros((6, 6), np.float32), np.zeros((2, 6), np.float32)
                        on.lookup(0, {0: first, 1: second}, OnGpu(out), stream)
                        on.lookup_bags(0, {0: first, 1: second}, OnGpu(np.array([0, 5, 6], np.int32)),
                                       out=OnGpu(pooled), stream=stream)
                        synchronize(stream)
                        self.assertTrue(np.array_equal(out, wanted[step]))
                        self.assertEqual(pooled.tobytes(), pool(wanted[step], [0, 5, 6]).tobytes())
                        on.place([(1, np.array([1, 2]))], 2)
                    with self.assertRaisesRegex(frugal.errors.DeviceError, "gpu 1: the server has 1"):
                        on.lookup(1, first, OnGpu(out))
                    on.lookup(0, OnGpu(there(np.array([60]))), OnGpu(np.ones((1, 6), np.float32)), stream)
                    synchronize(stream)
                    with self.assertRaises(frugal.errors.KeyRangeError):
                        on.lookup(0, first, OnGpu(np.zeros((4, 6), np.float32)), stream)
                server.refresh([self.base])
            left = server.on_gpus()
        with self.assertRaisesRegex(ValueError, "it is closed"):
            left.refresh()


if __name__ == "__main__":
    unittest.main()
