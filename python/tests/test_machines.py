"""Instances whose tables are dealt over several machines, each of which is a process here: the bits of one machine with
as many devices, what each machine has, and what the others hear of one that is killed or differs."""
import hashlib
import importlib.util
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import numpy as np
    import torch.distributed as dist
except ImportError as error:
    raise unittest.SkipTest("NumPy, or PyTorch, is not installed") from error
if not dist.is_available() or not dist.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

import frugal_embedding as frugal
import frugal_embedding.torch
from frugal_embedding.errors import LostError, SettingsError
from reference import Reference
from test_processes import DIM, KEYS, LIMIT, all_rows, batch, rate, tables

STEPS, ROWS = 24, 60
processes = multiprocessing.get_context("forkserver")  # so that PyTorch is imported once
processes.set_forkserver_preload(["frugal_embedding.torch"])
HOMES = np.array(random.Random(5).choices([0, 0, 1], k=ROWS), np.uint8)
# By the number of machines: devices of each, how rows are dealt, and settings of the instance.
WAYS = {2: [(1, "cyclic", dict(optimizer="adagrad", lookahead=3, workers=1, seed=1)),
            (2, "blocks", dict(optimizer="adam", lookahead=0, workers=1, alone="staged", seed=2)),
            (1, HOMES, dict(optimizer="rowwise_adagrad", lookahead=9, reduce="mean", seed=3, rows_as="bf16"))],
        3: [(1, "cyclic", dict(optimizer="sgd", lookahead=2, seed=4, rows_as="fp16", rounding="nearest"))]}


def steps_of(device):
    return STEPS - 5 * (device % 2)  # data of odd devices ends before the others'


def judge(devices, way):
    """The rows by the sequential reference."""
    with frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=devices, **way) as f:
        reference = Reference(all_rows(f)[0], way["optimizer"], devices, way.get("reduce") == "mean", 0, f.rows_as,
                              f.rounding, way["seed"])
    for step in range(STEPS):
        brought = []
        for device in range(devices):
            keys, grads = batch(device, step)
            rows = np.concatenate([keys[0], keys[1] + 40])
            brought.append(None if grads is None or step >= steps_of(device) else (rows, grads))
        reference.train(brought, rate(step))
    return reference.weights, reference.state


class Trainer:
    """The devices of one machine, in one thread."""

    def __init__(self, f):
        self.f, self.ahead = f, {device: 0 for device in f.own_devices}
        for device in f.own_devices:
            f.attach_cpu(device, cache_rows=16)

    def announce(self, until):
        """All devices, step by step."""
        for step in range(min(self.ahead.values()), until + 1):
            for device in self.f.own_devices:
                if self.ahead[device] == step < steps_of(device):
                    self.f.announce(device, step, list(enumerate(batch(device, step)[0])))
                    self.ahead[device] += 1
                    if self.ahead[device] == steps_of(device):
                        self.f.finish(device)

    def train(self, first, last):
        for step in range(first, last):
            self.announce(step + self.f.lookahead)
            for device in self.f.own_devices:
                if step < steps_of(device):
                    self.f.lookup(device, step)
                    self.f.update(device, step, batch(device, step)[1], rate(step))


