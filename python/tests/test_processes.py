"""An instance that two processes train, started by multiprocessing's spawn: the bits of one process with two devices,
and of the sequential reference; what a process that has joined may not do; and what is left when one is killed."""
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest("NumPy is not installed") from error
if not sys.platform.startswith("linux"):
    raise unittest.SkipTest("several processes need Linux")

import frugal_embedding as frugal
from reference import F, Reference

spawn = multiprocessing.get_context("spawn")
STEPS, SHORT, KEYS, DIM = 40, 30, 60, 5  # device 1 has data for SHORT steps
LIMIT = 300  # seconds that a test waits for another process

WAYS = [dict(optimizer="adagrad", lookahead=3, workers=1, seed=1),
        dict(optimizer="adam", lookahead=0, workers=1, alone="staged", seed=2),
        dict(optimizer="rowwise_adagrad", lookahead=10, workers=2, alone="kept", reduce="mean", seed=3, rows_as="bf16"),
        dict(optimizer="sgd", lookahead=5, workers=1, mode="sync", seed=4, rows_as="fp16", rounding="nearest")]


def name_of(what):
    return f"frugal test {what} {os.getpid()}"


def tables():
    return [frugal.Table(40, frugal.Uniform(-1, 1)), frugal.Table(20, frugal.Normal(0, 0.5))]


def all_rows(f):
    parts = [f.read_rows(np.arange(rows), table, state=True) for table, rows in enumerate(f.rows)]
    return np.concatenate([weights for weights, _ in parts]), np.concatenate([state for _, state in parts])


def batch(device, step):
    """Keys by table, and gradients. Some batches are empty, some are trained without gradients."""
    generator = np.random.default_rng([device, step])
    n = [int(generator.integers(0, KEYS // 2)) if step % 7 else 0 for _ in range(2)]
    keys = [(generator.zipf(1.3, count) % rows).astype(np.int64) for count, rows in zip(n, (40, 20))]
    return keys, None if step % 5 == 4 else generator.standard_normal((sum(n), DIM), F)


def rate(step):
    return 0.05 * (1 + step % 3)


class Trainer:
    """One device of an instance, wherever it was opened. `train` yields after each step."""

    def __init__(self, f, device, steps):
        self.f, self.device, self.steps, self.ahead = f, device, steps, 0
        f.attach_cpu(device, cache_rows=16)

    def announce(self, step):
        while self.ahead < self.steps and self.ahead <= step + self.f.lookahead:
            self.f.announce(self.device, self.ahead, list(enumerate(batch(self.device, self.ahead)[0])))
            self.ahead += 1
            if self.ahead == self.steps:
                self.f.finish(self.device)

    def step(self, step):
        rows = self.f.lookup(self.device, step)
        grads = batch(self.device, step)[1]
        self.f.update(self.device, step, grads, rate(step))
        return rows

    def train(self):
        for step in range(self.steps):
            self.announce(step)
            self.step(step)


def in_one_process(way):
    with frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, **dict(way, workers=0)) as f:
        trainers = [Trainer(f, 0, STEPS), Trainer(f, 1, SHORT)]
        for step in range(STEPS):
            here = [trainer for trainer in trainers if step < trainer.steps]
            for ahead in range(step, step + f.lookahead + 1):
                for trainer in here:
                    trainer.announce(ahead - f.lookahead)
            for trainer in here:
                trainer.step(step)
        f.drain()
        return all_rows(f)


def by_the_judge(way):
    with frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, **way) as f:
        reference = Reference(all_rows(f)[0], way["optimizer"], 2, way.get("reduce") == "mean", 0, f.rows_as,
                              f.rounding, way["seed"])
    for step in range(STEPS):
        brought = []
        for device in range(2):
            keys, grads = batch(device, step)
            rows = np.concatenate([keys[0], keys[1] + 40])
            brought.append(None if grads is None or device and step >= SHORT else (rows, grads))
        reference.train(brought, rate(step))
    return reference.weights, reference.state


# What the other process does, in one of these; `pipe` leads to the test.

def joins_and_trains(pipe, names):
    for name in names:
        with frugal.join(name) as f:
            Trainer(f, 1, SHORT).train()
            pipe.send((f.joined, f.rows, f.dim, f.devices, f.lookahead, f.optimizer.kind, f.rows_as, f.rounding))
            pipe.recv()


def joins_and_is_refused(pipe, name):
    with frugal.join(name) as f, tempfile.TemporaryDirectory() as folder:
        f.attach_cpu(1)
        keys = np.arange(3)
        calls = {"drain": f.drain, "cancel": lambda: f.cancel(0), "view": f.view, "verify": f.verify,
                 "read_rows": lambda: f.read_rows(keys),
                 "write_rows": lambda: f.write_rows(keys, np.zeros((3, DIM), F)),
                 "save": lambda: f.save(os.path.join(folder, "save")), "release_holders": f.release_holders,
                 "set_counts": lambda: f.set_counts(keys, np.ones(3, np.uint64))}
        said = {}
        for call, made in calls.items():
            try:
                made()
                said[call] = "it was done"
            except frugal.FrugalError as error:
                said[call] = (type(error).__name__, isinstance(error, frugal.errors.ProcessError), str(error))
        try:
            f.attach_cpu(0)
            said["attach"] = "it was done"
        except frugal.FrugalError as error:
            said["attach"] = (type(error).__name__, False, str(error))
        pipe.send(said)
        pipe.recv()


def trains_and_stays(pipe, f, device, steps):
    trainer = Trainer(f, device, STEPS)
    for step in range(steps):
        trainer.announce(step)
        trainer.step(step)
    pipe.send("ready")
    pipe.recv()


def joins_and_stays(pipe, name, steps):
    trains_and_stays(pipe, frugal.join(name), 1, steps)


def joins_and_announces(pipe, name):
    with frugal.join(name) as f:
        f.attach_cpu(1)
        f.announce(1, 0, batch(1, 1)[0][0])
        pipe.send("ready")
        pipe.recv()


def opens_and_stays(pipe, name, steps):
    f = frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, lookahead=2, workers=1, name=name)
    trains_and_stays(pipe, f, 0, steps)


