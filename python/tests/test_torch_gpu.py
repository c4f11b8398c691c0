"""Modules for PyTorch whose devices are on a GPU: the bits of the sequential reference. SKIPPED without a GPU, or with
a library that has no devices on GPUs (FRUGAL_BUILD_CUDA=1 builds one that has)."""
import itertools
import threading
import unittest

try:
    import torch
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error

import frugal_embedding as frugal
import frugal_embedding.torch as ft
from reference import Reference, pool, spread

if not frugal.has_cuda:
    raise unittest.SkipTest("the library has no devices on GPUs: it was built without FRUGAL_BUILD_CUDA=1")
if not torch.cuda.is_available():
    raise unittest.SkipTest(f"PyTorch {torch.__version__} finds no GPU")

GPU = torch.device("cuda:0")


def weights_of(bag):
    bag.drain()
    return np.array(bag.view())


def bag_of(rows=50, dim=4, **settings):
    ours = {"max_keys": 400, "mode": "sum", "lr": 0.1, "seed": 3, "device": "cuda:0", "cache_rows": 16, "workers": 1}
    return ft.EmbeddingBag(rows, dim, **{**ours, **settings})


class OnGpu(unittest.TestCase):
    def test_bags_are_those_of_the_reference(self):
        for mode, weighted, kind in (("sum", False, "adagrad"), ("sum", True, "sgd"), ("mean", False, "adam"),
                                     ("mean", False, "rowwise_adagrad")):
            for on_stream in (False, True):
                with self.subTest(mode=mode, weighted=weighted, kind=kind, gate_on_stream=on_stream):
                    generator = torch.Generator().manual_seed(1)
                    bag = bag_of(mode=mode, optimizer=kind, gate_on_stream=on_stream)
                    reference = Reference(weights_of(bag), kind)
                    for _ in range(15):
                        ids = torch.randint(0, 50, (200,), generator=generator)
                        drawn = torch.randint(0, 201, (20,), generator=generator)
                        offsets = torch.cat([torch.tensor([0]), drawn]).sort()[0]
                        weights = torch.randn(200, generator=generator) if weighted else None
                        direction = torch.randn(21, 4, generator=generator)
                        out = bag(ids, offsets, None if weights is None else weights.to(GPU))
                        self.assertEqual(out.device, GPU)
                        bounds = np.append(offsets.numpy(), 200)
                        plain = None if weights is None else weights.numpy()
                        pooled = pool(reference.weights[ids.numpy()], bounds, plain, mode == "mean")
                        self.assertEqual(out.detach().cpu().numpy().tobytes(), pooled.tobytes())
                        (out * direction.to(GPU)).sum().backward()
                        grads = spread(direction.numpy(), bounds, plain, mode == "mean")
                        reference.train([(ids.numpy(), grads)], 0.1)
                    self.assertEqual(weights_of(bag).tobytes(), reference.weights.tobytes())

    def test_a_data_loader_whose_processes_are_forked(self):
        """They are forked while devices are open, anew in each epoch."""
        ids = torch.randint(0, 50, (64, 3), generator=torch.Generator().manual_seed(5))
        data = torch.utils.data.TensorDataset(ids)
        for place in range(torch.cuda.device_count()):
            with self.subTest(place=place):
                bag = bag_of(device=f"cuda:{place}")
                reference = Reference(weights_of(bag), "adagrad")
                for _ in range(4):
                    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2,
                                                         multiprocessing_context="fork")
                    for batch, in ft.Loader(loader, bag, lambda batch: batch[0]):
                        bag(batch).sum().backward()
                    for batch in ids.numpy().reshape(8, 24):
                        reference.train([(batch, np.ones((24, 4), np.float32))], 0.1)
                self.assertEqual(weights_of(bag).tobytes(), reference.weights.tobytes())

    def test_announced_ahead(self):
        """A loader announces, in this thread or in its own; the forward runs on another stream than the module's. Keys
        lie in host memory, or on the GPU."""
        generator = torch.Generator().manual_seed(2)
        batches = [torch.randint(0, 50, (16, 3), generator=generator) for _ in range(40)]
        directions = torch.randn(40, 16, 4, generator=generator).to(GPU)
        for thread, on_stream, place in itertools.product((False, True), (False, True), ("cpu", GPU)):
            with self.subTest(thread=thread, gate_on_stream=on_stream, place=place):
                bag = bag_of(gate_on_stream=on_stream)
                reference = Reference(weights_of(bag), "adagrad")
                given = [ids.to(place) for ids in batches]
                torch.cuda.synchronize()
                with torch.cuda.stream(torch.cuda.Stream(GPU)):
                    for step, ids in enumerate(ft.Loader(given, bag, thread=thread)):
                        (bag(ids) * directions[step]).sum().backward()
                    torch.cuda.synchronize()
                for step, ids in enumerate(batches):
                    reference.train([(ids.numpy().reshape(-1),
                                      np.repeat(directions[step].cpu().numpy(), 3, axis=0))], 0.1)
                self.assertEqual(weights_of(bag).tobytes(), reference.weights.tobytes())

    def test_a_compiled_graph(self):
        """Inductor takes the operators into its graph, and leaves them out of CUDA graphs: the same rows, to its
        rounding of the functions between."""
        batches = [torch.randint(0, 50, (16, 3), device=GPU) for _ in range(6)]
        expected = bag_of()
        for ids in batches:
            (expected(ids) * 2).tanh().sum().backward()
        for mode in ("default", "reduce-overhead"):
            with self.subTest(mode=mode):
                bag = bag_of()
                step = torch.compile(lambda ids, bag=bag: (bag(ids) * 2).tanh().sum(), fullgraph=True, mode=mode)
                for ids in batches:
                    step(ids).backward()
                self.assertTrue(np.allclose(weights_of(bag), weights_of(expected), atol=1e-6))

    def test_an_optimizer_commits(self):
        """A GradScaler's step on the stream of the gradients, and clipping by norm."""
        ids = torch.tensor([[1], [2], [1]], device=GPU)
        bag, plain, scaler = bag_of(optimizer="sgd"), bag_of(optimizer="sgd"), torch.amp.GradScaler("cuda")
        optimizer = ft.Optimizer(bag)
        for _ in range(3):
            scaler.scale(bag(ids).sum()).backward()
            plain(ids).sum().backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual(weights_of(bag).tobytes(), weights_of(plain).tobytes())
        bag(ids).sum().backward()
        self.assertAlmostEqual(float(optimizer.clip_grad_norm_([], 1.0)), 20 ** 0.5, places=5)
        optimizer.step()

    def test_keys_on_the_gpu_other_than_announced(self):
        bag, ids = bag_of(), torch.tensor([[1], [2]])
        for step in range(2):
            bag.announce(ids)
            with self.assertRaisesRegex(RuntimeError, "announced with other keys"):
                bag((ids + 1).to(GPU))
            bag(ids.to(GPU)).sum().backward()
        self.assertEqual(bag._parts[0][1].step, 2)

    def test_a_wrong_key_on_the_gpu(self):
        bag, ids = bag_of(), torch.tensor([[1], [2]])
        for _ in range(2):
            with self.assertRaisesRegex(frugal.KeyRangeError, "50"):
                bag((ids + 48).to(GPU))
        bag(ids.to(GPU)).sum().backward()

    def test_it_stays_where_it_is(self):
        bag = bag_of()
        self.assertIs(bag.to(GPU), bag)
        for call in (bag.cpu, lambda: bag.half()):
            with self.assertRaisesRegex((TypeError, ValueError), "stay"):
                call()

    def test_several_devices(self):
        """Two logical devices on one GPU, and one beside a device on host cores; a thread each."""
        data = np.random.default_rng(3).integers(0, 50, (20, 2, 30, 2))
        grads = np.random.default_rng(4).standard_normal((20, 2, 30, 4)).astype(np.float32)
        for places in (["cuda:0", "cuda:0"], ["cpu", "cuda:0"]):
            with self.subTest(places=places):
                first = bag_of(device=places, reduce="mean")
                bags = [first, first.on(1)]
                reference = Reference(weights_of(first), "adagrad", 2, True)

                def train(device, bags=bags, places=places):
                    for step in range(20):
                        out = bags[device](torch.from_numpy(data[step, device]))
                        (out * torch.from_numpy(grads[step, device]).to(places[device])).sum().backward()
                threads = [threading.Thread(target=train, args=(device,)) for device in (0, 1)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                for step in range(20):
                    reference.train([(data[step, d].reshape(-1), np.repeat(grads[step, d], 2, axis=0)) for d in (0, 1)],
                                    0.1)
                self.assertEqual(weights_of(first).tobytes(), reference.weights.tobytes())


if __name__ == "__main__":
    unittest.main()
