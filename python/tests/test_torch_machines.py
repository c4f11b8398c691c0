"""Modules whose tables are dealt over several processes, as machines are: the bits of one process with as many devices,
and state that all make and load together."""
import os
import tempfile
import unittest
from unittest import mock

try:
    import torch
    import torch.distributed as dist
    import numpy  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error
if not dist.is_available() or not dist.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

import frugal_embedding.torch as ft
from test_torch_processes import LIMIT, PARTS, SETTINGS, TABLES, batches, in_one_process, train


def begin(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)


def of_rank(rank, folder):
    """A process: trains, makes a state; trains, goes back to the state, and trains that again."""
    begin(rank, folder)
    bag = ft.EmbeddingBagCollection(TABLES, workers=1, machines=ft.Machines(), **SETTINGS)
    assert bag.is_saver and [f.machines for f in bag.instances] == [2, 2]
    for seed, n, thread in PARTS[:2]:
        train(bag, n, seed + rank, thread)
    states = [bag.state_dict()]
    train(bag, PARTS[2][1], PARTS[2][0] + rank)
    states.append(bag.state_dict())
    bag.load_state_dict(states[0])
    train(bag, PARTS[2][1], PARTS[2][0] + rank)
    states.append(bag.state_dict())
    assert torch.equal(bag.view_tensor("b"), states[2]["b.weight"][list(bag.instances[0].own_keys(1))])
    given = torch.tensor([[rank, 7]], dtype=torch.bfloat16)
    assert torch.equal(bag.exchange(given), torch.tensor([[[0, 7]], [[1, 7]]], dtype=torch.bfloat16))
    bag.save(f"{folder}/saved")
    bag.close()
    bag = ft.EmbeddingBagCollection(TABLES, saved=[f"{folder}/saved"], machines=ft.Machines(), **SETTINGS)
    states.append(bag.state_dict())
    torch.save(states, f"{folder}/states {rank}")
    # A loop that is left while its thread waits for the other machine, which never comes.
    if rank == 0:
        for _ in ft.Loader(batches(9, 99), bag, thread=True):
            break
    dist.barrier()
    bag.close()
    dist.destroy_process_group()


def asks_in_vain(rank, folder):
    begin(rank, folder)
    try:
        ft.EmbeddingBag(10, 4, max_keys=8, machines=ft.Machines(), processes=ft.Processes(rank, 2, name="x"))
    except ValueError as error:
        assert "either `machines` or `processes` is wanted" in str(error), error
    dist.barrier()
    try:
        machines = ft.Machines(dist.new_group([0, 1]), seconds=2)
        if rank == 0:
            ft.EmbeddingBag(10, 4, max_keys=8, machines=machines)  # rank 1 does not
    except ConnectionError as error:
        assert "all machines open the same instances in the same order, within 2 s" in str(error), error
    dist.barrier()
    os._exit(7 + rank)


class Machines(unittest.TestCase):
    def run_ranks(self, target, *arguments):
        context = torch.multiprocessing.get_context("spawn")
        ranks = [context.Process(target=target, args=(rank, *arguments)) for rank in range(2)]
        try:
            for one in ranks:
                one.start()
            for one in ranks:
                one.join(LIMIT)
            return [one.exitcode for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.join()

    def test_bits_and_state(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_ranks(of_rank, folder), [0, 0])
            of_both = [torch.load(f"{folder}/states {rank}") for rank in range(2)]
        wanted = (lambda states: states + states[-1:] * 2)(in_one_process())
        for states in of_both:
            for found, of in zip(states, wanted):
                self.assertEqual(list(found), list(of))
                for key, value in of.items():
                    self.assertTrue(torch.equal(found[key], value), key)

    def test_what_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_ranks(asks_in_vain, folder), [7, 8])
        with mock.patch.dict(os.environ, WORLD_SIZE="2"), \
                self.assertRaisesRegex(RuntimeError, r"not initialized, and WORLD_SIZE is 2\. First call"):
            ft.Machines()
        with mock.patch.object(dist, "is_gloo_available", lambda: False), \
                self.assertRaisesRegex(RuntimeError, "gloo is wanted, and this PyTorch was built without it"):
            ft.Machines()

    def test_without_torchrun(self):
        alone = ft.Machines(deal=torch.zeros(10, dtype=torch.uint8))
        self.assertEqual((alone.machine, alone.machines), (0, 1))
        bag = ft.EmbeddingBag(10, 4, max_keys=8, machines=alone)  # as without
        self.assertEqual(bag.instance.machines, 1)
        self.assertTrue(torch.equal(bag.exchange(torch.ones(2)), torch.ones(1, 2)))
        bag.close()


if __name__ == "__main__":
    unittest.main()
