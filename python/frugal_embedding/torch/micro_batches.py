"""A step in several forwards: micro-batches of a batch that is too large for one forward, or two uses of a table by one
model. They are announced as one step; forward i takes micro-batch i, in their order; the backwards, in any order, are
collected. So the rows have the bits of one batch with the positions of all of them."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor


def join_bounds(starts: Sequence[Tensor], n_keys: Sequence[int], place: torch.device) -> Tensor:
    """int32 [n_bags + 1], on `place`: where the bags of several inputs begin, and their end. `starts`: of each input,
    counted from its own first key; `n_keys`: its keys."""
    parts, first = [], 0
    for part, n in zip(starts, n_keys):
        parts.append(part + first)
        first += n
    return torch.cat([*parts, torch.full((1,), first, dtype=torch.int32, device=place)])


def single_bounds(n: int, place: torch.device) -> Tensor:
    """The same for bags of one key each."""
    return torch.arange(n + 1, dtype=torch.int32, device=place)


class MicroBatches:
    """Of one step. `keys`: of each micro-batch. `bounds`: of each, where its bags begin and the last one ends, int32
    [its bags + 1], on the device; None: rows by position. `pooling`: of bags."""

    def __init__(self, keys: Sequence[Sequence[Tensor]], bounds: Optional[Sequence[Tensor]], pooling: int):
        self.n, self.n_segments, self.pooling = len(keys), len(keys[0]), pooling
        self.bounds = bounds
        n_keys = [sum(part.numel() for part in of) for of in keys]
        sizes = n_keys if bounds is None else [part.numel() - 1 for part in bounds]
        self.first = [0]  # of the rows that are returned, of each micro-batch; and their number
        for size in sizes:
            self.first.append(self.first[-1] + size)
        self.all_bounds = None if bounds is None else \
            join_bounds([part[:-1] for part in bounds], n_keys, bounds[0].device)
        self.batch: Any = None  # of the session, while the step is under way
        self.rows: Optional[Tensor] = None  # of all, from the first forward to the last
        self.next = 0  # the next to have a forward
        self.grads: Optional[Tensor] = None
        self._waiting = set(range(self.n))  # for a backward

    def check_bounds(self, given: Optional[Tensor], weights: Optional[Tensor]) -> None:
        """ValueError or RuntimeError, unless the forward that comes next pools as it was announced. `given` None: each
        bag has one key."""
        if weights is not None:
            raise ValueError("per_sample_weights: a step of several micro-batches has none")
        wanted = None if self.bounds is None else self.bounds[self.next]
        if given is None and wanted is not None:
            given = single_bounds(wanted.numel() - 1, wanted.device)
        if given is not wanted and (given is None or wanted is None or not torch.equal(given, wanted)):
            raise RuntimeError(f"forward: micro-batch {self.next} was announced with other bags. Give each forward the "
                               "input, and the offsets, that were announced")

    def take_rows(self) -> Tensor:
        """The rows of the next micro-batch. They are the caller's."""
        assert self.rows is not None
        made = self.rows[self.first[self.next]:self.first[self.next + 1]]
        self._advance()
        return made.clone()

    def skip(self) -> None:
        """The next one has no forward, and so no backward."""
        self._waiting.discard(self.next)
        self._advance()

    def _advance(self) -> None:
        self.next += 1
        if self.next == self.n:
            self.rows = None

    def has_backward(self, micro_batch: int) -> bool:
        return micro_batch not in self._waiting

    def is_complete(self) -> bool:
        """Has each that had a forward had its backward, and has each had its forward?"""
        return not self._waiting

    def take_gradients(self, micro_batch: int, grads: Tensor) -> Tensor:
        """Notes the gradients of one; returns those of all so far, zeros where there are none."""
        if self.grads is None:
            self.grads = torch.zeros(self.first[-1], grads.shape[1], dtype=grads.dtype, device=grads.device)
        self.grads[self.first[micro_batch]:self.first[micro_batch + 1]] = grads
        self._waiting.discard(micro_batch)
        return self.grads


__all__ = ["MicroBatches", "join_bounds", "single_bounds"]
