"""The cache of a module's devices: how many rows, which policy, and what is known of its keys before training. The
names are those of CachedEmbedding: cache_ratio, ids_freq_mapping, warmup_ratio."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch import Tensor

from ..instance import Frugal


@dataclass(frozen=True)
class Cache:
    """`frequencies`: of each table how often each key is expected, int64 [rows]; None: not known. `ratio`, `warmup`:
    shares of the rows, and of the cache; None: not given."""

    rows: int = 0
    ratio: Optional[float] = None
    policy: str = "counted"
    frequencies: Any = None
    warmup: Optional[float] = None

    def of_tables(self, tables: Mapping[str, int]) -> "Cache":
        """This cache for the tables {name: rows} of one instance, checked. One table alone may have any name."""
        for what, share in (("cache_ratio", self.ratio), ("warmup_ratio", self.warmup)):
            if share is not None and (isinstance(share, bool) or not 0 <= share <= 1):
                raise ValueError(f"{what}: a share of 0 to 1 is wanted; {share!r} was given")
        rows = self.rows
        if self.ratio is not None:
            if rows:
                raise TypeError(f"cache_ratio: either cache_ratio or cache_rows is wanted; {self.ratio!r} and {rows} "
                                "were given")
            rows = max(int(sum(tables.values()) * self.ratio), 1 if self.ratio else 0)
        if self.frequencies is None:
            if self.warmup is not None:
                raise TypeError("warmup_ratio: it is the share of the cache that is filled with the keys that "
                                "ids_freq_mapping says are the most frequent; none was given")
            return Cache(rows, None, self.policy)
        if not rows:
            raise TypeError("ids_freq_mapping: it fills a cache, and there is none. Give cache_ratio or cache_rows")
        return Cache(rows, None, self.policy, _by_table(self.frequencies, tables),
                     1.0 if self.warmup is None else self.warmup)

    def fill(self, instance: Frugal, devices: Sequence[int]) -> None:
        """Sets the counts that a counted cache goes by, and puts the most frequent rows into the caches of all
        devices. Right after they are attached."""
        if self.frequencies is None:
            return
        if self.policy.replace("-", "_") == "counted":
            for table, counts in enumerate(self.frequencies):
                if counts is not None:
                    instance.set_counts(torch.arange(len(counts)), counts.to(torch.uint64), table)
        known = [(table, counts) for table, counts in enumerate(self.frequencies) if counts is not None]
        every = torch.cat([counts for _, counts in known])
        hottest = every.argsort(descending=True, stable=True)[:int(self.rows * (self.warmup or 0.0))]
        first = 0
        for table, counts in known:
            keys = hottest[(hottest >= first) & (hottest < first + len(counts))] - first
            for device in devices:
                instance.preload(device, keys, table)
            first += len(counts)


def _by_table(given: Any, tables: Mapping[str, int]) -> List[Optional[Tensor]]:
    if isinstance(given, Mapping):
        return [None if name not in given else _counts(given[name], rows, f"ids_freq_mapping of {name!r}")
                for name, rows in tables.items()]
    if len(tables) > 1:
        raise TypeError(f"ids_freq_mapping: {{table: frequencies}} of the tables {list(tables)} is wanted; a "
                        f"{type(given).__name__} was given")
    return [_counts(given, rows, "ids_freq_mapping") for rows in tables.values()]


def _counts(given: Any, rows: int, what: str) -> Tensor:
    counts = torch.as_tensor(given, device="cpu").detach()
    if counts.shape != (rows,) or counts.is_complex() or counts.dtype == torch.bool:
        raise ValueError(f"{what}: how often each of the {rows} keys is expected, a list, an array or a tensor "
                         f"[{rows}], is wanted; {counts.dtype} of shape {tuple(counts.shape)} was given")
    if rows and not 0 <= float(counts.min()) <= float(counts.max()) < 2.0 ** 63:
        raise ValueError(f"{what}: numbers of 0 to 2^63 - 1 are wanted; {counts.min().item()} to "
                         f"{counts.max().item()} were given")
    return counts.to(torch.int64)


__all__: List[str] = []
