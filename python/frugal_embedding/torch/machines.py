"""Several machines, over whose memories tables are dealt, as torchrun starts them; messages go by torch.distributed."""
from __future__ import annotations

import ctypes
import os
import queue
import re
import struct
import threading
import time
from collections import defaultdict, deque
from datetime import timedelta
from typing import Any, Deque, Dict, List, Optional

import torch
import torch.distributed as dist

from ..machines import LINGER, Dealt, Parcel, Wire, at_exit, bytes_of, put

HEADER = struct.Struct("<QQ")  # a message's tag and length
FRAME = 1024  # bytes: its header and its beginning; what is left is a message of its own
ROOM = FRAME - HEADER.size
END = 1 << 32  # a tag: nothing follows
EVER = timedelta(days=10000)  # a wait of gloo that ends early breaks all connections


class Machines(Dealt):
    """This process as one of several machines: the argument `machines` of the modules, and of frugal_embedding.Frugal.

        torch.distributed.init_process_group("gloo")                  # or "nccl", for the rest of the model
        bag = EmbeddingBag(rows, dim, max_keys=n, workers=1, machines=Machines())
        ...                                      # the same steps in every process, each with batches of its own
        bag.save("monday")                       # all processes
        bag.close()                              # all processes, before torch.distributed.destroy_process_group()

    Each process has a part of every table in its memory, whether it has a host of its own or not, and as many logical
    devices as it gives the module; they are numbered through all processes, by rank. The bits are those of one process
    with a list of as many devices. All processes make the same modules in the same order, and together they drain,
    save, make and load a state_dict, exchange. What is announced is trained; `cancel` does not take it back.

    `group`: a group of torch.distributed, whose ranks number the machines; None: all processes. Messages go over a
    group of their own, with gloo, which all processes of `group` make here; GLOO_SOCKET_IFNAME names the network.
    `deal`: "cyclic", "blocks", or the home of each row of all tables, uint8. `seconds`: how long a module that is made
    waits for the other processes. Without torchrun there is one machine, and `machines` changes nothing.
    """

    def __init__(self, group: Optional[Any] = None, *, deal: Any = "cyclic", seconds: float = 300.0):
        if not (dist.is_available() and dist.is_gloo_available()):
            raise RuntimeError("Machines: torch.distributed with gloo is wanted, and this PyTorch was built without "
                               "it. Install another one, or use frugal_embedding.Machines, over MPI")
        self.group: Any = None
        self.seconds, self._wires = seconds, 0
        rank, ranks = 0, [0]
        if dist.is_initialized():
            of: Any = dist.group.WORLD if group is None else group
            ranks = dist.get_process_group_ranks(of)
            if dist.get_rank() not in ranks:
                raise ValueError("Machines: group: this process is not in it")
            rank = ranks.index(dist.get_rank())
            self.group = dist.new_group(ranks, timeout=timedelta(seconds=seconds), backend="gloo",
                                        use_local_synchronization=group is not None)
        elif int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise RuntimeError(f"Machines: torch.distributed is not initialized, and WORLD_SIZE is "
                               f"{os.environ['WORLD_SIZE']}. First call torch.distributed.init_process_group('gloo')")
        if isinstance(deal, torch.Tensor):
            deal = deal.cpu().contiguous().numpy()
        super().__init__(rank, len(ranks), deal)

    def gather(self, given: Any) -> List[Any]:
        made: List[Any] = [None] * self.machines
        try:
            dist.all_gather_object(made, given, group=self.group)
        except RuntimeError as error:
            raise ConnectionError(f"Machines: all machines open the same instances in the same order, within "
                                  f"{self.seconds:g} s; one of them has not, or is lost: {_said(error)}") from error
        return made

    def make_wire(self) -> Wire:
        self._wires += 1
        return Gloo(self, self.group, self._wires)


def _said(error: BaseException) -> str:
    """Without the place in gloo's sources."""
    return re.sub(r"^\[[^]]*\] ", "", str(error).split("\n", 1)[0])


class Gloo(Wire):
    """Of each pair of machines and each direction the messages are one stream, so they keep their order. Two threads
    for each other machine wait in gloo, without Python's lock. What they send and receive lies in memory of their own,
    so none of an instance is in use when it has ended, even if a thread still waits."""

    def __init__(self, machines: Dealt, group: Any, number: int):
        """`number`: of the wires of this group, which have tags of their own."""
        super().__init__(machines)
        self.group = group
        self.words: List[int] = []  # by request: its length, plus 1, when it is done
        self.peers = {machine: _Peer(self, machine, group, 2 * number)
                      for machine in range(machines.machines) if machine != machines.machine}

    def begin(self, requests: int) -> None:
        self.words = [0] * requests
        for peer in self.peers.values():
            peer.start()

    def send(self, request: int, parcel: Parcel) -> None:
        self.peers[parcel.peer].send(parcel)
        self.words[request] = bytes_of(parcel) + 1  # it was copied

    def receive(self, request: int, parcel: Parcel) -> None:
        self.words[request] = 0
        self.peers[parcel.peer].receive(request, parcel)

    def done(self, request: int) -> int:
        return self.words[request]

    def _done(self, _: Any, request: int, n: Any) -> int:  # which is asked hundreds of times a step
        length = self.words[request]
        if length:
            n[0] = length - 1
        return 1 if length else 0

    def end(self) -> None:
        for peer in self.peers.values():
            peer.end()

    def close(self) -> None:
        until = time.monotonic() + LINGER
        self.end()
        for peer in self.peers.values():
            peer.join(until)
        if any(thread.is_alive() for peer in self.peers.values() for thread in peer.threads):
            at_exit.append(self._break)

    def _break(self) -> None:
        """A machine has not answered. No thread may wake when Python has ended, so all wake now: gloo breaks the
        connections of a group in which one wait ends early."""
        for peer in self.peers.values():
            try:
                self.group.recv([torch.empty(1, dtype=torch.uint8, device="cpu")], peer.machine,
                                peer.tag + 1).wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass
            peer.join(time.monotonic() + LINGER)


