"""The mode "max" of bags. The library has sums and means; rows are looked up by position, and the largest weights are
chosen here, so autograd gives each bag's gradient to the positions that they come from."""
from __future__ import annotations

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from .inputs import check_offsets
from .padding import masks_of


def pool_max(rows: Tensor, bounds: Tensor, keys: Sequence[Tensor], padding: Sequence[Optional[int]]) -> Tensor:
    """[n_bags, dim]: of each element the largest in the bag, 0 of an empty bag. Its gradient goes to the first position
    that has it. NaN is larger than all. `rows` [n, dim], of `keys`; `bounds` int32 [n_bags + 1]; `padding`: as of
    masks_of."""
    n, dim = rows.shape
    n_bags = bounds.numel() - 1
    place = rows.device
    if bounds.is_cuda and not torch.compiler.is_compiling():  # in host memory they are checked already
        check_offsets(bounds.cpu(), n, True)
    if not n:
        return rows.new_zeros(n_bags, dim) + rows.sum()
    mask = None  # [n, 1]: which positions bags have; None: all
    if any(key is not None for key in padding):
        mask = torch.cat([part.to(place) for part in masks_of(keys, padding)])[:, None]
    positions = torch.arange(n, device=place)
    bag = torch.searchsorted(bounds[1:], positions, right=True)[:, None].expand(n, dim)
    with torch.no_grad():
        given = rows.detach().float()
        if mask is not None:
            given = given.masked_fill(~mask, float("-inf"))
        most = torch.full((n_bags, dim), float("-inf"), device=place).scatter_reduce(0, bag, given, "amax")
        reached = (given == most.gather(0, bag)) | given.isnan()
        if mask is not None:
            reached &= mask
        at = torch.where(reached, positions[:, None], n)
        first = torch.full((n_bags, dim), n, device=place).scatter_reduce(0, bag, at, "amin")
    return rows.gather(0, first.clamp(max=n - 1)).masked_fill(first == n, 0.0)


__all__: List[str] = []
