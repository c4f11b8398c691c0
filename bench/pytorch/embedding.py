#!/usr/bin/env python3
"""The embedding part in PyTorch: what one would use instead. Prints a line for each skew and
optimizer; with --json, an object.

    pip install torch numpy && python3 bench/pytorch/embedding.py [--rows 10000000] [--keys 53248] [--steps 30] [--json]

(Debian: python3-torch.)

torch.nn.functional.embedding with sparse gradients, then the sparse step of torch.optim; the keys of all devices of a
step in one batch, as many threads as the machine has. The gradient is the row itself, as in bench_step. Keys are drawn
before the clock runs; medians over steps, and the 5th and 95th percentiles.
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
from keys import draw


def measure(rows, dim, keys, steps, theta, optimizer_class):
    table = torch.nn.Embedding(rows, dim, sparse=True)
    optimizer = optimizer_class(table.parameters(), lr=0.01)
    batches = torch.from_numpy(draw(rows, keys, 16, theta, numpy.random.default_rng(42)))
    times = []
    for step in range(steps + 5):
        since = time.perf_counter()
        out = table(batches[step % 16])
        out.backward(out.detach())
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - since)
    return [float(keys / t) for t in numpy.quantile(times[5:], (0.5, 0.95, 0.05))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--keys", type=int, default=2 * 26624)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    if not o.json:
        print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, "
              f"{o.rows} x {o.dim}, {o.keys} keys a step")
    for name, optimizer in (("SGD", torch.optim.SGD), ("Adagrad", torch.optim.Adagrad)):
        for theta in (0, 0.99):
            rate, least, most = measure(o.rows, o.dim, o.keys, o.steps, theta, optimizer)
            if o.json:
                print(json.dumps({"optimizer": name.lower(), "zipf": theta,
                                  "keys_per_s": rate, "min": least, "max": most,
                                  "threads": torch.get_num_threads(), "version": torch.__version__}), flush=True)
                continue
            skew = "uniform" if theta == 0 else f"Zipf {theta}"
            print(f"{name:8s} {skew:10s} {rate / 1e6:6.2f} M keys/s ({least / 1e6:.2f} to {most / 1e6:.2f})",
                  flush=True)


main()
