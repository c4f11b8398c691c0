#!/usr/bin/env python3
"""DLRM as one would write it in PyTorch, to compare the speed of build/dlrm with:

    pip install torch numpy && python3 bench/pytorch/dlrm.py [--dim 32] [--batch 1024] [--zipf 0.99] [--json]

One nn.EmbeddingBag(sparse=True) per feature, the same layers as build/dlrm's defaults, sparse Adagrad on the tables and
Adagrad on the layers. Keys are Zipf-distributed as bench/keys.c draws them, samples are in memory before the
clock runs, so reading is not counted. Prints samples a second, the median over steps; --json: one object a line.
"""
import argparse
import json
import sys
import time

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install torch numpy")
    sys.exit(0)
from keys import draw

BATCHES, WARM_UP = 16, 5


def layers(widths, last):
    made = []
    for before, after in zip(widths, widths[1:]):
        made += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*(made if last else made[:-1]))


class Dlrm(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(o.rows // o.features, o.dim, mode="sum", sparse=True) for _ in range(o.features))
        self.bottom = layers([o.numbers, *o.bottom, o.dim], last=True)
        vectors = o.features + 1
        self.pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.top = layers([o.dim + vectors * (vectors - 1) // 2, *o.top, 1], last=False)

    def forward(self, numbers, keys, offsets):
        dense = self.bottom(numbers)
        vectors = torch.stack([dense] + [table(keys[i], offsets) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("--dim", 32), ("--batch", 1024), ("--features", 26), ("--numbers", 13), ("--rows", 10_000_000),
                        ("--steps", 60)):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--zipf", type=float, default=0.99)
    for name, value in (("--bottom", [64]), ("--top", [512, 512, 256])):
        parser.add_argument(name, type=lambda text: [int(width) for width in text.split(",")], default=value)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    torch.manual_seed(1)
    generator = numpy.random.default_rng(42)
    model = Dlrm(o)
    sparse = torch.optim.Adagrad(model.tables.parameters(), lr=0.05)
    dense = torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], lr=0.02)
    keys = [torch.from_numpy(draw(o.rows // o.features, o.batch, BATCHES, o.zipf, generator))
            for _ in range(o.features)]
    numbers = torch.rand(BATCHES, o.batch, o.numbers)
    labels = (torch.rand(BATCHES, o.batch) < 0.25).float()
    offsets, times = torch.arange(o.batch), []
    for step in range(o.steps + WARM_UP):
        b = step % BATCHES
        since = time.perf_counter()
        logits = model(numbers[b], [feature[b] for feature in keys], offsets)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[b]).backward()
        sparse.step()
        dense.step()
        sparse.zero_grad()
        dense.zero_grad()
        times.append(time.perf_counter() - since)
    times = sorted(times[WARM_UP:])
    rate = o.batch / times[len(times) // 2]
    if o.json:
        print(json.dumps({"what": "pytorch", "version": torch.__version__, "threads": torch.get_num_threads(),
                          "dim": o.dim, "batch": o.batch, "samples_per_s": rate}))
    else:
        print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads: "
              f"DLRM, {o.features} features x dim {o.dim}, {o.rows:,} rows, batch {o.batch}: {rate:,.0f} samples/s")


main()
