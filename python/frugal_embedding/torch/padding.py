"""Keys that only fill a place, as the padding_idx of torch.nn: no step has them, so they are no touch, take no part of
`max_keys`, and get no gradient. What is left out of a step is known here; a session puts rows and gradients in order.
"""
from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import advice, compiled


def padding_of(given: Any, rows: int, what: str = "padding_idx") -> Optional[int]:
    """The key that `given` names; as in torch.nn one below 0 counts from the end."""
    if given is None:
        return None
    if isinstance(given, int) and -rows <= given < 0:
        given += rows
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < rows:
        raise ValueError(f"{what}: a key of the table is wanted, {-rows} to {rows - 1}; {given!r} was given")
    return given


def paddings_of(given: Any, tables: Mapping[str, Any]) -> dict:
    """Of each table of a collection its key, from one for all, or from {table: key}. `tables`: {name: rows}."""
    advice.check_names("padding_idx", given, tables)
    if not isinstance(given, Mapping):
        given = dict.fromkeys(tables, given)
    return {name: padding_of(key, tables[name], f"padding_idx of {name!r}") for name, key in given.items()}


def masks_of(keys: Sequence[Tensor], padding: Sequence[Optional[int]]) -> List[Tensor]:
    """Which positions of each segment stay, bool [n]. `padding`: of the tables, which the segments go through again and
    again."""
    of = [padding[at % len(padding)] for at in range(len(keys))]  # torch.compile takes no itertools.cycle
    return [torch.ones(part.numel(), dtype=torch.bool, device=part.device) if key is None else part.reshape(-1) != key
            for part, key in zip(keys, of)]


def without_padding(keys: Sequence[Tensor], padding: Sequence[Optional[int]],
                    place: torch.device) -> Tuple[List[Tensor], Tensor]:
    """The keys that stay, of each segment; and bool [n] on `place`: which positions stay. `padding`: as of masks_of. On
    a GPU it waits: only the GPU knows how many stay."""
    if compiled.module is not None and place.type == "cpu" and all(part.is_cpu for part in keys):
        return compiled.module.without_padding(list(keys), tuple(padding))
    masks = masks_of(keys, padding)
    stay = [part.reshape(-1)[mask] for part, mask in zip(keys, masks)]
    whole = torch.cat([mask.to(place) for mask in masks]) if masks else torch.ones(0, dtype=torch.bool, device=place)
    return stay, whole


def bounds_without(offsets: Tensor, mask: Tensor) -> Tensor:
    """Where bags begin and end among the positions that stay, int32 [n_bags + 1]. Wrong offsets stay wrong."""
    if compiled.module is not None and offsets.is_cpu and mask.is_cpu:
        return compiled.module.bounds_without(offsets, mask)
    before = torch.nn.functional.pad(mask.to(torch.int32).cumsum(0, dtype=torch.int32), (1, 0))
    n = mask.numel()
    there = before[offsets.long().clamp(0, n)]
    return torch.where((offsets >= 0) & (offsets <= n), there, offsets)


__all__: List[str] = []
