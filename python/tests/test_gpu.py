"""Devices on GPUs, against the simulated GPU of tests/cuda/cuda_on_host.h: FRUGAL_LIBRARY names a library that is built
with it (tests/python/run does). Its GPU's memory is the host's, so arrays of the host stand for those of a GPU, except
keys, of whose memory the library asks; what PyTorch knows of streams is replaced by the simulation's. No statement
about a real GPU, but the package's own code for GPUs runs: attaching, streams, addresses, checks."""
import ctypes
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error

import frugal_embedding as frugal
from frugal_embedding._library import lib
from reference import F, Reference, array_as, floats_of, pool, rounded, spread

if not frugal.has_cuda or not hasattr(lib, "_Z21cudaStreamSynchronizeP11CUstream_st"):
    raise unittest.SkipTest("FRUGAL_LIBRARY does not name a library with simulated GPUs")

synchronize = getattr(lib, "_Z21cudaStreamSynchronizeP11CUstream_st")
synchronize.argtypes = [ctypes.c_void_p]


def new_stream():
    stream = ctypes.c_void_p()
    create = getattr(lib, "_Z25cudaStreamCreateWithFlagsPP11CUstream_stj")
    assert create(ctypes.byref(stream), 1) == 0  # cudaStreamNonBlocking
    return stream.value


