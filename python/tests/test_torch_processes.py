"""Modules of two processes: the bits of one process with two devices, state that rank 0 saves and all load, and what
happens when a process leaves its loop."""
import os
import sys
import tempfile
import time
import unittest

try:
    import torch
    import torch.distributed as dist
    import numpy  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest("PyTorch, or NumPy, is not installed") from error
if not sys.platform.startswith("linux"):
    raise unittest.SkipTest("several processes need Linux")
if not dist.is_available() or not dist.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

import frugal_embedding as frugal
import frugal_embedding.torch as ft

TABLES = {"a": (500, 8), "b": (300, 8), "c": (200, 4)}  # of two dims: two instances
SETTINGS = dict(max_keys=256, seed=5, cache_rows=64, lookahead=4, lr=0.1)
LIMIT = 300  # seconds that a process waits for another one, on a machine that is busy
PARTS = ((0, 30, False), (10, 15, True), (20, 10, False))  # seed, steps, a loader in a thread


def batches(n, seed):
    for step in range(n):
        generator = torch.Generator().manual_seed(seed * 1000 + step)
        yield {name: torch.randint(0, rows, (32, 2), generator=generator) for name, (rows, _) in TABLES.items()}


def loss(out):
    return sum((rows ** 2).sum() for rows in out.values())


def train(bag, n, seed, thread=False):
    for batch in ft.Loader(batches(n, seed), bag, thread=thread):
        loss(bag(batch)).backward()


def in_one_process():
    """The states after two parts, and after the third."""
    bag = ft.EmbeddingBagCollection(TABLES, device=["cpu", "cpu"], **SETTINGS)
    bags, states = [bag, bag.on(1)], []
    for seed, n, _ in PARTS:
        for pair in zip(batches(n, seed), batches(n, seed + 1)):
            for one, batch in zip(bags, pair):
                one.announce(batch)
            for one, batch in zip(bags, pair):
                loss(one(batch)).backward()
        states.append(bag.state_dict())
    bag.close()
    return states[1:]


def of_rank(rank, folder, name):
    """A process: trains, rank 0 saves; trains, goes back to what was saved, and trains that again."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    bag = ft.EmbeddingBagCollection(TABLES, workers=1, processes=ft.Processes(rank, 2, name=name), **SETTINGS)
    assert bag.is_saver == (rank == 0)
    assert [f.joined for f in bag.instances] == [rank > 0] * 2
    for seed, n, thread in PARTS[:2]:
        train(bag, n, seed + rank, thread)

    def save(what):
        dist.barrier()
        if bag.is_saver:
            torch.save(bag.state_dict(), f"{folder}/{what}")
        else:
            for call in (bag.state_dict, bag.drain, lambda: bag.save(f"{folder}/x"), lambda: bag.view("a")):
                try:
                    call()
                except frugal.errors.ProcessError:
                    continue
                raise AssertionError("a process that has joined has done what rank 0 alone may do")
        dist.barrier()
    save("two")
    train(bag, PARTS[2][1], PARTS[2][0] + rank)
    save("three")
    bag.load_state_dict(torch.load(f"{folder}/two"))
    dist.barrier()
    train(bag, PARTS[2][1], PARTS[2][0] + rank)
    save("again")
    # A loop that is left while its thread waits for the other process, which never comes.
    if rank == 0:
        for _ in ft.Loader(batches(9, 99), bag, thread=True):
            break
    dist.barrier()
    bag.close()
    dist.destroy_process_group()


def late(rank, folder, name, state):
    """Rank 0 loads a state before the other one has made its module."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    if rank == 1:
        time.sleep(1)
    bag = ft.EmbeddingBag(10, 4, max_keys=8, workers=1, processes=ft.Processes(rank, 2, name=name, seconds=LIMIT))
    bag.load_state_dict(state)
    assert bag.instance.first_step == 7, bag.instance.first_step
    if rank == 0:
        assert all(torch.equal(value, state[key]) for key, value in bag.state_dict().items() if "weight" in key)
    dist.barrier()
    bag.close()
    dist.destroy_process_group()


