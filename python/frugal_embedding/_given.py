"""What callers give, as the library reads it: tables, names, matrices, batches of keys."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Mapping, Optional, Sequence, Union

from ._arrays import Array, array_of
from ._library import c
from .errors import ArgumentError
from .settings import Normal, Table, Uniform, Zero, in_range, path_of, text_of

Keys = Union[Any, Mapping[int, Any], Sequence[tuple]]

KEY_KINDS = ("int64", "uint64", "int32")


def tables_of(given: Sequence[Any]) -> list[Table]:
    """Tables; a number stands for a Table of as many rows."""
    return [table if isinstance(table, Table) else Table(in_range(table, 64, "tables: rows")) for table in given]


def fill_table(struct: Any, table: Table, dim: int, keep: list) -> None:
    struct.rows = in_range(table.rows, 64, "Table.rows")
    init = table.init
    if isinstance(init, Zero):
        struct.init = c.FRUGAL_INIT_ZERO
    elif isinstance(init, Uniform):
        struct.init, struct.low, struct.high = c.FRUGAL_INIT_UNIFORM, init.low, init.high
    elif isinstance(init, Normal):
        struct.init, struct.mean, struct.deviation = c.FRUGAL_INIT_NORMAL, init.mean, init.deviation
    elif init is not None:
        struct.init = c.FRUGAL_INIT_COPY
        source = array_of(init, "Table.init", ("float32",), (table.rows, dim))
        keep.append(source.owner)
        struct.source = source.address
    if table.optimizer is not None:
        own = table.optimizer.struct()
        keep.append(own)
        struct.optimizer = ctypes.addressof(own)


def name_of(given: Any) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"name: a str of 1 to 64 bytes is wanted; {given!r} was given")
    text = given.encode()
    if not 1 <= len(text) <= 64 or b"\0" in text:
        raise ArgumentError(f"name: 1 to 64 bytes, none of them 0, are wanted; {given!r} was given")
    return text


def labels_of(names: Optional[Sequence[str]], n: int) -> Any:
    """The labels of `n` instances, as an array of C strings."""
    if names is None:
        return None
    if len(names) != n:
        raise ValueError(f"names: {n} are wanted, one for each instance; {len(names)} were given")
    return (ctypes.c_char_p * n)(*[text_of(name, "names") for name in names])


def paths_of(saved: Sequence[Any], what: str) -> Any:
    """The files of a save, as an array of C strings."""
    if isinstance(saved, (str, bytes, os.PathLike)):
        raise TypeError(f"{what}: a list of paths is wanted, a base and its increments; {saved!r} was given. "
                        "Write [path], as in saved=[path]")
    return (ctypes.c_char_p * len(saved))(*[path_of(path, what) for path in saved])


def matrix_of(given: Any, what: str, kinds: Sequence[str], shape: tuple, keep: list) -> tuple:
    """The address of a matrix that the instance writes, and the elements from row to row, which is 0 if it has no gaps.
    None and 0, if none is given."""
    if given is None:
        return None, 0
    array = array_of(given, what, kinds, shape, True, gaps="rows")
    keep.append(array.owner)
    return array.address, array.stride


def by_table(keys: Keys, what: str) -> Any:
    """Pairs of a table and its keys."""
    if isinstance(keys, Mapping):
        return keys.items()
    if isinstance(keys, (list, tuple)):
        if any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in keys):
            raise TypeError(f"{what}: an array for table 0, {{table: array}}, or [(table, array), ...] is wanted; a "
                            f"{type(keys).__name__} of something else was given. Make an array of numbers: "
                            "numpy.array(keys)")
        return keys
    return ((0, keys),)


def keys_of(given: Any, what: str, ordinal: Optional[int] = None, stream: int = 0) -> Array:
    """Keys [n]. The library copies them, so those in host memory that have gaps are copied here."""
    return array_of(given, what, KEY_KINDS, (None,), False, ordinal, stream, gaps="copied")


def bags_of(offsets: Any, weights: Any, n: int, ordinal: Optional[int] = None, stream: int = 0) -> tuple:
    """The offsets [n_bags + 1] of the bags of `n` positions, and their weights [n], or None."""
    bounds = array_of(offsets, "lookup_bags: offsets", ("int32", "uint32"), (None,), False, ordinal, stream)
    if bounds.shape[0] < 1:
        raise ValueError("lookup_bags: offsets has no element; n_bags + 1 are wanted")
    if weights is None:
        return bounds, None
    return bounds, array_of(weights, "lookup_bags: weights", ("float32",), (n,), False, ordinal, stream)


def as_dict(struct: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, ctypes.Array) else value
            for name, value in ((field[0], getattr(struct, field[0])) for field in struct._fields_)}
