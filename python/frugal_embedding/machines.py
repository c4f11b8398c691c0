"""Several machines, over whose memories tables are dealt: this process as one of them, and its wire to the others.
frugal_machines.h says what a machine is, what a wire does, and which calls all machines make together."""
from __future__ import annotations

import array
import ctypes
import importlib
import sys
import time
from collections import namedtuple
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ._library import c, version
from .errors import SettingsError
from .settings import in_range, named, words

DEALS = words(c.frugal_deal, "FRUGAL_DEAL_")
at_exit: List[Callable[[], None]] = []  # behind the end of all instances
LINGER = 5.0  # seconds that a closed instance waits until the others have what it has sent

Parcel = namedtuple("Parcel", "peer tag head head_bytes body body_bytes")  # as frugal_parcel, whose memory is reused


def bytes_of(parcel: Parcel) -> int:
    return parcel.head_bytes + parcel.body_bytes


def put(parcel: Parcel, pieces: Sequence[tuple]) -> None:
    """Copies what lies at (address, bytes) into the head, then the body, which have room for it."""
    done = 0
    for at, size in pieces:
        head = min(size, max(parcel.head_bytes - done, 0))
        if head:
            ctypes.memmove(parcel.head + done, at, head)
        if size > head:
            ctypes.memmove(parcel.body + done + head - parcel.head_bytes, at + head, size - head)
        done += size