class Gather:
    """What leads a machine to the others: over a pipe to Several, and by torch.distributed."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __call__(self, given):
        self.pipe.send((True, given))
        return self.pipe.recv()

    @staticmethod
    def machines(deal):
        return frugal.torch.Machines(deal=deal)


class GatherOfMpi:
    def __init__(self, world):
        self.world = world

    def __call__(self, given):
        return self.world.allgather(given)

    def machines(self, deal):
        return frugal.Machines(self.world, deal=deal)


# What a machine does.

def opened(machine, machines, gather, devices=1, deal="cyclic", **way):
    return frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=machines * devices, machines=gather.machines(deal),
                         **way)


def trains_all(machine, machines, gather, folder):
    return [trains(machine, machines, gather, folder, *of) for of in WAYS[machines]]


def trains(machine, machines, gather, folder, devices, deal, way):
    """Returns all rows, of the instance, and of one that is opened from what it has saved."""
    saved = os.path.join(folder, "saved")
    with opened(machine, machines, gather, devices, deal, **way) as f:
        assert (f.machine, f.machines) == (machine, machines)
        assert f.own_devices == range(machine * devices, machine * devices + devices)
        assert gather(f.home(7)) == [f.home(7)] * machines
        Trainer(f).train(0, STEPS)
        f.drain()
        f.verify()
        rows = all_rows(f)
        for table in range(2):
            own = np.array(f.own_keys(table), np.int64)
            assert all(f.home(int(key), table) == machine for key in own)
            first = table * 40
            assert np.array_equal(np.asarray(f.view(table), np.float32) if way.get("rows_as") != "bf16" else
                                  f.read_rows(own, table), rows[0][first + own])
        counts = f.wire_counts()
        assert counts["sent"][0] and counts["received_bytes"][3] and counts["guests"], counts
        whole = f.exchange(np.full((2, 3), machine, np.float32))
        assert whole.shape == (machines, 2, 3) and all((part == at).all() for at, part in enumerate(whole)), whole
        assert f.exchange(bytes([65 + machine])) == [bytes([65 + at]) for at in range(machines)]
        f.save(saved, replace=True)
    assert frugal.read_saved(saved)["machines"] == machines
    with opened(machine, machines, gather, devices, deal, saved=[saved], **way) as f:
        assert f.first_step == STEPS
        return rows + all_rows(f)


def goes_on(machine, machines, gather, before):
    """Trains a part, and is killed, if it is machine 1; the others go on."""
    with opened(machine, machines, gather, optimizer="adagrad", lookahead=2, workers=1) as f:
        trainer = Trainer(f)
        trainer.train(0, before)
        gather(None)
        if machine == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        since = time.monotonic()
        try:
            trainer.train(before, STEPS)
        except LostError as error:
            seconds = time.monotonic() - since
            gather(None)  # or another one would hear first that this one has closed its instance
            return str(error), seconds


def differs(machine, machines, gather, cases):
    said = []
    for what, values in cases:
        try:
            opened(machine, machines, gather, **{what: values[machine]})
        except SettingsError as error:
            said.append(str(error))
    return said


class Several:
    """Processes, and the hub of what they gather. `run` returns what each returns, None for one that was killed."""

    def __init__(self, n, target, *arguments):
        self.pipes, self.processes, self.folder = [], [], tempfile.mkdtemp()
        for machine in range(n):
            here, there = processes.Pipe()
            self.pipes.append(here)
            self.processes.append(processes.Process(target=self.of_one, args=(
                there, self.folder, target, machine, n, arguments)))
            self.processes[-1].start()
            there.close()

    @staticmethod
    def of_one(pipe, folder, target, machine, n, arguments):
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=machine, world_size=n)
        pipe.send((False, target(machine, n, Gather(pipe), *arguments)))

    def run(self):
        made, going = [None] * len(self.pipes), set(range(len(self.pipes)))
        try:
            while going:
                given = {}
                for machine in sorted(going):
                    if not self.pipes[machine].poll(LIMIT):
                        raise AssertionError(f"machine {machine} has said nothing for {LIMIT} s")
                    try:
                        gathers, what = self.pipes[machine].recv()
                    except EOFError:
                        going.remove(machine)
                        continue
                    if gathers:
                        given[machine] = what
                    else:
                        made[machine] = what
                        going.remove(machine)
                for machine in given:
                    self.pipes[machine].send(list(given.values()))
            return made
        finally:
            for process in self.processes:
                process.join(10 if not going else 0)
                process.kill()
                process.join()
            shutil.rmtree(self.folder)


class Bits(unittest.TestCase):
    def test_the_bits_of_one_machine_with_as_many_devices(self):
        for machines, ways in WAYS.items():
            wanted = [judge(machines * devices, way) * 2 for devices, _, way in ways]
            with tempfile.TemporaryDirectory() as folder:
                made = Several(machines, trains_all, folder).run()
                with self.assertRaisesRegex(frugal.errors.FileError, f"manifest of {machines} machines.*merge"):
                    frugal.Frugal(tables(), DIM, max_keys=KEYS, saved=[os.path.join(folder, "saved")])
            for machine, of_machine in enumerate(made):
                self.assertIsNotNone(of_machine, f"machine {machine} of {machines}")
                for rows, references, way in zip(of_machine, wanted, ways):
                    for found, reference in zip(rows, references):
                        self.assertTrue(found.tobytes() == reference.tobytes(), f"machine {machine}: {way}")

    def test_one_machine_is_as_none(self):
        with opened(0, 1, Gather(None), 2) as f:
            self.assertEqual((f.machines, f.own_devices, f.own_keys(1)), (1, range(2), range(20)))
            self.assertEqual(f.wire_counts()["sent"], [0] * 5)
            self.assertTrue((f.exchange(np.arange(3)) == [[0, 1, 2]]).all())


def of_mpi():
    """A rank: prints what it has, and stays away from PyTorch."""
    from mpi4py.MPI import COMM_WORLD as world
    with tempfile.TemporaryDirectory() as folder:
        rows = trains(world.rank, world.size, GatherOfMpi(world), world.bcast(folder), *WAYS[2][0])
        world.barrier()  # all are done with the folder
    print(f"rows {hash_of(rows)}\n", end="", flush=True)


def hash_of(arrays):
    made = hashlib.sha256()
    for one in arrays:
        made.update(one.tobytes())
    return made.hexdigest()


@unittest.skipUnless(importlib.util.find_spec("mpi4py") and shutil.which("mpirun"),
                     "no mpi4py, or no mpirun (pip install mpi4py; apt-get install mpich)")
class Mpi(unittest.TestCase):
    def test_the_bits_of_one_machine(self):
        settings = dict(os.environ, OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        made = subprocess.run(["mpirun", "-n", "2", sys.executable, "-W", "ignore", "-c",
                               "import test_machines as t; t.of_mpi()"], env=settings, capture_output=True, text=True,
                              cwd=os.path.dirname(os.path.abspath(__file__)), timeout=LIMIT)
        self.assertEqual(made.returncode, 0, made.stderr)
        wanted = judge(2, WAYS[2][0][2])
        self.assertEqual([line for line in made.stdout.splitlines() if line.startswith("rows")],
                         [f"rows {hash_of(wanted + wanted)}"] * 2)

    def test_arguments(self):
        with self.assertRaisesRegex(TypeError, "a communicator of mpi4py is wanted.*; 3 was given"):
            frugal.Machines(3)


class Failures(unittest.TestCase):
    def test_a_machine_that_is_killed(self):
        made = Several(3, goes_on, 6).run()
        self.assertIsNone(made[1])
        for machine in (0, 2):
            self.assertIsNotNone(made[machine], machine)
            text, seconds = made[machine]
            self.assertRegex(text, r"machine 1, at step \d+: its (process has ended|connection ended)")
            self.assertLess(seconds, LIMIT / 2)

    def test_settings_that_differ(self):
        cases = [("seed", (7, 8)), ("lookahead", (2, 3)), ("deal", ("cyclic", "blocks"))]
        for machine, said in enumerate(Several(2, differs, cases).run()):
            self.assertEqual(len(said), len(cases))
            for (what, _), text in zip(cases, said):
                self.assertRegex(text, rf"{what}.* is .* on machine {1 - machine}, and .* on this one, {machine}")


if __name__ == "__main__":
    unittest.main()
