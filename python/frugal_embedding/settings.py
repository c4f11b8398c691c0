"""What an instance is made of: tables, their first values, optimizers; and threads that several instances share."""
from __future__ import annotations

import ctypes
import operator
import os
import weakref
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from ._library import c, check, lib


def words(enum: dict[str, int], prefix: str = "FRUGAL_") -> dict[str, int]:
    """The numbers of C's enumerators by their names in Python: FRUGAL_ALONE_KEPT is "kept"."""
    return {name[len(prefix):].lower(): number for name, number in enum.items()}


KINDS = words(c.frugal_optimizer_kind)
POLICIES = words(c.frugal_cache_policy, "FRUGAL_CACHE_")
ALONE = words(c.frugal_alone, "FRUGAL_ALONE_")
MODES = words(c.frugal_mode)
REDUCE = words(c.frugal_reduce)
POOLING = words(c.frugal_pooling, "FRUGAL_POOL_")
TYPES = words(c.frugal_type)
ROUNDING = words(c.frugal_rounding)


def named(value: str, names: dict, what: str) -> int:
    """The number of a name, with - or _, or an error that lists the names."""
    try:
        return names[value.replace("-", "_")]
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{what}: one of {', '.join(names)} is wanted; {value!r} was given") from None


def word_of(number: int, names: dict[str, int]) -> str:
    """The name of a number, as `words` has them."""
    return next(name for name, value in names.items() if value == number)


def in_range(value: Any, bits: int, what: str) -> int:
    """`value`, if it fits into C's unsigned integer of `bits` bits; ctypes would cut it off."""
    if isinstance(value, bool):
        raise TypeError(f"{what}: an integer is wanted; {value!r} was given, which Python would take for {value:d}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: an integer is wanted; {value!r} was given. Write int(...)") from None
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{what}: 0 to 2^{bits} - 1 is wanted; {number} was given")
    return number


def path_of(given: Any, what: str) -> bytes:
    """A path as C reads it, which would end it at a NUL."""
    try:
        path = os.fsencode(given)
    except TypeError:
        raise TypeError(f"{what}: a path is wanted, a str, bytes or os.PathLike; {given!r} was given") from None
    if b"\0" in path:
        raise ValueError(f"{what}: a path without NUL is wanted; {given!r} was given, whose file would have another "
                         "name")
    return path


def text_of(given: Any, what: str) -> bytes:
    """A text as C reads it, in UTF-8."""
    if not isinstance(given, str):
        raise TypeError(f"{what}: a str is wanted; {given!r} was given")
    if "\0" in given:
        raise ValueError(f"{what}: a text without NUL is wanted; {given!r} was given, of which the end would be lost")
    return given.encode()


def as_float(value: Any, what: str) -> float:
    """`value`, unless C's float would be the 0 that stands for a default."""
    if isinstance(value, (bool, str)):
        raise TypeError(f"{what}: a number is wanted; {value!r} was given")
    number = float(value)
    if number and not ctypes.c_float(number).value:
        raise ValueError(f"{what}: {number!r} is 0 as a float of C, which stands for the default. The least that is "
                         "not is 1.4e-45")
    return number


def flag(value: Any, what: str) -> bool:
    """`value`, if it is True or False: 'no' and 0.5 would be true."""
    if isinstance(value, str) or value not in (0, 1):
        raise TypeError(f"{what}: True or False is wanted; {value!r} was given")
    return bool(value)


_BITS = {ctypes.c_uint8: 8, ctypes.c_uint16: 16, ctypes.c_uint32: 32, ctypes.c_uint64: 64}
_FLAGS = ("defer", "sparse", "take_torn", "saved_settings_may_differ", "increments", "increment", "replace",
          "shrink_cache", "gate_on_stream")


def struct_of(kind: Any, **values: Any) -> Any:
    """A struct of the library, whose unsigned numbers and flags are checked."""
    types = {field[0]: field[1] for field in kind._fields_}
    for name, value in values.items():
        if name in _FLAGS:
            values[name] = flag(value, name)
        bits = _BITS.get(types[name])
        if bits is not None:
            values[name] = in_range(value, bits, name)
    return kind(**values)


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of an instance's tables, and its settings; 0 stands for the default of frugal.h.

    `kind`: "sgd", "adagrad", "rowwise_adagrad", "adam" or "adamw"; "rowwise-adagrad" is the same. `weight_decay`: of
    the rows that a step touches, and of no others; L2 as in torch.optim, but of "adamw" decoupled from the gradient, by
    default (None) 0.01, as in torch.optim.AdamW, which decays all rows in every step; 0 is refused there, because
    frugal.h has 0.01 for it, and without decay it is "adam". `lr_scale` multiplies the learning rate of a step: with
    it, tables of one instance have different rates. `clip_norm`: a row's gradient whose norm is larger is scaled down
    to it; 0: none is. `frozen`: rows never change.
    """

    kind: str = "sgd"
    eps: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    weight_decay: Optional[float] = None
    initial_accumulator: float = 0.0
    lr_scale: float = 0.0
    clip_norm: float = 0.0
    frozen: bool = False

    def __post_init__(self) -> None:
        kind = named(self.kind, KINDS, "Optimizer.kind")
        object.__setattr__(self, "kind", next(name for name, number in KINDS.items() if number == kind))
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", 0.01 if self.kind == "adamw" else 0.0)
        elif self.kind == "adamw" and as_float(self.weight_decay, "Optimizer.weight_decay") == 0:
            raise ValueError(f"Optimizer.weight_decay: {self.weight_decay!r} with \"adamw\" would be its default, "
                             "0.01; without decay it is \"adam\"")

    def struct(self) -> Any:
        made = c.frugal_optimizer(kind=KINDS[self.kind], frozen=flag(self.frozen, "Optimizer.frozen"))
        for field in fields(self)[1:-1]:
            setattr(made, field.name, as_float(getattr(self, field.name), f"Optimizer.{field.name}"))
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
    zeros, or, if the instance has `weights` or `file`, what is there already. Weights of 16 bits are the nearest ones.
    `optimizer`: the table's own settings, of the instance's kind.
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
        self.n = in_range(n, 32, "Workers: n")
        check(lib.frugal_workers_open(self.n, ctypes.byref(handle)))
        self._handle: Optional[int] = handle.value
        self._process = os.getpid()
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
        if handle is not None and lib is not None and os.getpid() == self._process:  # else they are the parent's
            lib.frugal_workers_close(handle)

    def __reduce__(self) -> Any:
        raise TypeError("Workers cannot be pickled or copied: they are threads of this process. Make others: "
                        f"Workers({self.n})")
