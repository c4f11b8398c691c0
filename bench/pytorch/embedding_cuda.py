#!/usr/bin/env python3
"""The embedding part in PyTorch on a GPU: what one would use instead. Prints one line a case; with --json, an object.

    pip install torch numpy
    python3 bench/pytorch/embedding_cuda.py [--rows 10000000] [--keys 26624] [--steps 30] [--json]

torch.nn.EmbeddingBag with sparse gradients, one bag per key, then the sparse step of torch.optim; the gradient is
row * 0.001, made on the GPU, as in bench_cuda. Two ways:

    host    the table stays in host memory, and so do its gathers and its optimizer: rows are gathered into pinned
            memory and copied to the GPU, gradients are copied back, and torch's threads apply them
    gpu     the whole table lies in the GPU's memory: possible only if it fits, and then the upper bound for the others

Keys are drawn before the clock runs. Wall time of a step, with the GPU's work done at its end; medians over steps, and
the 5th and 95th percentiles.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("OMP_PROC_BIND", "true")  # threads keep their processors, as in bench_step; read at import

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch numpy")
    sys.exit(0)
if not torch.cuda.is_available():
    print(f"SKIPPED: PyTorch {torch.__version__} finds no GPU")
    sys.exit(0)
from keys import draw

WARM_UP = 5


def host_step(table, optimizer, keys, offsets, pinned):
    out = table(keys, offsets)
    pinned.copy_(out.detach())
    on_gpu = pinned.cuda(non_blocking=True)
    gradient = on_gpu * 0.001
    pinned.copy_(gradient, non_blocking=True)
    torch.cuda.synchronize()
    out.backward(pinned)
    optimizer.step()
    optimizer.zero_grad()


def gpu_step(table, optimizer, keys, offsets, _):
    out = table(keys, offsets)
    out.backward(out.detach() * 0.001)
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()


def measure(where, o, theta, optimizer_class):
    device = "cuda" if where == "gpu" else "cpu"
    table = torch.nn.EmbeddingBag(o.rows, o.dim, mode="sum", sparse=True, device=device)
    optimizer = optimizer_class(table.parameters(), lr=0.01)
    # a batch for each step, as in bench_cuda
    drawn = draw(o.rows, o.keys, o.steps + WARM_UP, theta, numpy.random.default_rng(42))
    batches = torch.from_numpy(drawn).to(device)
    offsets = torch.arange(o.keys, device=device)
    pinned = torch.empty(o.keys, o.dim, pin_memory=True)
    step = gpu_step if where == "gpu" else host_step
    times = []
    for i in range(o.steps + WARM_UP):
        since = time.perf_counter()
        step(table, optimizer, batches[i], offsets, pinned)
        times.append(time.perf_counter() - since)
    return [float(o.keys / t) for t in numpy.quantile(times[WARM_UP:], (0.5, 0.95, 0.05))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--keys", type=int, default=26624)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    gpu = torch.cuda.get_device_name()
    if not o.json:
        print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {gpu}, "
              f"{o.rows} x {o.dim}, {o.keys} keys a step")
    for where in ("host", "gpu"):
        for name, optimizer in (("SGD", torch.optim.SGD), ("Adagrad", torch.optim.Adagrad)):
            for theta in (0, 0.99):
                try:
                    rate, least, most = measure(where, o, theta, optimizer)
                except torch.cuda.OutOfMemoryError:
                    print(f"SKIPPED: {where}, {name}: {o.rows} x {o.dim} do not fit into the GPU's memory",
                          file=sys.stderr)
                    continue
                if o.json:
                    print(json.dumps({"experiment": "pytorch", "where": where, "optimizer": name.lower(),
                                      "rows": o.rows, "dim": o.dim, "keys": o.keys, "zipf": theta,
                                      "keys_per_s": rate, "min": least, "max": most, "gpu": gpu,
                                      "threads": torch.get_num_threads(), "version": torch.__version__}), flush=True)
                else:
                    skew = "uniform" if theta == 0 else f"Zipf {theta}"
                    print(f"{where:5s} {name:8s} {skew:10s} {rate / 1e6:6.2f} M keys/s "
                          f"({least / 1e6:.2f} to {most / 1e6:.2f})", flush=True)


main()
