"""Devices on GPUs, against the simulated GPU of tests/cuda/cuda_on_host.h: FRUGAL_LIBRARY names a library that is built
with it (tests/python/run does). Its GPU's memory is the host's, so arrays of the host stand for those of a GPU; what
PyTorch knows of streams is replaced by the simulation's. No statement about a real GPU, but the package's own code for
GPUs runs: attaching, streams, addresses, checks."""
import ctypes
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error

import frugal
from frugal._library import lib
from reference import F, Reference, pool, spread

if not frugal.has_cuda or not hasattr(lib, "_Z21cudaStreamSynchronizeP11CUstream_st"):
    raise unittest.SkipTest("FRUGAL_LIBRARY does not name a library with simulated GPUs")

synchronize = getattr(lib, "_Z21cudaStreamSynchronizeP11CUstream_st")
synchronize.argtypes = [ctypes.c_void_p]


def new_stream():
    stream = ctypes.c_void_p()
    create = getattr(lib, "_Z25cudaStreamCreateWithFlagsPP11CUstream_stj")
    assert create(ctypes.byref(stream), 1) == 0  # cudaStreamNonBlocking
    return stream.value


class OnGpu:
    """An array that says it is on GPU 0; it records the stream that it was asked for."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (2, 0)


class Instances(unittest.TestCase):
    def test_steps_have_the_bits_of_the_reference(self):
        for gate_on_stream in (False, True):
            generator = np.random.default_rng(5)
            stream = new_stream()
            with frugal.Frugal([frugal.Table(60, frugal.Normal())], 8, max_keys=100, optimizer="adagrad", workers=1,
                               lookahead=2) as f:
                f.attach_cuda(0, 0, cache_rows=16, stream=stream, gate_on_stream=gate_on_stream)
                reference = Reference(f.read_rows(np.arange(60)), "adagrad")
                for step in range(10):
                    keys = generator.integers(0, 60, 100).astype(np.int32 if step % 2 else np.int64)
                    f.announce(0, step, keys)
                    rows = np.empty((100, 8), F)
                    target = OnGpu(rows)
                    f.lookup(0, step, target)
                    synchronize(stream)
                    self.assertEqual(target.streams, [stream])
                    self.assertEqual(rows.tobytes(), reference.weights[keys].tobytes())
                    offsets = np.arange(0, 101, 5, dtype=np.int32)
                    pooled, grads = np.empty((20, 8), F), generator.standard_normal((20, 8), F)
                    f.lookup_bags(0, step, OnGpu(offsets), out=OnGpu(pooled))
                    synchronize(stream)
                    self.assertEqual(pooled.tobytes(), pool(rows, offsets).tobytes())
                    f.update(0, step, OnGpu(grads), 0.1, by_bag=True)
                    synchronize(stream)
                    reference.train([(keys, spread(grads, offsets))], 0.1)
                f.drain()
                self.assertEqual(np.ascontiguousarray(f.view()).tobytes(), reference.weights.tobytes())

    def test_arrays_of_the_wrong_memory(self):
        with frugal.Frugal([60], 8, max_keys=10) as f:
            f.attach_cuda()
            f.announce(0, 0, np.arange(3))
            with self.assertRaisesRegex(ValueError, "give `out`"):
                f.lookup(0, 0)
            with self.assertRaisesRegex(ValueError, "memory of GPU 0 is wanted"):
                f.lookup(0, 0, np.empty((3, 8), F))
            with self.assertRaisesRegex(frugal.FrugalError, "GPU|device"):
                f.attach_cuda(0, 99)


class Modules(unittest.TestCase):
    def test_a_module_on_a_stream(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        import frugal.torch
        from frugal.torch import modules

        class Stream:
            """As torch.cuda.Stream: of the simulated GPU."""

            def __init__(self, *_):
                self.cuda_stream = new_stream()

            def wait_stream(self, other):
                synchronize(other.cuda_stream)

        current = Stream()
        for gate_on_stream in (False, True):
            def open_on_gpu(store):
                store.instance = frugal.Frugal(store.tables, store.dim, **store.options)
                stream = Stream()
                store.instance.attach_cuda(0, 0, 16, "counted", stream.cuda_stream, gate_on_stream)
                store.sessions.append(modules.Session(store.instance, 0, torch.device("cpu"), [0], stream, []))
                store.sessions[0].group = store.groups[0]
            with mock.patch.object(modules._Store, "open", open_on_gpu), \
                    mock.patch.object(torch.cuda, "current_stream", lambda *_: current):
                bag = frugal.torch.EmbeddingBag(60, 8, max_keys=100, mode="mean", lr=0.1, workers=1)
                reference = Reference(bag.instance.read_rows(np.arange(60)), "adagrad")
                torch.manual_seed(2)
                batches = [torch.randint(0, 60, (20, 5)) for _ in range(10)]
                for ids in frugal.torch.Loader(batches, bag):
                    direction = torch.randn(20, 8)
                    out = bag(ids)
                    bounds = np.arange(0, 101, 5)
                    pooled = pool(reference.weights[ids.numpy().reshape(-1)], bounds, None, True)
                    self.assertEqual(out.detach().numpy().tobytes(), pooled.tobytes())
                    (out * direction).sum().backward()
                    grads = spread(direction.numpy(), bounds, None, True)
                    reference.train([(ids.numpy().reshape(-1), grads)], 0.1)
                bag.drain()
                self.assertEqual(np.array(bag.view()).tobytes(), reference.weights.tobytes())
                bag.close()


if __name__ == "__main__":
    unittest.main()
