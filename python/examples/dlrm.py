#!/usr/bin/env python3
"""DLRM on a click log that it generates: 26 tables and 13 numbers, as Criteo's logs have. Trains with Frugal in one
process, or in several that torchrun starts; --torch trains the same model with torch.nn.EmbeddingBag(sparse=True),
whose losses are the same to rounding.

    python3 python/examples/dlrm.py [--rows 20000] [--dim 16] [--batch 1024] [--steps 300] [--torch]
                                    [--rows-as fp32] [--rounding stochastic] [--device cpu] [--checkpoint FILE]
    torchrun --standalone --nproc-per-node 2 python/examples/dlrm.py ...

Of several processes each trains a part of every batch: the tables are one, in the memory of rank 0, and the rest of the
model is DistributedDataParallel's. On GPUs write --device cuda: process r uses GPU r.

--rows-as bf16, or fp16: the tables' weights have 16 bits, rounded at each step, stochastically or --rounding nearest.
With --checkpoint, a run that finds the file goes on from it, with the same bits as a run that was not interrupted.
Prints the loss, samples per second, and the area under the ROC curve of the last tenth, which is not trained on.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from frugal_embedding import Uniform
from frugal_embedding.torch import EmbeddingBagCollection, Loader, Processes

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
                bag.weight.copy_(ours.view_tensor(str(at)))

    def forward(self, features):
        return torch.stack([bag(features[str(at)]) for at, bag in enumerate(self.bags)])


def features_of(batch):
    return {str(at): batch[0][at].unsqueeze(1) for at in range(TABLES)}


def part_of(batch, processes):
    """The samples of a batch that this process trains, next to each other in memory."""
    keys, numbers, clicks = batch
    of = slice(processes.rank, None, processes.world_size)
    return keys[:, of].contiguous(), numbers[of].contiguous(), clicks[of].contiguous()


def of_all(value, processes):
    """The tensors `value` of all processes, which have one shape, one behind the other."""
    if processes.world_size == 1:
        return value
    parts = [torch.empty_like(value) for _ in range(processes.world_size)]
    dist.all_gather(parts, value)
    return torch.cat(parts)


def meet(processes):
    """Waits until all processes are here: rank 0 must not read or close tables while others train, nor they train
    before it has written them."""
    if processes.world_size > 1:
        dist.barrier()


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
    parser.add_argument("--rows-as", default="fp32", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--rounding", default="stochastic", choices=("stochastic", "nearest"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--torch", action="store_true", help="the baseline")
    parser.add_argument("--checkpoint", help="a file that is written at the end, and read where it exists")
    options = parser.parse_args()
    processes = Processes()
    if options.batch % processes.world_size:
        parser.error(f"--batch: a multiple of {processes.world_size}, the number of processes, is wanted")
    if options.torch and processes.world_size > 1:
        parser.error("--torch: the baseline is one process")
    if options.device == "cuda":
        options.device = f"cuda:{processes.local_rank}"
    return options, processes


def main():
    options, processes = read_options()
    if processes.world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Dlrm(options.dim).to(options.device)
    dense = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    # The mean over processes, as of the other gradients: so the loss is that of the whole batch.
    tables = EmbeddingBagCollection(
        {str(at): (options.rows, options.dim) for at in range(TABLES)},
        max_keys=TABLES * options.batch // processes.world_size, stacked=True, optimizer="adagrad", lr=options.lr,
        init=Uniform(-0.05, 0.05), workers=options.workers, device=options.device, reduce="mean",
        processes=processes, rows_as=options.rows_as, rounding=options.rounding)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint)
        first = saved["step"]
        for part, of in (("model", model), ("dense", dense), ("tables", tables)):
            of.load_state_dict(saved[part])
    meet(processes)
    trained = options.steps * 9 // 10
    batches = [part_of(batch, processes) for batch in log(options.rows, options.batch, options.steps)]
    embed = TorchTables(tables, options) if options.torch else tables
    sparse = torch.optim.Adagrad(embed.parameters(), lr=options.lr) if options.torch else None
    forward = model if processes.world_size == 1 else DistributedDataParallel(model)
    training = batches[first:trained]
    since = time.perf_counter()
    for step, batch in enumerate(training if options.torch else Loader(training, tables, features_of),
                                 first):
        _, numbers, clicks = (part.to(options.device) for part in batch)
        loss = nn.functional.binary_cross_entropy_with_logits(forward(numbers, embed(features_of(batch))), clicks)
        dense.zero_grad()
        if sparse is not None:
            sparse.zero_grad()
        loss.backward()  # updates the tables of Frugal
        dense.step()
        if sparse is not None:
            sparse.step()
        if step % 50 == 0 or step == trained - 1:
            mean = of_all(loss.detach().reshape(1), processes).mean().item()
            if processes.rank == 0:
                print(f"step {step:4}  loss {mean:.6f}")
    seconds = time.perf_counter() - since
    of_tables = None
    if options.checkpoint:  # before the evaluation, whose steps count, too: random bits depend on a step's number
        meet(processes)
        of_tables = tables.state_dict() if tables.is_saver else None
        meet(processes)
    with torch.no_grad():  # a forward is a step here, too: all processes take part
        scores = torch.cat([model(batch[1].to(options.device), embed(features_of(batch))).cpu()
                            for batch in batches[trained:]])
    scores = of_all(scores, processes)  # which waits until all have made their last step
    clicks = of_all(torch.cat([batch[2] for batch in batches[trained:]]), processes)
    if processes.rank == 0:
        print(f"{max(len(training), 0) * options.batch / seconds:.0f} samples/s; AUC {auc(scores, clicks):.4f}")
        if options.checkpoint:
            torch.save({"step": max(first, trained), "model": model.state_dict(), "dense": dense.state_dict(),
                        "tables": of_tables}, options.checkpoint)
    meet(processes)
    tables.close()
    if processes.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