def never(rank, name, state):
    """Rank 0 loads a state, and the other one never comes."""
    if rank == 0:
        bag = ft.EmbeddingBag(10, 4, max_keys=8, workers=1, processes=ft.Processes(rank, 2, name=name, seconds=.1))
        try:
            bag.load_state_dict(state)
        except frugal.errors.ProcessError as error:
            assert "rank 1 has not joined" in str(error), error
            os._exit(7)


def differs(rank, name):
    try:
        kept = ft.EmbeddingBag(10 + rank, 4, max_keys=8, workers=1,
                               processes=ft.Processes(rank, 2, name=name, seconds=LIMIT))
    except frugal.errors.SettingsError as error:
        assert rank == 1 and "rows: rank 0 has opened instance 0 of the run with (10,)" in str(error), error
        os._exit(7)
    time.sleep(LIMIT)  # rank 0, which is killed
    kept.close()


class Processes(unittest.TestCase):
    def run_ranks(self, target, arguments):
        context = torch.multiprocessing.get_context("spawn")
        ranks = [context.Process(target=target, args=(rank, *arguments)) for rank in range(2)]
        try:
            for one in ranks:
                one.start()
            for one in reversed(ranks):
                one.join(LIMIT)
                yield one.exitcode
        finally:
            for one in ranks:
                one.kill()
                one.join()

    def test_bits_and_state(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(list(self.run_ranks(of_rank, (folder, f"frugal test {os.getpid()}"))), [0, 0])
            two, three, again = (torch.load(f"{folder}/{what}") for what in ("two", "three", "again"))
        for found, wanted in zip((two, three, again), (lambda states: states + states[-1:])(in_one_process())):
            self.assertEqual(list(found), list(wanted))
            for key, value in wanted.items():
                self.assertTrue(torch.equal(found[key], value), key)

    def test_a_rank_that_is_late(self):
        bag = ft.EmbeddingBag(10, 4, max_keys=8, first_step=7)
        state = bag.state_dict()
        bag.close()
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(list(self.run_ranks(late, (folder, f"frugal test late {os.getpid()}", state))), [0, 0])
        self.assertEqual(list(self.run_ranks(never, (f"frugal test never {os.getpid()}", state))), [0, 7])

    def test_other_settings_than_rank_0(self):
        codes = self.run_ranks(differs, (f"frugal test differs {os.getpid()}",))
        self.assertEqual(next(codes), 7)
        codes.close()

    def test_the_environment(self):
        before = dict(os.environ)
        try:
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
                os.environ.pop(name, None)
            alone = ft.Processes()
            self.assertEqual((alone.rank, alone.world_size), (0, 1))
            bag = ft.EmbeddingBag(10, 4, max_keys=8, processes=alone)  # as without
            self.assertIsNone(bag.instance.name)
            os.environ.update(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
            with self.assertRaisesRegex(ValueError, "MASTER_PORT is not set"):
                ft.Processes()
            os.environ["MASTER_PORT"] = "1234"
            one = ft.Processes()
            self.assertEqual((one.rank, one.world_size, one.local_rank), (1, 2, 1))
            os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
            self.assertNotEqual(ft.Processes().name, one.name)  # a run that was started again is another one
            os.environ["LOCAL_WORLD_SIZE"] = "1"
            with self.assertRaisesRegex(ValueError, "one machine"):
                ft.Processes()
            with self.assertRaisesRegex(ValueError, "0 to world_size - 1"):
                ft.Processes(2, 2, name="x")
            with self.assertRaisesRegex(ValueError, "each process has one; 2 were given"):
                ft.EmbeddingBag(10, 4, max_keys=8, device=["cpu", "cpu"], processes=ft.Processes(0, 2, name="x"))
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    unittest.main()
