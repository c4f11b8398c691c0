#!/usr/bin/env python3
"""The same seed, the same bits? Trains one table many times: same data, seed and number of devices, but other numbers
of workers, other caches, lookahead and processes, and once with a kill and a resume in between. Prints the SHA-256 of
the weights and the optimizer state of each run; beside them, where PyTorch is installed, those of
torch.nn.EmbeddingBag with other numbers of threads and processes. docs/reproducible.md explains it.

    python3 python/bench/hashes.py [--rows 20000] [--dim 16] [--batch 512] [--steps 200] [--optimizer adagrad]
        [--rows-as fp32] [--check]

--rows-as bf16, or fp16: Frugal's weights have 16 bits, and updates round them by chance. Each run is a process of its
own. Exit status 1: hashes of Frugal differ. --check: those alone.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

DEVICES, SEED, LIMIT = 2, 7, 600
LR = 0.05

BASE = dict(lookahead=10, workers=1, cache=0.1)
OURS = [
    ("lookahead 10, 1 worker, caches of a tenth of the rows", dict(BASE)),
    ("once more", dict(BASE)),
    ("no lookahead, no workers, no caches", dict(lookahead=0, workers=0, cache=0)),
    ("lookahead 3, 3 workers, LRU caches that keep updates", dict(lookahead=3, workers=3, cache=0.05, policy="lru",
                                                                  alone="kept")),
    ("write-through, 2 workers, all updates staged", dict(lookahead=5, workers=2, cache=0.3, mode="sync",
                                                          alone="staged")),
    ("the table in a file, static caches", dict(lookahead=10, workers=1, cache=0.2, policy="static", file=True)),
    ("two processes, a device each", dict(lookahead=5, workers=2, cache=0.1, processes=2)),
    ("two processes, caches that keep updates", dict(BASE, alone="kept", processes=2)),
    ("saved, killed by SIGKILL, resumed with 2 workers", dict(lookahead=7, workers=2, cache=0.1, kill=True)),
]
# The devices' gradients of a row are added in the order of the devices: another number of them is another sum.
DEALT = [
    ("two devices", dict(BASE)),
    ("one device, with the batches of both", dict(BASE, devices=1)),
]
THEIRS = [
    ("sparse gradients, 1 thread", dict(sparse=True, threads=1)),
    ("once more", dict(sparse=True, threads=1)),
    ("sparse gradients, 2 threads", dict(sparse=True, threads=2)),
    ("dense gradients, 1 thread", dict(sparse=False, threads=1)),
    ("dense gradients, 2 threads", dict(sparse=False, threads=2)),
    ("dense gradients, DistributedDataParallel (gloo), 2 processes", dict(sparse=False, threads=1, processes=2)),
    ("once more", dict(sparse=False, threads=1, processes=2)),
]
LAYERS = [
    ("sparse gradients and two linear layers, 1 thread", dict(sparse=True, threads=1, layers=True)),
    ("once more", dict(sparse=True, threads=1, layers=True)),
    ("sparse gradients and two linear layers, 2 threads", dict(sparse=True, threads=2, layers=True)),
]


def batch(options, device, step):
    """Keys int64 [n], offsets int32 [batch + 1], targets float32 [batch, dim]: the same in every run."""
    generator = np.random.default_rng([SEED, device, step])
    sizes = generator.integers(0, 8, options.batch)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    keys = (generator.zipf(1.2, offsets[-1]) * 2654435761 % options.rows).astype(np.int64)
    return keys, offsets, generator.standard_normal((options.batch, options.dim), np.float32)


def share(options, step, rank, size):
    """What one of `size` devices or processes trains at a step: the batch of its rank, or all behind one another."""
    parts = [batch(options, device, step) for device in (range(DEVICES) if size == 1 else [rank])]
    ends = np.cumsum([0] + [len(keys) for keys, _, _ in parts])
    offsets = np.concatenate([[0]] + [of[1:] + end for (_, of, _), end in zip(parts, ends)]).astype(np.int32)
    return np.concatenate([part[0] for part in parts]), offsets, np.concatenate([part[2] for part in parts])


def gradient(pooled, targets):
    """Of a loss that draws each pooled row to its target, with a bounded slope."""
    error = pooled - targets
    return error / (1 + abs(error)) / len(targets)


def digest(*arrays):
    made = hashlib.sha256()
    for array in arrays:
        made.update(np.ascontiguousarray(array))
    return made.hexdigest()


# A run of Frugal, in its own process

def train(options, run, rank, first, end):
    """Trains steps `first` to `end` - 1, and prints the hash; with "kill" it saves at a third, and is killed."""
    import frugal_embedding as frugal
    size, parted = run.get("devices", DEVICES), run.get("processes", 1) > 1
    devices = [rank] if parted else range(size)
    if rank:
        f = frugal.join(run["name"], LIMIT)
    else:
        f = frugal.Frugal([frugal.Table(options.rows, frugal.Uniform(-0.1, 0.1))], options.dim, devices=size,
                          max_keys=16 * options.batch, lookahead=run["lookahead"], workers=run["workers"], seed=SEED,
                          rows_as=options.rows_as, optimizer=options.optimizer, mode=run.get("mode", "p2f"),
                          alone=run.get("alone", "default"), file=run.get("table"), saved=run.get("saved", []),
                          name=run.get("name"))
    for device in devices:
        f.attach_cpu(device, int(run["cache"] * options.rows), run.get("policy", "counted"))
    ahead = first
    for step in range(first, end):
        while ahead < end and ahead <= step + f.lookahead:
            for device in devices:
                f.announce(device, ahead, share(options, ahead, device, size)[0])
            ahead += 1
        for device in devices:
            _, offsets, targets = share(options, step, device, size)
            pooled = f.lookup_bags(device, step, offsets)
            f.update(device, step, gradient(pooled, targets) * np.float32(DEVICES // size), LR, by_bag=True)
        if run.get("save") and step == options.steps // 3:
            f.drain()
            f.save(run["save"])
            print("saved", flush=True)
    if f.joined:
        f.close()
        return
    if run.get("save"):
        time.sleep(LIMIT)  # this run ends by a kill
    if parted:
        sys.stdin.readline()  # the other process has left
    f.drain()
    f.verify()
    print(digest(*f.read_rows(np.arange(options.rows), state=True)), flush=True)
    f.close()


# A run of PyTorch, in its own process

def train_torch(options, run, rank):
    import torch
    torch.set_num_threads(run["threads"])
    torch.manual_seed(SEED)
    bag = torch.nn.EmbeddingBag(options.rows, options.dim, mode="sum", sparse=run["sparse"], include_last_offset=True)
    tower = torch.nn.Sequential(torch.nn.Linear(options.dim, 256), torch.nn.ReLU(),
                                torch.nn.Linear(256, options.dim)) if run.get("layers") else None
    optimizers = [torch.optim.Adagrad(bag.parameters(), lr=LR)]
    if tower is not None:
        optimizers.append(torch.optim.Adagrad(tower.parameters(), lr=LR))
    model, size = bag, run.get("processes", 1)
    if size > 1:
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{run['meeting']}", rank=rank, world_size=size)
        model = torch.nn.parallel.DistributedDataParallel(bag)
    for step in range(options.steps):
        keys, offsets, targets = share(options, step, rank, size)
        pooled = model(torch.from_numpy(keys), torch.from_numpy(offsets.astype(np.int64)))
        out = pooled if tower is None else tower(pooled)
        for optimizer in optimizers:
            optimizer.zero_grad()
        # Of both devices the sum is wanted, as of Frugal; DistributedDataParallel makes the mean.
        out.backward(gradient(out.detach(), torch.from_numpy(targets)) * DEVICES)
        for optimizer in optimizers:
            optimizer.step()
    if rank == 0:
        print(digest(bag.weight.detach().numpy(), optimizers[0].state[bag.weight]["sum"].numpy()), flush=True)


# The launcher

def start(options, kind, run, rank=0, first=0):
    arguments = [f"--{name}={getattr(options, name.replace('-', '_'))}"
                 for name in ("rows", "dim", "batch", "steps", "optimizer", "rows-as")]
    environment = dict(os.environ, OMP_NUM_THREADS=str(run.get("threads", 1)), OPENBLAS_NUM_THREADS="1")
    return subprocess.Popen([sys.executable, "-W", "ignore", __file__, *arguments, "--run",
                             json.dumps([kind, run, rank, first])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, env=environment)


def hash_of(options, kind, run, folder):
    run = dict(run)
    if run.pop("file", False):
        run["table"] = os.path.join(folder, "table")
    first = 0
    if run.pop("kill", False):
        run["save"] = os.path.join(folder, "save")
        killed = start(options, kind, run)
        if killed.stdout.readline() != "saved\n":
            raise SystemExit("hashes: the run that was to be killed has not saved")
        time.sleep(0.05)  # it trains on
        killed.kill()
        killed.communicate()
        first = options.steps // 3 + 1
        run.update(saved=[run.pop("save")], workers=2)
    processes = run.get("processes", 1)
    if processes > 1:
        run.update(name=f"hashes {os.getpid()}", meeting=tempfile.mktemp(dir=folder))
    started = [start(options, kind, run, rank, first) for rank in range(processes)]
    try:
        for other in started[1:]:
            other.communicate(timeout=LIMIT)
        said = started[0].communicate("the others have left\n", timeout=LIMIT)[0].split()
    finally:
        for one in started:
            one.kill()
            one.wait()
    if any(one.returncode for one in started) or not said:
        raise SystemExit(f"hashes: the run {run} has failed")
    return said[-1]


def compare(options, kind, title, runs):
    """Prints the hash of each run; whether all are equal."""
    print(f"{title}\n")
    hashes = []
    for what, run in runs:
        with tempfile.TemporaryDirectory() as folder:
            hashes.append(hash_of(options, kind, run, folder))
        print(f"{hashes[-1]}  {what}", flush=True)
    different = len(set(hashes))
    print("\nall are equal\n" if different == 1 else f"\n{different} different ones\n")
    return different == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 20000), ("dim", 16), ("batch", 512), ("steps", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--optimizer", default="adagrad", choices=("sgd", "adagrad", "rowwise_adagrad", "adam"))
    parser.add_argument("--rows-as", default="fp32", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--check", action="store_true", help="Frugal's runs alone")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        kind, run, rank, first = json.loads(options.run)
        if kind == "frugal":
            return train(options, run, rank, first, options.steps)
        return train_torch(options, run, rank)
    import frugal_embedding as frugal
    weights = "" if options.rows_as == "fp32" else f", weights of {options.rows_as}"
    equal = compare(options, "frugal",
                    f"Frugal {frugal.__version__}, {options.optimizer}{weights}: one table, two devices",
                    OURS if sys.platform.startswith("linux") else [run for run in OURS if "processes" not in run[1]])
    if options.check:
        return 0 if equal else 1
    compare(options, "frugal", "What the bits do depend on", DEALT)
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: its runs are left out")
    else:
        version = f"PyTorch {torch.__version__}, torch.nn.EmbeddingBag, torch.optim.Adagrad"
        compare(options, "torch", f"{version}: the table alone", THEIRS)
        compare(options, "torch", f"{version}: behind it linear layers", LAYERS)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
