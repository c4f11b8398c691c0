#!/usr/bin/env python3
"""DLRM as one would write it in PyTorch, to compare the speed of build/dlrm with:

    pip install torch numpy && python3 bench/pytorch/dlrm.py [--dim 32] [--batch 1024] [--zipf 0.99] [--json]
    pip install fbgemm-gpu-cpu && python3 bench/pytorch/dlrm.py --tables fbgemm

One nn.EmbeddingBag(sparse=True) per feature, the same layers as build/dlrm's defaults, sparse Adagrad on the tables and
Adagrad on the layers; with `--tables fbgemm` FBGEMM's table-batched embedding, whose Adagrad runs in its backward, as
TorchRec has it. Keys are Zipf-distributed as bench/keys.c draws them, samples are in memory before the
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


class Bags(torch.nn.Module):
    """A table a feature. Called with keys[features][batch]; returns [batch][features][dim]."""

    def __init__(self, o):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(o.rows // o.features, o.dim, mode="sum", sparse=True) for _ in range(o.features))
        self.optimizer = torch.optim.Adagrad(self.tables.parameters(), lr=0.05)
        self.offsets = torch.arange(o.batch)

    def forward(self, keys):
        return torch.stack([table(keys[i], self.offsets) for i, table in enumerate(self.tables)], dim=1)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class Fbgemm(torch.nn.Module):
    """The same by FBGEMM, which updates rows in its backward."""

    def __init__(self, o):
        super().__init__()
        try:
            from fbgemm_gpu.split_embedding_configs import EmbOptimType
            from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
            from fbgemm_gpu.split_table_batched_embeddings_ops_training import (ComputeDevice,
                                                                                SplitTableBatchedEmbeddingBagsCodegen)
        except (ImportError, OSError) as missing:
            print(f"SKIPPED: {missing}; pip install fbgemm-gpu-cpu, of the version that fits this torch")
            sys.exit(0)
        one = (o.rows // o.features, o.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self.tables = SplitTableBatchedEmbeddingBagsCodegen([one] * o.features, optimizer=EmbOptimType.EXACT_ADAGRAD,
                                                            learning_rate=0.05, eps=1e-10)
        self.tables.init_embedding_weights_uniform(-0.05, 0.05)
        self.offsets = torch.arange(o.features * o.batch + 1)
        self.shape = (o.batch, o.features, o.dim)

    def forward(self, keys):
        return self.tables(keys.view(-1), self.offsets).view(self.shape)

    def step(self):
        pass


TABLES = {"torch": Bags, "fbgemm": Fbgemm}


class Dlrm(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tables = TABLES[o.tables](o)
        self.bottom = layers([o.numbers, *o.bottom, o.dim], last=True)
        vectors = o.features + 1
        self.pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.top = layers([o.dim + vectors * (vectors - 1) // 2, *o.top, 1], last=False)

    def forward(self, numbers, keys):
        dense = self.bottom(numbers)
        vectors = torch.cat([dense.unsqueeze(1), self.tables(keys)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("--dim", 32), ("--batch", 1024), ("--features", 26), ("--numbers", 13), ("--rows", 10_000_000),
                        ("--steps", 60)):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--zipf", type=float, default=0.99)
    parser.add_argument("--tables", choices=TABLES, default="torch")
    parser.add_argument("--threads", type=int, help="that compute; PyTorch's choice, if not given")
    for name, value in (("--bottom", [64]), ("--top", [512, 512, 256])):
        parser.add_argument(name, type=lambda text: [int(width) for width in text.split(",")], default=value)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    torch.manual_seed(1)
    if o.threads:
        torch.set_num_threads(o.threads)
    generator = numpy.random.default_rng(42)
    model = Dlrm(o)
    dense = torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], lr=0.02)
    keys = torch.stack([torch.from_numpy(draw(o.rows // o.features, o.batch, BATCHES, o.zipf, generator))
                        for _ in range(o.features)], dim=1) # [batches][features][batch]
    numbers = torch.rand(BATCHES, o.batch, o.numbers)
    labels = (torch.rand(BATCHES, o.batch) < 0.25).float()
    times = []
    for step in range(o.steps + WARM_UP):
        b = step % BATCHES
        since = time.perf_counter()
        logits = model(numbers[b], keys[b])
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[b]).backward()
        model.tables.step()
        dense.step()
        dense.zero_grad()
        times.append(time.perf_counter() - since)
    times = sorted(times[WARM_UP:])
    rate = o.batch / times[len(times) // 2]
    if o.json:
        print(json.dumps({"what": o.tables, "version": torch.__version__, "threads": torch.get_num_threads(),
                          "dim": o.dim, "batch": o.batch, "samples_per_s": rate}))
    else:
        print(f"PyTorch {torch.__version__}, tables of {o.tables}, {torch.get_num_threads()} threads: "
              f"DLRM, {o.features} features x dim {o.dim}, {o.rows:,} rows, batch {o.batch}: {rate:,.0f} samples/s")


main()
