"""Loads the C library that lies beside this file, and compares its version and its structs with the declarations.

FRUGAL_LIBRARY names another library: one with checks, or with devices that the wheel's lacks.
"""
from __future__ import annotations

import ctypes
import os
import re
import warnings
from typing import Any, Sequence

from .errors import DeviceError, raise_status

try:
    from . import _declarations as c
except ImportError as error:
    raise ImportError("frugal: _declarations.py is missing, because the package was not built. Install it: pip install "
                      "./python, or run python3 python/backend/frugal_build.py") from error


def _load() -> ctypes.CDLL:
    path = os.environ.get("FRUGAL_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libfrugal.so")
    try:
        library = ctypes.CDLL(path)  # releases the GIL during calls
    except OSError as error:
        raise ImportError(f"frugal: the library {path} cannot be loaded: {error}. Build it for this machine: "
                          "pip install ./python") from error
    for name, (result, arguments) in c.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            if name.startswith("frugal_cuda_"):
                continue  # a library without GPUs
            raise ImportError(f"frugal: the library {path} has no {name}: it is of another version. Install again: "
                              "pip install --force-reinstall ./python") from None
        function.restype, function.argtypes = result, arguments
    found = library.frugal_version()
    if found != c.FRUGAL_VERSION:
        raise ImportError(f"frugal: the declarations are of version {_text(c.FRUGAL_VERSION)}, and the library {path} "
                          f"is {_text(found)}. Install both from one source: pip install --force-reinstall ./python")
    for struct in c.STRUCTS:
        there = library.frugal_sizeof(struct.__name__.encode())
        if there not in (0, ctypes.sizeof(struct)):  # 0: of frugal_cuda.h
            raise ImportError(f"frugal: {struct.__name__} has {ctypes.sizeof(struct)} bytes as declared, and {there} "
                              f"in the library {path}. Install both from one source: "
                              "pip install --force-reinstall ./python")
    return library


def _text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


lib = _load()
version = _text(lib.frugal_version())
has_cuda = hasattr(lib, "frugal_cuda_attach")
OK, AGAIN, STOPPED = 0, 1, 2


def need_gpus(call: str, function: str) -> None:
    """DeviceError, if the library lacks `function`, of those for GPUs."""
    if not hasattr(lib, function):
        raise DeviceError(f"{call}: this library was built without GPUs. Build it with them, where nvcc is installed: "
                          "FRUGAL_BUILD_CUDA=1 pip install --force-reinstall ./python")


def fail(status: int, tables: Sequence[str] = ()) -> None:
    """Raises the error of a call that has just returned `status` on this thread. Optimizers get their names, and so do
    tables, if `tables` has names: the message of the library has their numbers."""
    from .settings import KINDS

    def named(found: re.Match, names: Sequence[str]) -> str:
        number = int(found[1])
        return f"{found[0]} ({names[number]})" if number < len(names) and names[number] else found[0]

    kinds = sorted(KINDS, key=KINDS.__getitem__)
    message = lib.frugal_message().decode("utf-8", "replace")
    message = re.sub(r"\boptimizer (\d+)\b(?! \()", lambda found: named(found, kinds), message)
    message = re.sub(r"\btable (\d+)\b(?! \()", lambda found: named(found, tables), message)
    raise_status(status, message, c.STATUSES)


def check(status: int) -> None:
    if status:
        fail(status)


@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
def _warn(text: bytes, user: Any) -> None:
    """A frugal_desc.notice: what no call fails for, such as a wait that takes long, in the thread that is told."""
    warnings.warn(f"frugal: {text.decode('utf-8', 'replace')}", RuntimeWarning, stacklevel=4)


NOTICE = ctypes.cast(_warn, ctypes.c_void_p)  # `_warn` must live as long as an instance that has it
