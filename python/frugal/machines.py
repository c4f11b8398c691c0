"""Several machines, over whose memories tables are dealt: this process as one of them, and its connections to the
others. What goes over them is wire.c's; frugal_machines.h says what a machine is, and which calls all of them make."""
from __future__ import annotations

import array
import ctypes
import os
import secrets
import socket
import struct
import sys
import time
import weakref
from typing import Any, Callable, Optional, Sequence, Union

from ._library import c, check, lib, version
from .errors import SettingsError
from .settings import in_range, named, words

DEALS = words(c.frugal_deal, "FRUGAL_DEAL_")
TOKEN = 16  # bytes
LINGER = 5.0  # seconds that a closed instance waits for the others to read what it has sent
SILENT = 30  # seconds after which a machine that answers nothing, not even its system, is lost

_wires: "weakref.WeakSet[Wire]" = weakref.WeakSet()


class Machines:
    """This process as one of several machines: the argument `machines` of Frugal. Under torchrun, and for modules, use
    frugal.torch.Machines.

        from mpi4py.MPI import COMM_WORLD as world
        machines = frugal.Machines(world.rank, world.size, world.allgather)
        f = frugal.Frugal(tables, 64, max_keys=4096, devices=2 * world.size, machines=machines)
        for device in f.own_devices:                     # two, of those that are numbered through all machines
            f.attach_cpu(device)
        ...                                              # announce, lookup, update: these devices, and no others
        f.drain()                                        # all machines

    `machine`: the number of this one, from 0. `machines`: how many there are; one is as no `machines`. `gather`: a
    function of one argument that all machines call, and that returns a list of what each has given, in their order. It
    is called once for each instance that is opened. `deal`: where rows are: "cyclic", "blocks", or uint8 [rows of all
    tables], the home of each. `address`: where the other machines find this one, a name or a number; None: the
    interface that GLOO_SOCKET_IFNAME names, else the one on the way to MASTER_ADDR, else the host's name. `seconds`:
    how long opening waits for the others.

    Messages go over TCP connections, one between any two machines, to ports that the system chooses.
    """

    def __init__(self, machine: int, machines: int, gather: Callable[[Any], Sequence[Any]], *, deal: Any = "cyclic",
                 address: Optional[str] = None, seconds: float = 300.0):
        self.machine, self.machines = in_range(machine, 32, "Machines: machine"), in_range(machines, 32, "Machines")
        if not self.machine < self.machines <= c.FRUGAL_MAX_MACHINES:
            raise ValueError(f"Machines: 1 to {c.FRUGAL_MAX_MACHINES} machines, numbered from 0, are wanted; machine "
                             f"{machine} of {machines} was given")
        self._gather, self.address, self.seconds = gather, address, seconds
        self.homes: Optional[bytes] = None
        if isinstance(deal, str):
            self.deal = named(deal, DEALS, "Machines: deal")
            if self.deal == c.FRUGAL_DEAL_LISTED:
                raise ValueError("Machines: deal: for listed homes give the list, uint8 [rows of all tables]")
        else:
            self.deal, self.homes = c.FRUGAL_DEAL_LISTED, _homes_of(deal)

    def connect(self) -> "Wire":
        """Connections for one instance. All machines call it. SettingsError, if they have different versions."""
        if not hasattr(lib, "frugal_sockets_open"):
            raise ImportError("Machines: the library that FRUGAL_LIBRARY names has no sockets: it was not built with "
                              "the Python package. Build it so: pip install ./python")
        until = time.monotonic() + self.seconds
        with _listener(self.machines) as listener:
            own = {"version": version, "order": sys.byteorder, "machines": self.machines, "host": socket.gethostname(),
                   "address": self.address or _own_address(), "port": listener.getsockname()[1],
                   "token": secrets.token_bytes(TOKEN)}
            others = list(self._gather(own))
            self._compare(own, others)
            sockets: list = [None] * self.machines
            try:
                for other in range(self.machine):
                    sockets[other] = self._reach(other, others[other], own["host"], until)
                self._accept(listener, own["token"], sockets, until)
                return Wire(self, sockets)
            finally:
                for one in sockets:
                    if one is not None:
                        one.close()  # unless they are the wire's

    def _compare(self, own: dict, others: Sequence[Any]) -> None:
        if len(others) != self.machines:
            raise ValueError(f"Machines: gather: a list of {self.machines} is wanted, what each machine gave; "
                             f"{len(others)} were returned")
        if others[self.machine] != own:
            raise ValueError(f"Machines: gather: what this machine gave is wanted at its number, {self.machine}; "
                             "something else was there. Number machines as `gather` does")
        for what, remedy in (("version", "Install one version of frugal on all"), ("machines", "Give all the same"),
                             ("order", "Machines of one byte order are wanted")):
            for number, other in enumerate(others):
                if other[what] != own[what]:
                    raise SettingsError(f"Machines: {what}: machine {self.machine} has {own[what]}, and machine "
                                        f"{number} has {other[what]}. {remedy}")

    def _reach(self, number: int, other: dict, host: str, until: float) -> socket.socket:
        place = (address_of(other, host), other["port"])
        try:
            made = socket.create_connection(place, max(until - time.monotonic(), 0.1))
            made.sendall(other["token"] + struct.pack("<I", self.machine))
            if _read(made, TOKEN) == other["token"]:
                return made
            made.close()
            raise OSError("another program answered")
        except OSError as error:
            raise ConnectionError(f"Machines: machine {number} ({other['host']}) cannot be reached at {place[0]}, port "
                                  f"{place[1]}: {error}. Give its process Machines(address=...), where the others find "
                                  "it, and let the firewall pass connections between the machines") from error

    def _accept(self, listener: socket.socket, token: bytes, sockets: list, until: float) -> None:
        """From the machines of higher numbers. Whoever else connects is turned away."""
        while None in sockets[self.machine + 1:]:
            listener.settimeout(max(until - time.monotonic(), 0.01))
            try:
                made, _ = listener.accept()
            except socket.timeout:
                missing = [number for number in range(self.machine + 1, self.machines) if sockets[number] is None]
                raise TimeoutError(f"Machines: machine {', '.join(map(str, missing))} has not connected within "
                                   f"{self.seconds:g} s. All machines open the same instances in the same order; their "
                                   "own message may say more") from None
            made.settimeout(max(min(until - time.monotonic(), 10.0), 0.1))
            try:
                said = _read(made, TOKEN + 4)
                number = struct.unpack("<I", said[TOKEN:])[0] if len(said) == TOKEN + 4 else 0
                if secrets.compare_digest(said[:TOKEN], token) and self.machine < number < self.machines:
                    made.sendall(token)
                    sockets[number] = made
                    continue
            except OSError:
                pass
            made.close()

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