def there(keys):
    """A copy of the keys in memory of the simulated GPU's, which is never freed."""
    at = ctypes.c_void_p()
    assert getattr(lib, "_Z10cudaMallocPPvm")(ctypes.byref(at), ctypes.c_size_t(keys.nbytes or 1)) == 0
    made = np.frombuffer((ctypes.c_ubyte * keys.nbytes).from_address(at.value), keys.dtype).reshape(keys.shape)
    made[...] = keys
    return made


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
        for gate_on_stream, dim, rows_as, dtype in ((False, 8, "fp32", "fp32"), (True, 8, "fp32", "bf16"),
                                                    (True, 5, "bf16", "bf16"), (False, 8, "fp16", "bf16"),
                                                    (False, 5, "bf16", "fp16"), (True, 6, "fp16", "fp32")):
            generator = np.random.default_rng(5)
            stream = new_stream()
            with frugal.Frugal([frugal.Table(60, frugal.Normal())], dim, max_keys=100, optimizer="adagrad", workers=1,
                               lookahead=2, seed=7, rows_as=rows_as) as f:
                f.attach_cuda(0, 0, cache_rows=16, stream=stream, gate_on_stream=gate_on_stream)
                reference = Reference(f.read_rows(np.arange(60)), "adagrad", rows_as=rows_as, seed=7)
                for step in range(10):
                    keys = generator.integers(0, 60, 100).astype(np.int32 if step % 2 else np.int64)
                    f.announce(0, step, keys)
                    rows, wanted = array_as(np.zeros((100, dim + 3)), dtype, True), reference.weights[keys]
                    target = OnGpu(rows[:, :dim])
                    f.lookup(0, step, target)
                    synchronize(stream)
                    self.assertEqual(target.streams, [stream])
                    self.assertEqual(floats_of(rows[:, :dim]).tobytes(), rounded(wanted, dtype).tobytes())
                    offsets = np.arange(0, 101, 5, dtype=np.int32)
                    pooled = array_as(np.zeros((20, dim)), dtype, True)
                    grads = array_as(generator.standard_normal((20, dim), F), dtype, True)
                    f.lookup_bags(0, step, OnGpu(offsets), out=OnGpu(pooled))
                    synchronize(stream)
                    self.assertEqual(floats_of(pooled).tobytes(), rounded(pool(wanted, offsets), dtype).tobytes())
                    f.update(0, step, OnGpu(grads), 0.1, by_bag=True)
                    synchronize(stream)
                    reference.train([(keys, spread(floats_of(grads), offsets))], 0.1)
                f.drain()
                f.verify()
                self.assertEqual(floats_of(f.view()).tobytes(), reference.weights.tobytes())

    def test_keys_in_the_memory_of_the_gpu(self):
        """Sorted there, by one device, and copied to the host, by two."""
        for devices in (1, 2):
            generator = np.random.default_rng(6)
            stream = new_stream()
            with frugal.Frugal([60, 50], 8, devices=devices, max_keys=100, optimizer="adagrad", workers=1) as f:
                for device in range(devices):
                    f.attach_cuda(device, 0, cache_rows=16, stream=new_stream())
                reference = Reference(np.zeros((110, 8), F), "adagrad", devices)
                read = []  # gradients, which the stream may read after the call
                for step in range(10):
                    kind = (np.int32, np.int64, np.uint64)[step % 3]
                    batches = []
                    for device in range(devices):
                        first, second = generator.integers(0, 60, 40), generator.integers(0, 50, 20 * (step != 4))
                        given = [OnGpu(there(part.astype(kind))) for part in (first, second)]
                        f.announce(device, step, list(enumerate(given)), stream=stream)
                        self.assertEqual([part.streams for part in given], [[stream]] * 2)
                        keys = np.append(first, second + 60)
                        batches.append((keys, generator.standard_normal((len(keys), 8), F)))
                    for device, (keys, _) in enumerate(batches):
                        rows = np.empty((len(keys), 8), F)
                        f.lookup(device, step, OnGpu(rows))
                        self.assertEqual(getattr(lib, "_Z21cudaDeviceSynchronizev")(), 0)
                        self.assertEqual(rows.tobytes(), reference.weights[keys].tobytes())
                    for device, (_, grads) in enumerate(batches):
                        f.update(device, step, OnGpu(grads), 0.1)
                        read.append(grads)
                    reference.train(batches, 0.1)
                f.drain()
                self.assertEqual(f.read_rows(np.arange(50), table=1).tobytes(), reference.weights[60:].tobytes())

    def test_a_wrong_key_in_the_memory_of_the_gpu(self):
        with frugal.Frugal([60], 8, max_keys=10) as f:
            f.attach_cuda()
            f.announce(0, 0, OnGpu(there(np.array([3, 60]))))
            with self.assertRaisesRegex(frugal.KeyRangeError, "60"):
                f.lookup(0, 0, OnGpu(np.empty((2, 8), F)))
            f.cancel(0)
            f.announce(0, 0, OnGpu(there(np.array([3, 59]))))
            f.lookup(0, 0, OnGpu(np.empty((2, 8), F)))
            for given, error, text in (([(0, OnGpu(there(np.arange(3)))), (0, np.arange(3))], ValueError, "GPU 0 is w"),
                                       (OnGpu(there(np.arange(6.0, dtype=F))), TypeError, "int64"),
                                       (OnGpu(there(np.arange(6))[::2]), ValueError, "gaps")):
                with self.assertRaisesRegex(error, text):
                    f.announce(0, 1, given)

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
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        import frugal_embedding.torch
        from frugal_embedding.torch import modules
        self.torch = torch

        class Stream:
            """As torch.cuda.Stream: of the simulated GPU."""

            def __init__(self, *_):
                self.cuda_stream = new_stream()

            def wait_stream(self, other):
                synchronize(other.cuda_stream)

        def open_on_gpu(store):
            store.instance = frugal.Frugal(store.tables, store.dim, **store.options)
            stream = Stream()
            store.instance.attach_cuda(0, 0, 16, "counted", stream.cuda_stream, self.gate_on_stream)
            store.sessions.append(modules.Session(store.instance, 0, torch.device("cpu"), [0], stream, []))
            store.sessions[0].group = store.groups[0]
            store.sessions[0].direct = False  # compiled.cc asks PyTorch for the stream, which is not simulated

        self.current = Stream()
        for patch in (mock.patch.object(modules._Store, "open", open_on_gpu),
                      mock.patch.object(torch.cuda, "current_stream", lambda *_: self.current)):
            patch.start()
            self.addCleanup(patch.stop)

    def train(self, batches, thread=False, rows_as="fp32", dtype="fp32"):
        """A step with each batch of keys [20, 5], and the table after them, with the bits of the reference."""
        torch = self.torch
        output = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        bag = frugal.torch.EmbeddingBag(60, 8, max_keys=100, mode="mean", lr=0.1, workers=1, lookahead=10,
                                        rows_as=rows_as, output_dtype=output)
        reference = Reference(bag.instance.read_rows(np.arange(60)), "adagrad", rows_as=rows_as)
        torch.manual_seed(2)
        for ids in frugal.torch.Loader(batches, bag, ahead=10, thread=thread):
            direction = torch.randn(20, 8).to(output)
            out = bag(ids)
            bounds = np.arange(0, 101, 5)
            pooled = pool(reference.weights[ids.numpy().reshape(-1)], bounds, None, True)
            self.assertEqual(out.detach().float().numpy().tobytes(), rounded(pooled, dtype).tobytes())
            out.backward(direction)
            grads = spread(direction.float().numpy(), bounds, None, True)
            reference.train([(ids.numpy().reshape(-1), grads)], 0.1)
        bag.drain()
        self.assertEqual(floats_of(bag.view()).tobytes(), reference.weights.tobytes())
        return bag

    def test_a_module_on_a_stream(self):
        for self.gate_on_stream, of in ((False, ("fp32", "fp32")), (True, ("fp32", "fp32")), (True, ("bf16", "bf16")),
                                        (False, ("fp16", "bf16"))):
            self.train([self.torch.randint(0, 60, (20, 5)) for _ in range(10)], False, *of).close()

    def test_keys_in_the_memory_of_the_gpu(self):
        """They are announced where they are, in the order of the current stream, and a wrong one is an error of the
        forward. Tensors in the simulated GPU's memory say that they are CUDA's."""
        torch, announce, self.gate_on_stream = self.torch, frugal.Frugal.announce_addresses, False
        drawn = np.random.default_rng(7).integers(0, 60, (10, 20, 5))
        batches = [torch.from_numpy(there(keys.astype((np.int64, np.int32)[i % 2]))) for i, keys in enumerate(drawn)]
        wrong = torch.from_numpy(there(np.full((20, 5), 60)))
        addresses = {keys.data_ptr() for keys in (*batches, wrong)}
        recorded, streams = set(), []

        def record(tensor, stream):
            recorded.add((tensor.data_ptr(), stream))

        def spied(instance, device, step, segments, read_only, given_up, stream):
            streams.append(stream)
            self.assertTrue(addresses.issuperset(segment[1] for segment in segments))
            announce(instance, device, step, segments, read_only, given_up, stream)

        with mock.patch.object(frugal.Frugal, "announce_addresses", spied), \
                mock.patch.object(torch.Tensor, "is_cuda", property(lambda t: t.data_ptr() in addresses)), \
                mock.patch.object(torch.Tensor, "record_stream", record):
            for thread in (False, True):
                bag = self.train(batches, thread)
                for _ in range(2):
                    with self.assertRaisesRegex(frugal.KeyRangeError, "60"):
                        bag(wrong)
                bag(batches[0]).sum().backward()
                bag.close()
        self.assertEqual(set(streams), {self.current.cuda_stream})
        self.assertEqual(recorded, {(address, self.current) for address in addresses})


if __name__ == "__main__":
    unittest.main()