class Other:
    """The other process, which is killed at the end if it has not ended."""

    def __init__(self, target, *arguments):
        self.pipe, there = spawn.Pipe()
        self.process = spawn.Process(target=target, args=(there, *arguments))
        self.process.start()
        there.close()

    def receive(self):
        if not self.pipe.poll(LIMIT):
            raise AssertionError(f"the other process has said nothing for {LIMIT} s")
        return self.pipe.recv()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()


class CtrlC:
    """As if Ctrl-C were pressed after so many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


class Bits(unittest.TestCase):
    def test_two_processes_have_the_bits_of_one(self):
        names = [name_of(f"bits {at}") for at in range(len(WAYS))]
        with Other(joins_and_trains, names) as other:
            for way, name in zip(WAYS, names):
                with frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, name=name, **way) as f:
                    self.assertEqual((f.name, f.joined), (name, False))
                    Trainer(f, 0, STEPS).train()
                    self.assertEqual(other.receive(), (True, f.rows, DIM, 2, f.lookahead, way["optimizer"],
                                                       way.get("rows_as", "fp32"), way.get("rounding", "stochastic")))
                    f.drain()
                    f.verify()
                    self.assertEqual(f.stats()["steps"], STEPS)
                    weights, state = all_rows(f)
                    other.pipe.send("go on")
                    for made, of in ((in_one_process, "one process"), (by_the_judge, "the reference")):
                        wanted = made(way)
                        self.assertTrue(weights.tobytes() == wanted[0].tobytes(), f"{of}: {way}")
                        self.assertTrue(state.tobytes() == wanted[1].tobytes(), f"{of}: {way}")
            other.process.join(LIMIT)
            self.assertEqual(other.process.exitcode, 0)


class Rules(unittest.TestCase):
    def test_what_a_process_that_has_joined_may_not_do(self):
        name = name_of("refused")
        with Other(joins_and_is_refused, name) as other, \
                frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, workers=1, name=name) as f:
            f.attach_cpu(0)
            said = other.receive()
            self.assertEqual(said.pop("attach")[0], "DeviceError")
            for call, answer in said.items():
                self.assertEqual(answer[:2], ("ProcessError", True), call)
                self.assertIn("the process that opened it has to make this call", answer[2])
            f.drain()  # here it may
            other.pipe.send("end")

    def test_names(self):
        with self.assertRaisesRegex(frugal.errors.ProcessError, "no process.*nobody; waited 0.1 s"):
            frugal.join("nobody", 0.1)
        with self.assertRaisesRegex(frugal.errors.ProcessError, "waited 0 s"):
            frugal.Frugal.join("nobody", 0)
        for wrong in ("", "x" * 65, "a\0b"):
            with self.assertRaises(frugal.errors.ArgumentError):
                frugal.join(wrong, 0)
            with self.assertRaises(frugal.errors.ArgumentError):
                frugal.Frugal(tables(), DIM, max_keys=KEYS, workers=1, name=wrong)
        with self.assertRaises(frugal.errors.ArgumentError):
            frugal.join("nobody", -1)
        with self.assertRaisesRegex(TypeError, "a str"):
            frugal.join(b"nobody", 0)
        with self.assertRaisesRegex(frugal.errors.ArgumentError, "worker"):
            frugal.Frugal(tables(), DIM, max_keys=KEYS, name=name_of("no workers"))
        name = name_of("twice")
        with frugal.Frugal(tables(), DIM, max_keys=KEYS, workers=1, name=name):
            with self.assertRaisesRegex(frugal.errors.ProcessError, "another instance has the name"):
                frugal.Frugal(tables(), DIM, max_keys=KEYS, workers=1, name=name)
        frugal.Frugal(tables(), DIM, max_keys=KEYS, workers=1, name=name).close()  # it went with its instance

    def test_ctrl_c_while_another_process_is_waited_for(self):
        since = time.monotonic()
        with self.assertRaises(KeyboardInterrupt), CtrlC(0.2):
            frugal.join(name_of("nobody"), LIMIT)
        name = name_of("ctrl-c")
        with Other(joins_and_announces, name) as other, \
                frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, workers=1, name=name) as f:
            f.attach_cpu(0)
            f.announce(0, 0, batch(0, 1)[0][0])
            self.assertEqual(other.receive(), "ready")
            f.lookup(0, 0)
            f.update(0, 0)
            with self.assertRaises(KeyboardInterrupt), CtrlC(0.2):
                f.announce(0, 1, batch(0, 1)[0][0])  # lookahead is 0, and device 1 has not updated step 0
            self.assertEqual(f.next_steps(0)["announce"], 1)
        self.assertLess(time.monotonic() - since, LIMIT / 2)


class Kills(unittest.TestCase):
    def killed(self, other):
        self.assertEqual(other.receive(), "ready")
        os.kill(other.process.pid, signal.SIGKILL)
        return time.monotonic()

    def test_a_process_that_has_joined(self):
        name, steps = name_of("killed"), 6
        with Other(joins_and_stays, name, steps) as other, \
                frugal.Frugal(tables(), DIM, max_keys=KEYS, devices=2, lookahead=2, workers=1, alone="staged",
                              optimizer="adagrad", name=name) as f:
            trainer = Trainer(f, 0, STEPS)
            reference = Reference(all_rows(f)[0], "adagrad", 2)
            for step in range(steps):
                trainer.announce(step)
                trainer.step(step)
                brought = []
                for device in range(2):
                    keys, grads = batch(device, step)
                    rows = np.concatenate([keys[0], keys[1] + 40])
                    brought.append(None if grads is None else (rows, grads))
                reference.train(brought, rate(step))
            since = self.killed(other)
            with self.assertRaisesRegex(frugal.errors.LostError, f"process {other.process.pid}"):
                for step in range(steps, STEPS):
                    trainer.announce(step)
                    trainer.step(step)
            self.assertLess(time.monotonic() - since, LIMIT / 2)
            f.drain()  # the table of the last step that both have finished
            weights, state = all_rows(f)
            self.assertEqual(f.stats()["steps"], steps)
            self.assertEqual(weights.tobytes(), reference.weights.tobytes())
            self.assertEqual(state.tobytes(), reference.state.tobytes())

    def test_the_process_that_opened(self):
        name, steps = name_of("killed opener"), 4
        with Other(opens_and_stays, name, steps) as other, frugal.join(name) as f:
            trainer = Trainer(f, 1, STEPS)
            for step in range(steps):
                trainer.announce(step)
                trainer.step(step)
            since = self.killed(other)
            with self.assertRaisesRegex(frugal.errors.LostError, f"process {other.process.pid}"):
                for step in range(steps, STEPS):
                    trainer.announce(step)
                    trainer.step(step)
            self.assertLess(time.monotonic() - since, LIMIT / 2)


if __name__ == "__main__":
    unittest.main()