class _Peer:
    """Another machine. A frame is received while the message before it still comes: they have tags of their own."""

    def __init__(self, wire: Gloo, machine: int, group: Any, tag: int):
        self.wire, self.machine, self.group, self.tag = wire, machine, group, tag
        self.queue: "queue.SimpleQueue[Optional[torch.Tensor]]" = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.ended = self.left = False  # this machine; one of both. Under the lock, as are the next
        self.asked: Dict[int, Deque[tuple]] = defaultdict(deque)  # by tag: requests and their parcels
        self.held: Dict[int, Deque[tuple]] = defaultdict(deque)  # messages for which there was no request
        self.threads = [threading.Thread(target=target, daemon=True, name=f"frugal, machine {machine}")
                        for target in (self._send_all, self._receive_all)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def send(self, parcel: Parcel) -> None:
        if not self.left:  # else nobody reads it
            self._post(parcel.tag, bytes_of(parcel), parcel)

    def _post(self, tag: int, n: int, parcel: Optional[Parcel] = None) -> None:
        message = torch.empty(max(FRAME, HEADER.size + n), dtype=torch.uint8, device="cpu")
        at = message.data_ptr()
        ctypes.memmove(at, HEADER.pack(tag, n), HEADER.size)
        if parcel is not None:
            ctypes.memmove(at + HEADER.size, parcel.head, parcel.head_bytes)
            ctypes.memmove(at + HEADER.size + parcel.head_bytes, parcel.body, parcel.body_bytes)
        self.queue.put(message)

    def receive(self, request: int, parcel: Parcel) -> None:
        with self.lock:
            held = self.held[parcel.tag]
            if held:
                self._put(request, parcel, *held.popleft())
            else:
                self.asked[parcel.tag].append((request, parcel))

    def end(self) -> None:
        """Nothing is written into a request's memory behind this."""
        with self.lock:
            self.ended = True
            self.asked.clear()
            self.held.clear()
        self._leave()

    def _leave(self) -> None:
        with self.lock:
            left, self.left = self.left, True
        if not left:
            self._post(END, 0)
            self.queue.put(None)

    def join(self, until: float) -> None:
        for thread in self.threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))

    def _send_all(self) -> None:
        try:
            while True:
                message = self.queue.get()
                if message is None:
                    return
                works = [self.group.send([message[:FRAME]], self.machine, self.tag)]
                if len(message) > FRAME:
                    works.append(self.group.send([message[FRAME:]], self.machine, self.tag + 1))
                for work in works:
                    work.wait(EVER)
        except Exception as error:
            self._lose(error)

    def _receive_all(self) -> None:
        try:
            frames = [torch.empty(FRAME, dtype=torch.uint8, device="cpu") for _ in range(2)]
            work = self.group.recv([frames[0]], self.machine, self.tag)
            while True:
                work.wait(EVER)
                frame = frames[0]
                tag, n = HEADER.unpack(ctypes.string_at(frame.data_ptr(), HEADER.size))
                if tag == END:
                    break
                frames.reverse()
                work = self.group.recv([frames[0]], self.machine, self.tag)
                rest = torch.empty(max(n - ROOM, 0), dtype=torch.uint8, device="cpu")
                if len(rest):
                    self.group.recv([rest], self.machine, self.tag + 1).wait(EVER)
                self._arrived(tag, n, frame, rest)
            self._leave()  # it reads no more, and is not lost
        except Exception as error:
            self._lose(error)

    def _arrived(self, tag: int, n: int, frame: torch.Tensor, rest: torch.Tensor) -> None:
        with self.lock:
            if self.ended:
                return
            if self.asked[tag]:
                request, parcel = self.asked[tag].popleft()
                self._put(request, parcel, n, frame, rest)
            else:
                self.held[tag].append((n, frame.clone(), rest))

    def _put(self, request: int, parcel: Parcel, n: int, frame: torch.Tensor, rest: torch.Tensor) -> None:
        if n > bytes_of(parcel):
            return self.wire.too_long(parcel, n)
        put(parcel, [(frame.data_ptr() + HEADER.size, min(n, ROOM)), (rest.data_ptr(), len(rest))])
        self.wire.words[request] = n + 1

    def _lose(self, error: Exception) -> None:
        if not self.left:
            self.wire.lose(self.machine, f"its connection ended: {_said(error)}")
        self.queue.put(None)


__all__ = ["Machines"]