class Wire:
    """The frugal_wire of one instance: its functions are methods of a subclass, and none may wait. They are called by
    one thread of the library, which Python has not started."""

    most_bytes = 0

    def __init__(self, machines: "Dealt"):
        self.loss = 0, b""  # a machine that is lost, plus 1
        self.kept = {name: kind(getattr(self, f"_{name}")) for name, kind in _CALLS.items()}
        self.wire = c.frugal_wire(machine=machines.machine, machines=machines.machines, most_bytes=self.most_bytes,
                                  **{name: ctypes.cast(call, ctypes.c_void_p).value
                                     for name, call in self.kept.items()})
        self.homes = machines.homes  # which frugal_open reads
        self.struct = c.frugal_machines(wire=ctypes.addressof(self.wire), deal=machines.deal,
                                        homes=ctypes.cast(ctypes.c_char_p(self.homes), ctypes.c_void_p))

    def begin(self, requests: int) -> None:
        raise NotImplementedError

    def send(self, request: int, parcel: Parcel) -> None:
        raise NotImplementedError

    def receive(self, request: int, parcel: Parcel) -> None:
        raise NotImplementedError

    def done(self, request: int) -> int:
        """The length of the message, plus 1; 0: not yet."""
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Behind the end of the instance, which may have come before `begin`. May wait, for LINGER seconds."""
        raise NotImplementedError

    def lose(self, machine: int, why: str) -> None:
        """The first loss is the cause of later ones."""
        if not self.loss[0]:
            self.loss = machine + 1, why.encode()

    def too_long(self, parcel: Parcel, n: int) -> None:
        self.lose(parcel.peer, f"a message of it, with tag {parcel.tag}, has {n} bytes, and there is room for "
                               f"{bytes_of(parcel)}")

    # What the library calls. An exception would be printed, and nothing else.

    def _guarded(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments) or 0
        except Exception as error:
            self.lose(self.wire.machine, f"its wire has failed: {type(error).__name__}: {error}")
            return 0

    def _begin(self, _: Any, requests: int) -> int:
        return self._guarded(self.begin, requests)

    def _send(self, _: Any, request: int, at: Any) -> int:
        return self._guarded(self.send, request, _parcel_at(at))

    def _receive(self, _: Any, request: int, at: Any) -> int:
        return self._guarded(self.receive, request, _parcel_at(at))

    def _done(self, _: Any, request: int, n: Any) -> int:
        length = self._guarded(self.done, request)
        if length:
            n[0] = length - 1
        return 1 if length else 0

    def _lost(self, _: Any, text: int, size: int) -> int:
        lost, why = self.loss
        if lost and size:
            why = why[:size - 1] + b"\0"
            ctypes.memmove(text, why, len(why))
        return lost

    def _end(self, _: Any) -> None:
        self._guarded(self.end)


_BEGINS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(c.frugal_parcel))
_CALLS = {"begin": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32), "send": _BEGINS,
          "receive": _BEGINS, "end": ctypes.CFUNCTYPE(None, ctypes.c_void_p),
          "done": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t)),
          "lost": ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)}


def _parcel_at(at: Any) -> Parcel:
    of = at[0]
    return Parcel(of.peer, of.tag, of.head or 0, of.head_bytes, of.body or 0, of.body_bytes)


class Dealt:
    """This process as one of several machines. A subclass says how they reach each other."""

    def __init__(self, machine: int, machines: int, deal: Any):
        self.machine, self.machines = in_range(machine, 32, "Machines: machine"), in_range(machines, 32, "Machines")
        if not self.machine < self.machines <= c.FRUGAL_MAX_MACHINES:
            raise ValueError(f"Machines: 1 to {c.FRUGAL_MAX_MACHINES} machines, numbered from 0, are wanted; machine "
                             f"{machine} of {machines} was given")
        self.homes: Optional[bytes] = None
        if isinstance(deal, str):
            self.deal = named(deal, DEALS, "Machines: deal")
            if self.deal == c.FRUGAL_DEAL_LISTED:
                raise ValueError("Machines: deal: for listed homes give the list, uint8 [rows of all tables]")
        else:
            self.deal, self.homes = c.FRUGAL_DEAL_LISTED, _homes_of(deal)

    def gather(self, given: Any) -> List[Any]:
        """What each machine gives, in their order."""
        raise NotImplementedError

    def make_wire(self) -> Wire:
        raise NotImplementedError

    def connect(self) -> Wire:
        """A wire for one instance. All machines call it. SettingsError, if they have different versions."""
        own = {"version": version, "order": sys.byteorder}
        others = self.gather(own)
        for what, remedy in (("version", "Install one version of frugal-embedding on all"),
                             ("order", "Machines of one byte order are wanted")):
            for number, other in enumerate(others):
                if other[what] != own[what]:
                    raise SettingsError(f"Machines: {what}: machine {self.machine} has {own[what]}, and machine "
                                        f"{number} has {other[what]}. {remedy}")
        return self.make_wire()

    def keys_of(self, first: int, rows: int, total: int) -> Union[range, array.array]:
        """The keys of a table whose home this machine is, in rising order: of one with `rows` rows, which are numbered
        from `first` on among the `total` of all tables."""
        if self.homes is not None:
            own = self.homes[first:first + rows]
            return array.array("q", (key for key, home in enumerate(own) if home == self.machine))
        if self.deal == c.FRUGAL_DEAL_CYCLIC:
            return range((self.machine - first) % self.machines, rows, self.machines)
        size = -(-total // self.machines)
        begin, end = (min(max(size * (self.machine + at) - first, 0), rows) for at in (0, 1))
        return range(begin, end)


def _homes_of(given: Any) -> bytes:
    try:
        view = memoryview(given)
    except TypeError:
        raise TypeError("Machines: deal: 'cyclic', 'blocks', or an array of uint8 is wanted; "
                        f"{given!r} was given") from None
    if view.format not in ("B", "@B") or not view.c_contiguous or view.ndim != 1:
        raise TypeError("Machines: deal: homes are a contiguous array of uint8 [rows of all tables]; one of format "
                        f"{view.format!r} and shape {view.shape} was given")
    return view.tobytes()


def _mpi4py() -> Any:
    return importlib.import_module("mpi4py.MPI")


class Machines(Dealt):
    """This process as one of several machines, which MPI connects: the argument `machines` of Frugal. Under torchrun,
    and for modules, use frugal_embedding.torch.Machines.

        from mpi4py import MPI
        machines = frugal_embedding.Machines(MPI.COMM_WORLD)
        f = frugal_embedding.Frugal(tables, 64, max_keys=4096, devices=2 * machines.machines, machines=machines)
        for device in f.own_devices:                     # two, of those that are numbered through all machines
            f.attach_cpu(device)
        ...                                              # announce, lookup, update: these devices, and no others
        f.drain()                                        # all machines

    `communicator`: of mpi4py, whose ranks number the machines; one is as no `machines`. MPI must have been initialized
    with MPI_THREAD_MULTIPLE, as mpi4py does unless it is told otherwise. Without fault tolerance MPI ends the job when
    it has lost a process. `deal`: where rows are: "cyclic", "blocks", or uint8 [rows of all tables], the home of each.
    """

    def __init__(self, communicator: Any, *, deal: Any = "cyclic"):
        MPI = _mpi4py()
        if not isinstance(communicator, MPI.Intracomm):
            raise TypeError("Machines: a communicator of mpi4py is wanted, such as MPI.COMM_WORLD; "
                            f"{communicator!r} was given. Under torchrun use frugal_embedding.torch.Machines")
        if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
            raise RuntimeError("Machines: MPI with MPI_THREAD_MULTIPLE is wanted, because a thread of the instance "
                               "calls it beside yours. Leave its initialization to mpi4py, or ask for that level")
        super().__init__(communicator.Get_rank(), communicator.Get_size(), deal)
        self.communicator = communicator

    def gather(self, given: Any) -> List[Any]:
        return self.communicator.allgather(given)

    def make_wire(self) -> Wire:
        return _Mpi(self)


class _Mpi(Wire):
    """A message is Isend and Irecv of one buffer, and done when Test says so."""

    most_bytes = 2 ** 31 - 1

    def __init__(self, machines: Machines):
        self.mpi, self.own = _mpi4py(), machines.communicator.Dup()
        self.begun: Dict[int, tuple] = {}  # by request: MPI's, its buffer, and the parcel that a receive is for
        super().__init__(machines)

    def begin(self, requests: int) -> None:
        pass

    def send(self, request: int, p: Parcel) -> None:
        data = ctypes.string_at(p.head, p.head_bytes) + ctypes.string_at(p.body, p.body_bytes)
        self.begun[request] = self.own.Isend([data, self.mpi.BYTE], p.peer, p.tag), data, None

    def receive(self, request: int, p: Parcel) -> None:
        data = bytearray(bytes_of(p))
        self.begun[request] = self.own.Irecv([data, self.mpi.BYTE], p.peer, p.tag), data, p

    def done(self, request: int) -> int:
        of, data, parcel = self.begun[request]
        status = self.mpi.Status()
        try:
            if not of.Test(status):
                return 0
        except self.mpi.Exception as error:
            self.lose(self.wire.machine if parcel is None else parcel.peer, str(error))
            return 0
        n = len(data)
        if parcel is not None:
            n = status.Get_count(self.mpi.BYTE)
            put(parcel, [(ctypes.addressof(ctypes.c_char.from_buffer(data)), n)] if n else [])
        del self.begun[request]
        return n + 1

    def end(self) -> None:
        """Waits for a second at most. A receive that has begun to arrive is not cancelled, but comes."""
        for of, _, parcel in self.begun.values():
            if parcel is not None:
                of.Cancel()
        until = time.monotonic() + 1
        while self.begun and time.monotonic() < until:
            self.begun = {number: one for number, one in self.begun.items() if not one[0].Test()}
            time.sleep(1e-4)

    def close(self) -> None:
        if self.own is not None:
            own, self.own = self.own, None
            if not self.begun and not self.mpi.Is_finalized():
                own.Free()