class Wire:
    """The connections of one instance, and the structs that frugal_open reads. It owns the sockets."""

    def __init__(self, machines: Machines, sockets: Sequence[Optional[socket.socket]]):
        self.numbers = [-1 if one is None else one.fileno() for one in sockets]
        self.wire = c.frugal_wire()
        for one in sockets:
            if one is not None:
                _prepare(one)
        _open, self._close = _functions()
        check(_open((ctypes.c_int * len(sockets))(*self.numbers), machines.machine, machines.machines,
                    ctypes.byref(self.wire)))
        for one in sockets:
            if one is not None:
                one.detach()
        self.homes = machines.homes  # which frugal_open reads
        self.struct = c.frugal_machines(wire=ctypes.addressof(self.wire), deal=machines.deal,
                                        homes=ctypes.cast(ctypes.c_char_p(self.homes), ctypes.c_void_p))
        _wires.add(self)

    def close(self) -> None:
        """Behind the end of the instance."""
        if self.numbers:
            self.numbers = []
            self._close(self.wire.self, LINGER)

    def forget(self) -> None:
        """In a forked child, which must not keep connections open that its parent has lost."""
        for number in self.numbers:
            if number >= 0:
                os.close(number)
        self.numbers = []


def _functions() -> tuple:
    opens, closes = lib.frugal_sockets_open, lib.frugal_sockets_close
    opens.restype, opens.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p]
    closes.restype, closes.argtypes = None, [ctypes.c_void_p, ctypes.c_double]
    return opens, closes


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


def _prepare(one: socket.socket) -> None:
    """Small messages leave at once; a machine whose power is gone is lost at last."""
    one.settimeout(None)
    if one.family not in (socket.AF_INET, socket.AF_INET6):
        return
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", SILENT // 3), ("TCP_KEEPINTVL", SILENT // 6), ("TCP_KEEPCNT", 4),
                        ("TCP_USER_TIMEOUT", SILENT * 1000)):
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "SO_NOSIGPIPE"):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)


def _listener(machines: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=machines)
        except OSError:
            pass  # the system has IPv6, and this host has none
    return socket.create_server(("", 0), backlog=machines)


def _own_address() -> str:
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface and sys.platform.startswith("linux"):
        import fcntl
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            try:
                found = fcntl.ioctl(one, 0x8915, struct.pack("256s", interface.encode()[:15]))  # SIOCGIFADDR
            except OSError as error:
                raise OSError(f"Machines: the interface {interface}, of GLOO_SOCKET_IFNAME, has no address: {error}. "
                              "`ip address` lists them") from None
        return socket.inet_ntoa(found[20:24])
    master = os.environ.get("MASTER_ADDR")
    if master:
        try:
            for family, kind, _, _, place in socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as one:
                    one.connect(place)  # sends nothing: asks for the way
                    return one.getsockname()[0]
        except OSError:
            pass
    return socket.gethostname()


def address_of(other: dict, host: str) -> str:
    """Where another machine is found from `host`: what it says, unless that is where each machine finds itself."""
    address = other["address"]
    if other["host"] != host and (address.startswith("127.") or address in ("::1", "localhost")):
        return other["host"]
    return address


def _read(one: socket.socket, n: int) -> bytes:
    """`n` bytes, or fewer, if the connection ends before."""
    got = b""
    while len(got) < n:
        part = one.recv(n - len(got))
        if not part:
            break
        got += part
    return got


def forget() -> None:
    """In a forked child."""
    for wire in list(_wires):
        wire.forget()
