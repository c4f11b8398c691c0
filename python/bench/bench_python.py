#!/usr/bin/env python3
"""What a step costs from Python, and training beside torch.nn.EmbeddingBag(sparse=True) with torch's sparse Adagrad.

    python3 python/bench/bench_python.py [--json] [--tables 26] [--rows 100000] [--dim 32] [--batch 2048] [--steps 20]

Two measurements, in one process.

1. overhead: a step of one key, in microseconds: the three calls in C (compiled for this measurement, where there is a
   C compiler), the same calls by frugal.Frugal with NumPy arrays, and a forward and backward of
   frugal.torch.EmbeddingBag. Median of repetitions.
2. training: a model of tables and a small dense part, on a generated log whose keys are Zipf-distributed. The same
   first values, data and learning rate for both. Both train the same steps in turns of --steps; time of each turn,
   median and spread; the losses of all steps are compared.

Wall time, and processor time of the process, which other programs on the machine disturb less.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

import frugal
from frugal import _library

C_LOOP = """
#include <time.h>
#include "frugal.h"
double steps(frugal *f, uint64_t first, int n, const uint64_t *key, float *row, const float *grad) {
    frugal_keys keys = {.keys = key, .n = 1};
    frugal_batch batch = {.segments = &keys, .n_segments = 1};
    frugal_gradients gradients = {.grads = grad, .lr = 0.01f};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++, first++)
        if (frugal_announce(f, 0, first, &batch) || frugal_lookup(f, 0, first, row) ||
            frugal_update(f, 0, first, &gradients))
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}
"""


def c_loop(folder):
    """The function `steps` of C_LOOP, or None where it cannot be compiled."""
    headers = pathlib.Path(__file__).resolve().parents[2]
    source = pathlib.Path(folder, "loop.c")
    source.write_text(C_LOOP)
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O3", "-shared", "-fPIC", f"-I{headers}", str(source),
               _library.lib._name, "-o", f"{folder}/loop.so"]
    try:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
    except FileNotFoundError:
        return None
    steps = ctypes.CDLL(f"{folder}/loop.so").steps
    steps.restype = ctypes.c_double
    steps.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int] + 3 * [ctypes.c_void_p]
    return steps


def overhead(repeats=9, n=4000):
    """Microseconds of a step of one key of 8 floats."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, frugal.Frugal([1000], 8, max_keys=8, optimizer="adagrad") as f:
        f.attach_cpu()
        key, row, grad = np.array([5]), np.empty((1, 8), np.float32), np.ones((1, 8), np.float32)
        loop, step = c_loop(folder), 0
        times = {"c": [], "numpy": [], "numpy_cpu": []}
        for _ in range(repeats):
            if loop:
                seconds = loop(f._handle, step, n, key.ctypes.data, row.ctypes.data, grad.ctypes.data)
                assert seconds > 0, "a call of the C loop has failed"
                times["c"].append(seconds / n * 1e6)
                step += n
                for device in f._devices:  # the calls of the C loop
                    device.announced = device.looked_up = device.updated = step
            since, cpu = time.perf_counter(), time.process_time()
            for _ in range(n):
                f.announce(0, step, key)
                f.lookup(0, step, row)
                f.update(0, step, grad, 0.01)
                step += 1
            times["numpy"].append((time.perf_counter() - since) / n * 1e6)
            times["numpy_cpu"].append((time.process_time() - cpu) / n * 1e6)
        found.update({name: statistics.median(values) for name, values in times.items() if values})
    try:
        import torch
        from frugal import torch as ft
    except ImportError:
        return found
    bag = ft.EmbeddingBag(1000, 8, max_keys=8, mode="sum", lookahead=0)
    plain = torch.zeros(1, 8, requires_grad=True)
    ids, grad = torch.tensor([[5]]), torch.ones(1, 8)
    times = {"torch": [], "torch_cpu": [], "autograd": [], "autograd_cpu": []}
    for _ in range(repeats):
        for name, forward in (("torch", lambda: bag(ids)), ("autograd", lambda: plain * 1)):
            since, cpu = time.perf_counter(), time.process_time()
            for _ in range(n // 4):
                forward().backward(grad)
            times[name].append((time.perf_counter() - since) / (n // 4) * 1e6)
            times[f"{name}_cpu"].append((time.process_time() - cpu) / (n // 4) * 1e6)
    found.update({name: statistics.median(values) for name, values in times.items()})
    return found


def training(options):
    import torch
    from frugal import torch as ft
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    names = [f"t{i}" for i in range(options.tables)]
    total = options.steps * (options.repeats + 1)
    generator = np.random.default_rng(3)
    draws = np.minimum(generator.zipf(1.2, (total, options.tables, options.batch)) - 1, options.rows * 1000)
    draws = torch.from_numpy((draws * 2654435761 % options.rows).astype(np.int64))
    label = (draws[:, 0] % 3 == 0).float() * 0.8 + 0.1

    ours = ft.EmbeddingBagCollection(
        {name: (options.rows, options.dim) for name in names}, max_keys=options.tables * options.batch, stacked=True,
        lr=0.02, optimizer="adagrad", init=frugal.Uniform(-0.05, 0.05), workers=options.workers,
        lookahead=options.lookahead)
    ours.drain()
    theirs = torch.nn.ModuleList(torch.nn.EmbeddingBag(options.rows, options.dim, mode="sum", sparse=True)
                                 for _ in names)
    with torch.no_grad():
        for name, bag in zip(names, theirs):
            bag.weight.copy_(torch.from_numpy(np.array(ours.view(name))))
    heads = [torch.nn.Sequential(torch.nn.Linear(options.dim, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
             for _ in range(2)]
    heads[1].load_state_dict(heads[0].state_dict())
    dense = [torch.optim.SGD(head.parameters(), lr=0.01) for head in heads]
    sparse = torch.optim.Adagrad(theirs.parameters(), lr=0.02)
    bags = torch.arange(options.batch)

    def step_of_ours(keys):
        return ours({name: keys[at].unsqueeze(1) for at, name in enumerate(names)})

    def step_of_theirs(keys):
        return torch.stack([bag(keys[at], bags) for at, bag in enumerate(theirs)])

    def turn(which, batches):
        losses, embed = [], (step_of_ours, step_of_theirs)[which]
        since, cpu = time.perf_counter(), time.process_time()
        for keys, wanted in batches:
            dense[which].zero_grad()
            if which == 1:
                sparse.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                heads[which](embed(keys).sum(0)).squeeze(1), wanted)
            loss.backward()
            dense[which].step()
            if which == 1:
                sparse.step()
            losses.append(loss.item())
        if which == 0:
            ours.drain()
        return (time.perf_counter() - since) / len(losses), (time.process_time() - cpu) / len(losses), losses

    features = (lambda pair: {name: pair[0][at].unsqueeze(1) for at, name in enumerate(names)})
    times, cpus, apart = ([], []), ([], []), 0.0
    for repeat in range(options.repeats + 1):  # the first is not counted
        part = slice(repeat * options.steps, (repeat + 1) * options.steps)
        batches = list(zip(draws[part], label[part]))
        order = (0, 1) if repeat % 2 else (1, 0)
        losses = {}
        for which in order:
            given = ft.Loader(batches, ours, features) if which == 0 else batches
            seconds, cpu, losses[which] = turn(which, given)
            if repeat:
                times[which].append(seconds * 1e3)
                cpus[which].append(cpu * 1e3)
        apart = max([apart] + [abs(a - b) / abs(b) for a, b in zip(losses[0], losses[1])])
    return {"frugal_ms": statistics.median(times[0]), "torch_ms": statistics.median(times[1]),
            "frugal_spread_ms": [min(times[0]), max(times[0])], "torch_spread_ms": [min(times[1]), max(times[1])],
            "frugal_cpu_ms": statistics.median(cpus[0]), "torch_cpu_ms": statistics.median(cpus[1]),
            "cpu_ratio": statistics.median(cpus[1]) / statistics.median(cpus[0]),
            "ratio": statistics.median(times[1]) / statistics.median(times[0]),
            "largest_relative_difference_of_losses": apart, "last_loss": losses[0][-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, what in (("tables", 26, "tables"), ("rows", 100000, "rows of each"), ("dim", 32, "floats a row"),
                                ("batch", 2048, "samples a step"), ("steps", 20, "steps of a turn"),
                                ("repeats", 5, "turns that are measured"), ("workers", 0, "flush threads"),
                                ("lookahead", 10, "steps announced ahead"), ("threads", 2, "of PyTorch")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    report = {"version": frugal.__version__, "python": platform.python_version(), "processors": os.cpu_count(),
              "settings": {k: v for k, v in vars(options).items() if k != "json"}, "overhead_us": overhead()}
    try:
        import torch
        report["torch"] = torch.__version__
        report["training"] = training(options)
    except ImportError:
        print("SKIPPED: training beside PyTorch, because it is not installed (pip install torch)", file=sys.stderr)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("a step of one key, us:", "  ".join(f"{name} {value:.1f}" for name, value in report["overhead_us"].items()))
    if "training" in report:
        t = report["training"]
        print(f"{options.tables} tables x {options.rows} rows x {options.dim}, batch {options.batch}: frugal "
              f"{t['frugal_ms']:.1f} ms a step ({t['frugal_spread_ms'][0]:.1f} to {t['frugal_spread_ms'][1]:.1f}), "
              f"torch {t['torch_ms']:.1f} ({t['torch_spread_ms'][0]:.1f} to {t['torch_spread_ms'][1]:.1f}): "
              f"{t['ratio']:.2f} times (of processor time {t['cpu_ratio']:.2f}); losses differ by at most "
              f"{t['largest_relative_difference_of_losses']:.1e} of their value")


if __name__ == "__main__":
    main()
