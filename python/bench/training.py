"""The part "training" of bench_python.py: a model of several tables and a small dense part, on a generated log whose
keys are Zipf-distributed, by Frugal's modules and by torch.nn.EmbeddingBag(sparse=True) with torch.optim.Adagrad. The
same first values, data and learning rate for both; the losses of all steps are compared."""
from __future__ import annotations

import statistics
import time
import warnings
from typing import Any, Dict, List, Tuple

import numpy as np
import torch

import frugal_embedding as frugal
from frugal_embedding import torch as ft

STEPS, LR = 20, 0.02
CLOSE = 1e-4  # by which part of their value losses may differ


class Sides:
    """The two models, of `options.tables` tables: 0 is ours, 1 theirs."""

    def __init__(self, options: Any):
        torch.manual_seed(1)
        self.names = [f"t{i}" for i in range(options.tables)]
        rows, dim, batch = options.table_rows, options.dim, options.batch
        self.ours: Any = ft.EmbeddingBagCollection(
            {name: (rows, dim) for name in self.names}, max_keys=options.tables * batch, stacked=True, lr=LR,
            optimizer="adagrad", init=frugal.Uniform(-0.05, 0.05))
        self.ours.drain()
        self.theirs: Any = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, dim, mode="sum", sparse=True)
                                               for _ in self.names)
        with torch.no_grad():
            for name, bag in zip(self.names, self.theirs):
                bag.weight.copy_(torch.from_numpy(np.array(self.ours.view(name))))
        self.heads = [torch.nn.Sequential(torch.nn.Linear(dim, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
                      for _ in range(2)]
        self.heads[1].load_state_dict(self.heads[0].state_dict())
        self.dense = [torch.optim.SGD(head.parameters(), lr=0.01) for head in self.heads]
        self.sparse = torch.optim.Adagrad(self.theirs.parameters(), lr=LR)
        self.bags = torch.arange(batch)

    def features(self, pair: Tuple[torch.Tensor, torch.Tensor]) -> Dict[str, torch.Tensor]:
        return {name: pair[0][at].unsqueeze(1) for at, name in enumerate(self.names)}

    def rows(self, side: int, pair: Tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """float32 [tables, batch, dim]"""
        if side == 0:
            return self.ours(self.features(pair))
        return torch.stack([bag(pair[0][at], self.bags) for at, bag in enumerate(self.theirs)])

    def turn(self, side: int, batches: list) -> Tuple[float, float, List[float]]:
        """Milliseconds of wall and of processor time a step, and all losses."""
        losses = []
        since, cpu = time.perf_counter(), time.process_time()
        for pair in ft.Loader(batches, self.ours, self.features) if side == 0 else batches:
            self.dense[side].zero_grad()
            if side == 1:
                self.sparse.zero_grad()
            logits = self.heads[side](self.rows(side, pair).sum(0)).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, pair[1])
            loss.backward()
            self.dense[side].step()
            if side == 1:
                self.sparse.step()
            losses.append(loss.item())
        if side == 0:
            self.ours.drain()
        return ((time.perf_counter() - since) / len(losses) * 1e3, (time.process_time() - cpu) / len(losses) * 1e3,
                losses)


def log_of(options: Any, steps: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Keys int64 [steps, tables, batch], labels float32 [steps, batch]."""
    draws = np.random.default_rng(3).zipf(1.2, (steps, options.tables, options.batch)) - 1
    draws = np.minimum(draws, options.table_rows * 1000) * 2654435761 % options.table_rows
    keys = torch.from_numpy(draws.astype(np.int64))
    return keys, (keys[:, 0] % 3 == 0).float() * 0.8 + 0.1


def run(options: Any) -> Dict[str, Any]:
    """Alternating turns of STEPS steps; the first turn of each is not counted."""
    warnings.filterwarnings("ignore", message=".*optimizer.*")
    sides = Sides(options)
    keys, labels = log_of(options, STEPS * (options.rounds + 1))
    wall: Tuple[list, list] = ([], [])
    processor: Tuple[list, list] = ([], [])
    apart = 0.0
    for turn in range(options.rounds + 1):
        part = slice(turn * STEPS, (turn + 1) * STEPS)
        batches = list(zip(keys[part], labels[part]))
        losses: Dict[int, List[float]] = {}
        for side in (0, 1) if turn % 2 else (1, 0):
            ms, of_processors, losses[side] = sides.turn(side, batches)
            if turn:
                wall[side].append(ms)
                processor[side].append(of_processors)
        apart = max([apart] + [abs(a - b) / abs(b) for a, b in zip(losses[0], losses[1])])
    sides.ours.close()
    if not apart < CLOSE:
        raise ArithmeticError(f"training: losses that differ by at most {CLOSE:g} of their value are wanted; "
                              f"they differ by {apart:.2g}")
    report: Dict[str, Any] = {"largest_relative_difference_of_losses": apart, "last_loss": losses[0][-1]}
    for side, name in enumerate(("frugal", "torch")):
        report.update({f"{name}_ms": statistics.median(wall[side]), f"{name}_spread_ms": [min(wall[side]),
                       max(wall[side])], f"{name}_cpu_ms": statistics.median(processor[side])})
    return report


def lines_of(t: Dict[str, Any], options: Any) -> List[str]:
    lines = [f"{options.tables} tables x {options.table_rows:,} rows x {options.dim}, batch {options.batch}, one key a "
             f"bag, Zipf 1.2 keys, Adagrad; losses differ by at most {t['largest_relative_difference_of_losses']:.1e} "
             "of their value", "", "| | wall, ms a step | processor time, ms |", "| --- | --- | --- |"]
    for name, what in (("frugal", "EmbeddingBagCollection(stacked=True) with Loader"),
                       ("torch", "torch.nn.EmbeddingBag(sparse=True), torch.optim.Adagrad")):
        low, high = t[f"{name}_spread_ms"]
        lines.append(f"| {what} | {t[f'{name}_ms']:.1f} ({low:.1f} to {high:.1f}) | {t[f'{name}_cpu_ms']:.1f} |")
    return lines
