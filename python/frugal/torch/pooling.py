"""The mode "max" of bags. The library has sums and means; rows are looked up by position, and the largest weights are
chosen here, so autograd gives each bag's gradient to the positions that they come from."""
from __future__ import annotations

from typing import List, Optional, Sequence

import torch
from torch import Tensor


def pool_max(rows: Tensor, bounds: Tensor, padded: Optional[Tensor]) -> Tensor:
    """[n_bags, dim]: of each element the largest in the bag, 0 of an empty bag. Its gradient goes to the first position
    that has it. NaN is larger than all. `rows` [n, dim]; `bounds` int32 [n_bags + 1], checked; `padded`: bool [n],
    positions without a row; None: there are none."""
    n, dim = rows.shape
    n_bags = bounds.numel() - 1
    place = rows.device
    if not n:
        return rows.new_zeros(n_bags, dim) + rows.sum()
    positions = torch.arange(n, device=place)
    bag = torch.searchsorted(bounds[1:], positions, right=True)
    bag = bag[:, None].expand(n, dim)
    with torch.no_grad():
        given = rows.detach().float()
        if padded is not None:
            given = given.masked_fill(padded[:, None], float("-inf"))
        most = torch.full((n_bags, dim), float("-inf"), device=place).scatter_reduce(0, bag, given, "amax")
        reached = (given == most.gather(0, bag)) | given.isnan()
        if padded is not None:
            reached &= ~padded[:, None]
        at = torch.where(reached, positions[:, None], n)
        first = torch.full((n_bags, dim), n, device=place).scatter_reduce(0, bag, at, "amin")
    return rows.gather(0, first.clamp(max=n - 1)).masked_fill(first == n, 0.0)


def padded_positions(keys: List[Tensor], padding: Sequence[Optional[int]], place: torch.device) -> Optional[Tensor]:
    """bool [n]: which positions are padding; None: no table has any."""
    if all(key is None for key in padding):
        return None
    masks = []
    for at, part in enumerate(keys):
        key = padding[at % len(padding)]  # several inputs of a step go through the tables again and again
        masks.append(torch.zeros(part.numel(), dtype=torch.bool, device=place) if key is None else
                     (part.reshape(-1) == key).to(place))
    return torch.cat(masks)


__all__: List[str] = []
