"""The library's statuses as exceptions. Each has the library's message: what was wanted, what was found, what to do.

A class is also a subclass of Python's built-in exception for its kind of mistake, so `except ValueError` works.
"""
from __future__ import annotations

__all__ = ["FrugalError", "raise_status"]


class FrugalError(RuntimeError):
    """A call of the library failed. `status` is the name of its frugal_status, as "ERR_KEY"."""

    status = ""


def _subclass(name: str, status: str, base: type | None, doc: str) -> type[FrugalError]:
    bases: tuple[type, ...] = (FrugalError,) if base is None else (FrugalError, base)
    made = type(name, bases, {"status": status, "__doc__": doc, "__module__": __name__})
    __all__.append(name)
    return made


Stopped = _subclass("Stopped", "STOPPED", None, "The instance was stopped by Frugal.stop; close it.")
Finished = _subclass("Finished", "FINISHED", None, "The data of the device has ended (Frugal.finish).")
ArgumentError = _subclass("ArgumentError", "ERR_ARGUMENT", ValueError, "An argument is missing or makes no sense.")
DeviceError = _subclass("DeviceError", "ERR_DEVICE", ValueError, "No such device, not attached, or already attached.")
TableError = _subclass("TableError", "ERR_TABLE", IndexError, "No such table.")
KeyRangeError = _subclass("KeyRangeError", "ERR_KEY", IndexError, "A key is not below its table's number of rows.")
KeysError = _subclass("KeysError", "ERR_KEYS", ValueError, "More keys in a batch than max_keys allows.")
OrderError = _subclass("OrderError", "ERR_ORDER", None, "Calls out of order: announce, lookup, update, step by step.")
LookaheadError = _subclass("LookaheadError", "ERR_LOOKAHEAD", ValueError, "Lookahead over 15, or with staging over 63.")
LimitError = _subclass("LimitError", "ERR_LIMIT", ValueError, "Over a limit of the library.")
SettingsError = _subclass("SettingsError", "ERR_SETTINGS", ValueError, "Other settings than those in force.")
BusyError = _subclass("BusyError", "ERR_BUSY", None, "Still in use: drain, cancel, or close what uses it.")
OutOfMemoryError = _subclass("OutOfMemoryError", "ERR_MEMORY", MemoryError, "Out of memory.")
FileError = _subclass("FileError", "ERR_FILE", OSError, "A file cannot be opened, read, written or mapped.")
WorkerError = _subclass("WorkerError", "ERR_WORKER", None, "A worker thread cannot be started.")
StuckError = _subclass("StuckError", "ERR_STUCK", TimeoutError, "Waited longer than stuck_seconds.")
SelfTestError = _subclass("SelfTestError", "ERR_ARITHMETIC", None, "The arithmetic self-test failed.")
CudaError = _subclass("CudaError", "ERR_CUDA", None, "A CUDA call failed.")
LostError = _subclass("LostError", "ERR_LOST", None, "A device was lost.")
CopyError = _subclass("CopyError", "ERR_COPY", None, "A cached copy differs from its host row.")
ProcessError = _subclass("ProcessError", "ERR_PROCESS", None, "Another process has to make the call, or none fits.")

_CLASSES = {made.status: made for made in FrugalError.__subclasses__()}


def raise_status(status: int, message: str, names: dict[int, str]) -> None:
    """Raises the exception of `status`, with the library's message. `names`: the statuses of the headers."""
    name = names.get(status, f"status {status}")
    made = _CLASSES.get(name)
    error = made(message) if made else FrugalError(message)
    error.status = name
    raise error
