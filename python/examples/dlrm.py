#!/usr/bin/env python3
"""DLRM on a click log that it generates: 26 tables and 13 numbers, as Criteo's logs have. Trains with Frugal in one
process; --torch trains the same model with torch.nn.EmbeddingBag(sparse=True), whose losses are the same to rounding.

    python3 python/examples/dlrm.py [--rows 20000] [--dim 16] [--batch 1024] [--steps 300] [--torch]
                                    [--device cpu] [--checkpoint FILE]

With --checkpoint, a run that finds the file goes on from it, with the same bits as a run that was not interrupted.
Prints the loss, samples per second, and the area under the ROC curve of the last tenth, which is not trained on.
"""
import argparse
import os
import time

import torch
from torch import nn

import frugal
import frugal.torch

TABLES, NUMBERS = 26, 13


def log(rows, batch, steps, seed=1):
    """Batches of (keys int64 [TABLES, batch], numbers float32 [batch, NUMBERS], clicks float32 [batch]).

    Keys are skewed: half of the accesses go to a twentieth of the rows. Each key has a hidden weight, and a click is
    drawn by the logistic function of the sum of a sample's weights."""
    for step in range(steps):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        keys = (torch.rand(TABLES, batch, generator=generator) ** 4 * rows).long().clamp_(max=rows - 1)
        numbers = torch.randn(batch, NUMBERS, generator=generator)
        hidden = torch.sin(keys.double() * 12.9898 + torch.arange(TABLES).unsqueeze(1) * 78.233).sum(0).float()
        chance = torch.sigmoid(0.7 * hidden + 0.3 * numbers.sum(1))
        yield keys, numbers, (torch.rand(batch, generator=generator) < chance).float()


def layers(sizes):
    made = []
    for at, (before, after) in enumerate(zip(sizes[:-1], sizes[1:])):
        made += [nn.Linear(before, after)] + ([nn.ReLU()] if at < len(sizes) - 2 else [])
    return nn.Sequential(*made)


class Dlrm(nn.Module):
    """Bottom layers for numbers, dot products of all pairs of embeddings, top layers (Naumov et al., 2019)."""

    def __init__(self, dim):
        super().__init__()
        self.bottom, pairs = layers([NUMBERS, 64, dim]), (TABLES + 1) * TABLES // 2
        self.top = layers([dim + pairs, 64, 1])
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, -1), persistent=False)

    def forward(self, numbers, pooled):
        """numbers [batch, NUMBERS], pooled [TABLES, batch, dim] to logits [batch]."""
        dense = self.bottom(numbers)
        all_rows = torch.cat([dense.unsqueeze(1), pooled.transpose(0, 1)], 1)
        products = torch.bmm(all_rows, all_rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1)).squeeze(1)


class TorchTables(nn.Module):
    """The baseline: one nn.EmbeddingBag for each table, with the first values of `ours`."""

    def __init__(self, ours, options):
        super().__init__()
        ours.drain()
        self.bags = nn.ModuleList(nn.EmbeddingBag(options.rows, options.dim, mode="sum", sparse=True)
                                  for _ in range(TABLES))
        with torch.no_grad():
            for at, bag in enumerate(self.bags):
                bag.weight.copy_(torch.tensor(ours.view(str(at))))

    def forward(self, features):
        return torch.stack([bag(features[str(at)]) for at, bag in enumerate(self.bags)])


def features_of(batch):
    return {str(at): batch[0][at].unsqueeze(1) for at in range(TABLES)}


def auc(scores, clicks):
    """The share of pairs of a click and a non-click that the scores order rightly."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positive = clicks.sum().item()
    below = ranks[clicks > 0].sum().item() - positive * (positive + 1) / 2
    return below / (positive * (len(clicks) - positive))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 20000), ("dim", 16), ("batch", 1024), ("steps", 300), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--torch", action="store_true", help="the baseline")
    parser.add_argument("--checkpoint", help="a file that is written at the end, and read where it exists")
    return parser.parse_args()


def main():
    options = read_options()
    torch.manual_seed(1)
    model = Dlrm(options.dim).to(options.device)
    dense = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    tables = frugal.torch.EmbeddingBagCollection(
        {str(at): (options.rows, options.dim) for at in range(TABLES)}, max_keys=TABLES * options.batch, stacked=True,
        optimizer="adagrad", lr=options.lr, init=frugal.Uniform(-0.05, 0.05), workers=options.workers,
        device=options.device)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint)
        first = saved["step"]
        for part, of in (("model", model), ("dense", dense), ("tables", tables)):
            of.load_state_dict(saved[part])
    trained = options.steps * 9 // 10
    batches = list(log(options.rows, options.batch, options.steps))
    embed = TorchTables(tables, options) if options.torch else tables
    sparse = torch.optim.Adagrad(embed.parameters(), lr=options.lr) if options.torch else None
    training = batches[first:trained]
    since = time.perf_counter()
    for step, batch in enumerate(training if options.torch else frugal.torch.Loader(training, tables, features_of),
                                 first):
        _, numbers, clicks = (part.to(options.device) for part in batch)
        loss = nn.functional.binary_cross_entropy_with_logits(model(numbers, embed(features_of(batch))), clicks)
        dense.zero_grad()
        if sparse is not None:
            sparse.zero_grad()
        loss.backward()  # updates the tables of Frugal
        dense.step()
        if sparse is not None:
            sparse.step()
        if step % 50 == 0 or step == trained - 1:
            print(f"step {step:4}  loss {loss.item():.6f}")
    seconds = time.perf_counter() - since
    with torch.no_grad():
        scores = torch.cat([model(batch[1].to(options.device), embed(features_of(batch))).cpu()
                            for batch in batches[trained:]])
    clicks = torch.cat([batch[2] for batch in batches[trained:]])
    print(f"{max(len(training), 0) * options.batch / seconds:.0f} samples/s; AUC {auc(scores, clicks):.4f}")
    if options.checkpoint:
        torch.save({"step": max(first, trained), "model": model.state_dict(), "dense": dense.state_dict(),
                    "tables": tables.state_dict()}, options.checkpoint)


if __name__ == "__main__":
    main()
