"""What an instance is made of: tables, their first values, optimizers; and threads that several instances share."""
from __future__ import annotations

import ctypes
import operator
import weakref
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from ._library import c, check, lib

KINDS = {"sgd": c.FRUGAL_SGD, "adagrad": c.FRUGAL_ADAGRAD, "rowwise_adagrad": c.FRUGAL_ROWWISE_ADAGRAD,
         "adam": c.FRUGAL_ADAM}
POLICIES = {"counted": c.FRUGAL_CACHE_COUNTED, "lru": c.FRUGAL_CACHE_LRU, "static": c.FRUGAL_CACHE_STATIC}
ALONE = {"default": c.FRUGAL_ALONE_DEFAULT, "staged": c.FRUGAL_ALONE_STAGED, "place": c.FRUGAL_ALONE_PLACE,
         "kept": c.FRUGAL_ALONE_KEPT}
MODES = {"p2f": c.FRUGAL_P2F, "sync": c.FRUGAL_SYNC}
REDUCE = {"sum": c.FRUGAL_SUM, "mean": c.FRUGAL_MEAN}
POOLING = {"sum": c.FRUGAL_POOL_SUM, "mean": c.FRUGAL_POOL_MEAN}


def named(value: str, names: dict, what: str) -> int:
    """The number of a name, or an error that lists the names."""
    try:
        return names[value]
    except (KeyError, TypeError):
        raise ValueError(f"{what}: one of {', '.join(names)} is wanted; {value!r} was given") from None


def in_range(value: Any, bits: int, what: str) -> int:
    """`value`, if it fits into C's unsigned integer of `bits` bits; ctypes would cut it off."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: an integer is wanted; {value!r} was given. Write int(...)") from None
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{what}: 0 to 2^{bits} - 1 is wanted; {number} was given")
    return number


_BITS = {ctypes.c_uint8: 8, ctypes.c_uint16: 16, ctypes.c_uint32: 32, ctypes.c_uint64: 64}


def struct_of(kind: Any, **values: Any) -> Any:
    """A struct of the library, whose unsigned numbers are checked."""
    types = {field[0]: field[1] for field in kind._fields_}
    for name, value in values.items():
        bits = _BITS.get(types[name])
        if bits is not None and value is not None:
            values[name] = in_range(value, bits, name)
    return kind(**values)


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of an instance's tables, and its settings; 0 stands for the default of frugal.h.

    `kind`: "sgd", "adagrad", "rowwise_adagrad" or "adam". `lr_scale` multiplies the learning rate of a step: with it,
    tables of one instance have different rates. `clip_norm`: a row's gradient whose norm is larger is scaled down to
    it; 0: none is. `frozen`: rows never change.
    """

    kind: str = "sgd"
    eps: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator: float = 0.0
    lr_scale: float = 0.0
    clip_norm: float = 0.0
    frozen: bool = False

    def struct(self) -> Any:
        made = c.frugal_optimizer(kind=named(self.kind, KINDS, "Optimizer.kind"))
        for field in fields(self)[1:]:
            setattr(made, field.name, getattr(self, field.name))
        return made


@dataclass(frozen=True)
class Zero:
    """First values: zeros."""


@dataclass(frozen=True)
class Uniform:
    """First values: from `low` to `high`, drawn by the instance's seed."""

    low: float
    high: float


@dataclass(frozen=True)
class Normal:
    """First values: of a normal distribution, drawn by the instance's seed."""

    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True)
class Table:
    """A table: `rows` rows of the instance's dim.

    `init`: Zero(), Uniform(low, high), Normal(mean, deviation), or a matrix float32 [rows, dim] that is copied; None:
    zeros, or, if the instance has `weights` or `file`, what is there already. `optimizer`: the table's own settings, of
    the instance's kind.
    """

    rows: int
    init: Any = None
    optimizer: Optional[Optimizer] = None
    name: str = ""


def as_optimizer(given: Union[str, Optimizer]) -> Optimizer:
    return given if isinstance(given, Optimizer) else Optimizer(given)


_open_workers: "weakref.WeakSet[Workers]" = weakref.WeakSet()


class Workers:
    """Threads that flush for several instances, for example for tables of several dims. Close the instances first.

    `n`: threads, 1 to 1024.
    """

    def __init__(self, n: int = 1):
        handle = ctypes.c_void_p()
        check(lib.frugal_workers_open(in_range(n, 32, "Workers: n"), ctypes.byref(handle)))
        self.n = n
        self._handle: Optional[int] = handle.value
        _open_workers.add(self)

    def close(self) -> None:
        """Ends the threads. BusyError, if an instance still uses them."""
        if self._handle:
            check(lib.frugal_workers_close(self._handle))
            self._handle = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:  # instances hold their workers, so no instance uses these any more
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and lib is not None:
            lib.frugal_workers_close(handle)
