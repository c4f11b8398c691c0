"""An instance: tables in host memory, the devices that train them, and their steps. The calls are those of frugal.h.

Arrays are NumPy arrays, objects with the buffer protocol (array, memoryview), or DLPack (PyTorch, CuPy, JAX). They are
read and written in place. Where a shape is given, n is the number of keys of a batch. An array "of floats" is float32,
float16 ("fp16"), or ml_dtypes.bfloat16 or uint16 with the same bits ("bf16"), and may have gaps between its rows.

Threads: a device has a loader (`announce`) and a trainer (`lookup`, `update`), in two threads or one; one thread may
drive several devices. The calls release the GIL.

Ctrl-C: a call that has to wait for another thread (for the announcement of a loader, or for another device) waits in
Python, where Ctrl-C ends it with KeyboardInterrupt. Nothing has changed then, and the call may be made again. Once no
other thread has to act, the library finishes the call by itself, and a KeyboardInterrupt comes after it. `next_steps`
says what has been done, if that is not known.

Processes: one opens an instance with `name`; others `join` it, attach devices that no process has, and train them
(docs/processes.md). An announcement that waits for a device of another process waits in Python, too. A lookup waits in
the library: there the end of the other process ends the wait, with LostError, and Ctrl-C does not.

Machines: each opens an instance with `machines`, whose memory has the rows that are dealt to it, and trains its
`own_devices`; devices are numbered through all machines (frugal_machines.h, docs/machines.md). All machines make the
calls that say "Collective", in the same order. Waits are as with several processes.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import warnings
import weakref
from threading import get_ident
from typing import Any, Callable, Optional, Sequence, Union

from . import _arrays
from ._arrays import Array, array_of
from ._given import (Keys, as_dict, bags_of, by_table, fill_table, keys_of, labels_of, matrix_of, name_of, paths_of,
                     tables_of)
from ._library import AGAIN, NOTICE, STOPPED, c, check, fail, lib, need_gpus
from .errors import (ArgumentError, BusyError, DeviceError, KeysError, OrderError, ProcessError, Stopped, StuckError,
                     TableError)
from .machines import Dealt, Wire, at_exit
from .settings import (ALONE, KINDS, MODES, POLICIES, POOLING, REDUCE, ROUNDING, TYPES, Optimizer, Table, Workers,
                       _open_workers, as_optimizer, flag, in_range, named, path_of, struct_of, word_of)

LOST = -17
SLICE = 0.05  # seconds: how long a wait in Python sleeps, unless it is woken
NOTICE_SECONDS = 5.0  # a wait in Python that takes longer says what it waits for, once
SHORTEST, LONGEST = 20e-6, 1e-3  # seconds: how long a wait for another process sleeps: no thread wakes it


class _Owner:
    """The instance of the library: freed when the last object that holds this is gone. Views hold it, so they never
    outlive their memory."""

    def __init__(self, handle: int, kept: list):
        self.handle: Optional[int] = handle
        self.kept = kept  # the caller's matrices, shared workers, and a wire: they must outlive the instance
        self.process = os.getpid()
        _owners.add(self)

    def close(self) -> int:
        handle, self.handle = self.handle, None
        if handle is None or os.getpid() != self.process:  # in a forked child the instance is the parent's
            return 0
        status = lib.frugal_close(handle)
        for one in self.kept:
            if isinstance(one, Wire):
                one.close()
        self.kept.clear()
        return status

    def __del__(self) -> None:
        if lib is None or self.handle is None:
            return
        if any(isinstance(one, Wire) for one in self.kept):  # it may be the instance's own thread that runs this
            threading.Thread(target=self.close).start()
        else:
            self.close()


class _Log:
    """A call of the library and its outcome, so that no interrupt can lose one without the other.

    Python raises KeyboardInterrupt between bytecodes. `statuses.extend(map(call, ...))` is one: it makes the call, and
    notes its status. What follows from it (`effect`) can be repeated, and is, until the log is empty.
    """

    __slots__ = ("statuses", "effect")

    def __init__(self) -> None:
        self.statuses: list = []
        self.effect: tuple = ()


ANNOUNCED, LOOKED_UP, UPDATED, FINISHED, CANCELLED = range(5)


class _Device:
    """What the calls of one device reuse: their structs, and the arrays that must live until the update."""

    def __init__(self, first_step: int):
        self.loader, self.trainer = _Log(), _Log()  # of the calls of each
        self.announced = self.looked_up = self.updated = first_step  # the next step of each kind
        self.n: dict[int, int] = {}  # keys of the announced steps that have not been updated
        self.attached = self.finished = False
        self.ordinal: Optional[int] = None  # of a device on a GPU
        self.stream = 0
        self.n_bags: Optional[int] = None  # of the latest lookup
        self.bags = c.frugal_bags()
        self.to = c.frugal_row_array()
        self.gradients = c.frugal_gradients()
        self.batch = c.frugal_batch()
        self.kept: Any = None  # arrays of self.bags
        self.segments: Any = None


_instances: "weakref.WeakSet[Frugal]" = weakref.WeakSet()
_owners: "weakref.WeakSet[_Owner]" = weakref.WeakSet()


def _forget() -> None:
    """In a forked child, such as a data loader's: the instances are the parent's, whose workers the child does not
    have. Locks that another thread of the parent held stay locked here, so there are new ones."""
    for instance in list(_instances):
        instance._handle = None
        instance._announcing, instance._condition = threading.Lock(), threading.Condition()
        instance._calls.clear()
    for owner in list(_owners):  # those of views, too
        owner.handle = None
    for workers in list(_open_workers):
        workers._handle = None
    at_exit.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _close_wires() -> None:
    """Threads of instances that several machines have call Python, which ends now."""
    for owner in list(_owners):
        if any(isinstance(one, Wire) for one in owner.kept):
            owner.close()
    while at_exit:
        at_exit.pop()()


def _kinds_of(dtype: Optional[str], call: str) -> tuple:
    """How arrays of a type may come; None: of any type of floats."""
    return _arrays.FLOATS if dtype is None else _arrays.KINDS[named(dtype, TYPES, f"{call}: dtype")]


class Frugal:
    """An instance, open from its construction to `close`; as a context manager it is closed at the end.

    Fields are those of frugal_desc in frugal.h, where each is described.

    `tables`: Tables, or their numbers of rows. `dim`: weights a row. `rows_as`: what weights are stored as: "fp32",
    "bf16" or "fp16". `rounding`: how updates round those of 16 bits: "stochastic", by random bits that `seed` decides,
    or "nearest". `devices`: logical devices. `max_keys`: the most keys of one device in one step. `lookahead`: how many
    steps announcements may run ahead, 0 to 15. `workers`: a number of threads of its own, or Workers that instances
    share; with 0 the calling threads do all work. `optimizer`: its kind, or an Optimizer. `weights`: a matrix [rows of
    all tables, dim] of the caller, of the type `rows_as`, which then is the table; `state`: the same, float32, for
    optimizer states. `file`: the table is a file that is mapped into memory. `saved`: files that the rows are restored
    from, a base and its increments. `name`: other processes may `join` the instance by it, 1 to 64 bytes; needs
    `workers`, and no `weights`. ProcessError, if another instance has the name. `machines`: tables are dealt over
    the memories of several machines; `devices` are then those of all of them. Collective. SettingsError, if they open
    with other settings.

    Attributes: `machine`, `machines` (the number of this one, and how many; 0 and 1 if there is one), `own_devices`
    (the numbers of those that this machine has), `dim`, `devices`, `rows` (of each table), `lookahead`, `max_keys`,
    `first_step`, `rows_as`, `rounding`, `state_floats` (of the optimizer, per row), `name` (None: no other process may
    join), `joined` (another process has opened it).
    """

    def __init__(self, tables: Sequence[Union[Table, int]], dim: int, *, max_keys: int, devices: int = 1,
                 lookahead: int = 0, staging: int = 0, staging_bytes: int = 0, workers: Union[int, Workers] = 0,
                 defer: bool = False, mode: str = "p2f", alone: str = "default", reduce: str = "sum",
                 optimizer: Union[str, Optimizer] = "sgd", first_step: int = 0, seed: int = 0, init_threads: int = 0,
                 stuck_seconds: float = 0.0, weights: Any = None, state: Any = None, file: Optional[str] = None,
                 sparse: bool = False, take_torn: bool = False, saved: Sequence[str] = (), saved_part: int = 0,
                 saved_settings_may_differ: bool = False, increments: bool = False, name: Optional[str] = None,
                 rows_as: str = "fp32", rounding: str = "stochastic", machines: Optional[Dealt] = None):
        self._handle: Optional[int] = None
        self._owner: Optional[_Owner] = None
        kept: list = [weights, state]
        made = tables_of(tables)
        default = as_optimizer(optimizer)
        structs = (c.frugal_table * len(made))()
        keep: list = []
        for struct, table in zip(structs, made):
            fill_table(struct, table, dim, keep)
        files = paths_of(saved, "saved")
        desc = struct_of(
            c.frugal_desc, tables=ctypes.addressof(structs), n_tables=len(made), dim=dim, devices=devices,
            max_keys=max_keys, lookahead=lookahead, staging=staging, staging_bytes=staging_bytes, defer=defer,
            mode=named(mode, MODES, "mode"), alone=named(alone, ALONE, "alone"),
            reduce=named(reduce, REDUCE, "reduce"), rows_as=named(rows_as, TYPES, "rows_as"),
            rounding=named(rounding, ROUNDING, "rounding"), optimizer=default.struct(), first_step=first_step,
            seed=seed, init_threads=init_threads, stuck_seconds=stuck_seconds, sparse=sparse, take_torn=take_torn,
            file=None if file is None else path_of(file, "file"), n_saved=len(files), saved_part=saved_part,
            saved_settings_may_differ=saved_settings_may_differ, increments=increments,
            name=None if name is None else name_of(name))
        if isinstance(workers, Workers):
            if workers._handle is None:
                raise ValueError("workers: these Workers are closed; open new ones: Workers(n)")
            desc.shared_workers = workers._handle
            kept.append(workers)
        else:
            desc.workers = in_range(workers, 32, "workers")
        total = sum(table.rows for table in made)
        desc.weights, desc.weights_stride = matrix_of(weights, f"weights, with rows_as={rows_as!r}",
                                                      _arrays.KINDS[desc.rows_as], (total, dim), kept)
        floats = lib.frugal_state_floats(desc.optimizer.kind, dim)
        desc.state, desc.state_stride = matrix_of(state, "state", ("float32",), (total, floats), kept)
        desc.notice = NOTICE
        desc.saved = files or None
        dealt = machines if machines is not None and machines.machines > 1 else None
        wire = None if dealt is None else dealt.connect()  # behind what may be refused here
        if wire is not None:
            desc.machines = ctypes.addressof(wire.struct)
            kept.append(wire)
        handle = ctypes.c_void_p()
        status = lib.frugal_open(ctypes.byref(desc), ctypes.byref(handle))
        if status:
            try:
                fail(status, [table.name for table in made])
            finally:
                lib.frugal_close(handle.value)
                if wire is not None:
                    wire.close()
        self.tables = tuple(made)
        self.optimizer = default
        self._take(handle.value or 0, kept, name, False, dealt)
        self.rows = tuple(table.rows for table in made)  # the library says those that this machine has

    @classmethod
    def join(cls, name: str, seconds: float = 60.0) -> "Frugal":
        """Joins the instance that another process of this user has opened with `name`, or opens within `seconds`.
        Returns this process's own Frugal of it, to attach devices that no process has, and to train them: announce,
        lookup, update, sum_squares, finish. Its settings are those of the process that opened.

        That process alone may drain, cancel, save, view, verify, read and write rows, set counts and release holders;
        here these raise ProcessError. It must not drain or close before this process has made its last update: let both
        meet first, at a multiprocessing.Barrier or in torch.distributed.barrier(). `close` leaves the instance.

        Linux only. Ctrl-C ends the wait. Errors: ArgumentError (the name, or `seconds` below 0); ProcessError (no
        process has opened it, or one with another version of Frugal has); OutOfMemoryError, WorkerError, FileError.
        Later calls raise LostError, if the process that opened, or one that has joined, ends too early.
        """
        made = cls.__new__(cls)
        made._handle = made._owner = None
        text = name_of(name)
        if not 0 <= seconds:
            raise ArgumentError(f"join: a wait of 0 seconds or more is wanted; {seconds!r} was given")
        since = time.monotonic()
        while True:
            # In slices, because Ctrl-C cannot end a wait in the library.
            left = max(since + seconds - time.monotonic(), 0.0)
            handle = ctypes.c_void_p()
            status = lib.frugal_join(text, min(left, SLICE), ctypes.byref(handle))
            if not status:
                break
            try:
                fail(status)
            except ProcessError as error:
                if "no process of this user" not in str(error):
                    raise  # a process has opened it, and does not let this one join
                if left <= SLICE:
                    raise ProcessError(f"FRUGAL_ERR_PROCESS: join: no process of this user has an open instance of the "
                                       f"name {name}; waited {seconds:g} s. Open it there with name={name!r}") from None
            finally:
                lib.frugal_close(handle.value)
        lib.frugal_on_notice(handle, NOTICE, None)
        made._take(handle.value or 0, [], name, True)
        settings = c.frugal_desc.from_address(lib.frugal_settings(handle.value))
        of = settings.optimizer
        made.optimizer = Optimizer(word_of(of.kind, KINDS), of.eps, of.beta1, of.beta2, of.weight_decay,
                                   of.initial_accumulator, of.lr_scale, of.clip_norm, bool(of.frozen))
        made.tables = tuple(Table(rows) for rows in made.rows)
        return made

    def _take(self, handle: int, kept: list, name: Optional[str], joined: bool,
              dealt: Optional[Dealt] = None) -> None:
        """Makes this the object of an open instance. All that it knows comes from the library, so that every way to
        open one can end here."""
        self._owner = _Owner(handle, kept)
        settings = c.frugal_desc.from_address(lib.frugal_settings(handle))
        rows = (c.frugal_table * settings.n_tables).from_address(settings.tables)
        self._handle = handle
        self.name, self.joined, self._dealt = name, joined, dealt
        self.machine, self.machines = (0, 1) if dealt is None else (dealt.machine, dealt.machines)
        self._shared = name is not None or dealt is not None  # others train, too, of which the library alone knows
        _instances.add(self)
        self.rows = tuple(table.rows for table in rows)
        self.dim, self.devices, self.max_keys = settings.dim, settings.devices, settings.max_keys
        n = self.devices // self.machines
        self.own_devices = range(self.machine * n, self.machine * n + n)
        self.lookahead, self.first_step = settings.lookahead, settings.first_step
        self.rows_as, self.rounding = word_of(settings.rows_as, TYPES), word_of(settings.rounding, ROUNDING)
        self.state_floats = lib.frugal_state_floats(settings.optimizer.kind, settings.dim)
        self._stuck_seconds = settings.stuck_seconds
        self._devices = [_Device(settings.first_step) for _ in range(settings.devices)]
        self._ended = False  # stopped, or a device was lost: threads that wait ask the library
        self._announcing = threading.Lock()  # held by calls during which none may announce
        self._condition = threading.Condition()
        self._waiters = 0
        self._views: list[weakref.ref] = []
        self._calls: set[int] = set()  # threads that are in a call of the library
        self._log = _Log()  # of finish and cancel
        self.after_write: Optional[Callable[[], Any]] = None  # rows were written: what was read of them is old

    # Devices

    def attach_cpu(self, device: int = 0, cache_rows: int = 0, policy: str = "counted", threads: int = 0) -> None:
        """Attaches `device` as one on host cores, before its first announcement. `cache_rows`: rows of its cache; 0:
        none. `policy`: which rows it keeps: "counted", "lru" or "static". `threads`: that share its work; 0: the
        processors, divided among the devices."""
        desc = struct_of(c.frugal_cpu_desc, cache_rows=cache_rows, policy=named(policy, POLICIES, "policy"),
                         threads=threads)
        d = self._device(device)
        self._check(self._call(lib.frugal_cpu_attach, device, ctypes.byref(desc)))
        d.attached = True

    def attach_cuda(self, device: int = 0, ordinal: int = 0, cache_rows: int = 0, policy: str = "counted",
                    stream: int = 0, gate_on_stream: bool = False, shrink_cache: bool = False) -> None:
        """Attaches `device` on GPU `ordinal`: see frugal_cuda.h. `stream`: the handle of a CUDA stream (as
        torch.cuda.current_stream().cuda_stream); 0: the default stream. Rows, gradients, offsets and weights of this
        device lie in the GPU's memory, and keys in the host's or there."""
        need_gpus("attach_cuda", "frugal_cuda_attach")
        desc = struct_of(c.frugal_cuda_desc, cache_rows=cache_rows, policy=named(policy, POLICIES, "policy"),
                         stream=stream or None, shrink_cache=shrink_cache, gate_on_stream=gate_on_stream)
        d = self._device(device)
        self._check(self._call(lib.frugal_cuda_attach, device, in_range(ordinal, 31, "ordinal"), ctypes.byref(desc)))
        d.attached = True
        d.ordinal, d.stream = ordinal, stream

    @property
    def is_closed(self) -> bool:
        """Closed, or opened by the parent of this process."""
        return self._handle is None

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError("the instance is closed, or was opened by the parent of this process")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Calls function(handle, ...) of the library. While a thread is in a call, `close` does not free the
        instance."""
        thread = get_ident()
        self._calls.add(thread)
        try:
            return function(self._handle or self._open(), *arguments)
        finally:
            self._calls.discard(thread)

    def _logged(self, log: _Log, effect: tuple, function: Any, *arguments: tuple) -> int:
        """As _call, for a call that moves a step on: with its effect on the counters here. Each argument is in a
        tuple."""
        thread = get_ident()
        self._calls.add(thread)
        try:
            log.effect = effect
            log.statuses.extend(map(function, (self._handle or self._open(),), *arguments))
            return self._settle(log)
        except BaseException:
            self._settle(log)
            raise
        finally:
            self._calls.discard(thread)

    def _settle(self, log: _Log) -> int:
        """Takes a finished call into account. Can be repeated from the beginning at any point."""
        if not log.statuses:
            return 0
        status = log.statuses[-1]
        kind, d, step, value = log.effect
        if status:
            pass
        elif kind == ANNOUNCED:
            d.n[step] = value
            d.announced = step + 1
        elif kind == LOOKED_UP:
            d.looked_up = step + 1
            d.n_bags, d.kept = value
        elif kind == UPDATED:
            d.updated = step + 1
            d.n.pop(step, None)
            d.kept = None
        elif kind == FINISHED:
            d.finished = True
        else:
            for one in self._devices:
                for later in [s for s in one.n if s >= step]:
                    one.n.pop(later, None)
                one.finished = one.finished and one.announced <= step
                one.announced = min(one.announced, step)
        log.statuses.clear()
        if self._waiters:
            self._wake()
        return status

    def _device(self, device: int, step: int = 0) -> _Device:
        if self._handle is None:
            self._open()
        if type(device) is not int:
            in_range(device, 32, "device")
        if not 0 <= device < self.devices:
            raise DeviceError(f"device {device}: the instance has {self.devices}, numbered from 0")
        if type(step) is not int or not 0 <= step < 1 << 64:
            in_range(step, 64, "step")
        return self._devices[device]

    def next_steps(self, device: int = 0) -> dict[str, int]:
        """The next step that `device` may announce, look up and update: {"announce": a, "lookup": l, "update": u}.
        After a KeyboardInterrupt they say which calls the library has finished. While u < l, step u is under way."""
        d = self._device(device)
        for log in (d.loader, d.trainer, self._log):
            self._settle(log)
        return {"announce": d.announced, "lookup": max(d.looked_up, d.updated), "update": d.updated}

    # Steps

    def announce(self, device: int, step: int, keys: Keys, read_only: bool = False, stream: int = 0) -> None:
        """Announces the batch of `device` at `step`, at most `lookahead` steps ahead of training.

        `keys`: int64, uint64 or int32 [n] for table 0; or {table: keys}, or [(table, keys), ...]: the positions of the
        batch run through them in turn. They are copied, so the caller may change them afterwards. `read_only`: the
        device will bring no gradients. Waits until the step is legal. If the device is on a GPU, keys may lie in its
        memory, all of them: see frugal_cuda_announce, which says when they are copied to the host, and that a wrong key
        may be an error of lookup. `stream`: the handle of the CUDA stream that has written them; 0: the default stream.
        """
        given = list(by_table(keys, "announce: keys"))
        ordinal = None if self._shared else self._device(device, step).ordinal
        there = ordinal is not None and any(_arrays.is_on_gpu(part) for _, part in given)
        segments = []
        for table, part in given:
            array = keys_of(part, f"announce: keys of {self._label(table)}", ordinal if there else None, stream)
            segments.append((table, array.address, array.shape[0], array.kind, array.owner))
        self.announce_addresses(device, step, segments, read_only, stream=stream if there else None)

    def announce_addresses(self, device: int, step: int, segments: Sequence[tuple], read_only: bool = False,
                           given_up: Optional[threading.Event] = None, stream: Optional[int] = None) -> None:
        """As announce, for callers that have addresses already: segments of (table, address, n, kind, owner), `kind`
        one of int64, uint64 and int32. No array is checked. `given_up`: when it is set, a wait for another process ends
        with Stopped; nothing has changed then. `stream`: that of keys in the GPU's memory, which an instance that
        several processes or machines train does not take; None: they lie in the host's."""
        d = self._device(device, step)
        self._settle(d.loader)
        n = len(segments)
        if d.segments is None or len(d.segments) < n:
            d.segments = (c.frugal_keys * max(n, 1))()
        total = 0
        for struct, (table, address, count, kind, _) in zip(d.segments, segments):
            self._table(table)
            if count >> 32:
                raise KeysError(f"announce: {count} keys; max_keys is {self.max_keys}")
            struct.table, struct.n = table, count
            struct.keys, struct.keys32 = (None, address) if kind == "int32" else (address, None)
            total += count
        d.batch.segments = ctypes.addressof(d.segments)
        d.batch.n_segments, d.batch.read_only = n, flag(read_only, "read_only")
        if step == d.announced:  # any other step is refused at once
            self.await_announce(step)
        call = lib.frugal_try_announce if self._shared else lib.frugal_announce
        of_stream: tuple = ()
        if stream is not None:
            call, of_stream = lib.frugal_cuda_announce, ((stream or None,),)
        since, noticed = 0.0, False
        while True:
            with self._announcing:
                status = self._logged(d.loader, (ANNOUNCED, d, step, total), call, (device,), (step,),
                                      (ctypes.byref(d.batch),), *of_stream)
            if status != AGAIN:
                break
            since = since or time.monotonic()
            noticed = self._wait_for_process(since, noticed, lambda: self._late("announce", step))
            if given_up is not None and given_up.is_set():
                raise Stopped(f"announce of step {step}: it was given up while it waited for another process")
        if status:
            self._fail(status)

    def _local(self) -> list:
        """The devices whose calls are made in this process. The library knows the others, and waits for them."""
        return [d for d in self._devices if d.attached] if self._shared else self._devices

    def may_announce(self, step: int) -> bool:
        """Can `step` be announced without waiting for another call, of this thread or of another one? Other processes
        may still have to be waited for."""
        for d in self._local():
            if d.finished:
                if d.updated < d.announced and d.updated + self.lookahead < step:
                    return False  # it still owes updates of what it has announced
            elif d.announced < step or d.updated + self.lookahead < step:
                return False
        return True

    def await_announce(self, step: int) -> None:
        """Waits until `step` may be announced."""
        if not self.may_announce(step):
            self._wait(lambda: self.may_announce(step), lambda: self._late("announce", step))

    def await_lookup(self, device: int, step: int) -> None:
        """Waits until the other devices have made the calls that the lookup of `step`, the next of `device`, needs."""
        if step == self._devices[device].updated and not self._may_look_up(step):
            self._wait(lambda: self._may_look_up(step), lambda: self._late("lookup", step))

    def _keys_of(self, d: _Device, step: int) -> int:
        """The number of keys of the batch of `step`; waits for its loader, if the step is the next one."""
        n = d.n.get(step)
        if n is None and step == d.updated:
            self._wait(lambda: step in d.n or d.finished, lambda: self._late("lookup", step))
            n = d.n.get(step)
        return n or 0

    def _may_look_up(self, step: int) -> bool:
        for d in self._local():
            if d.finished:
                if d.updated < min(step, d.announced):
                    return False
            elif d.announced <= step or d.updated < step:
                return False
        return True

    def lookup(self, device: int, step: int, out: Any = None, dtype: Optional[str] = None) -> Any:
        """The rows of the announced batch, by position: an array of floats [n, dim]; `out` if it is given, else a new
        one of `dtype`: "fp32", the default, "bf16" or "fp16". Weights that do not fit into 16 bits are rounded to the
        nearest. May be repeated before update. Waits at the gate, until these rows have all updates of the steps
        before."""
        d = self._device(device, step)
        out, rows, number = self._target(d, (self._keys_of(d, step), self.dim), out, dtype, "lookup")
        self.lookup_address(device, step, rows.address, rows.stride, number)
        return out

    def _target(self, d: _Device, shape: tuple, out: Any, dtype: Optional[str], call: str) -> tuple:
        """Where a lookup writes: the array that it returns, its memory, and its frugal_type."""
        kinds = _kinds_of(dtype, call)
        if out is None:
            if d.ordinal is not None:
                raise ValueError(f"{call}: the device is on a GPU; give `out`, an array {list(shape)} of float32, or "
                                 "another type of floats, in its memory")
            if dtype is None:
                kinds = _arrays.KINDS[c.FRUGAL_FP32]
            out = _arrays.new_array(shape, _arrays.TYPE_OF[kinds[0]])
        memory = array_of(out, f"{call}: out", kinds, shape, True, d.ordinal, d.stream, "rows")
        return out, memory, _arrays.TYPE_OF[memory.kind]

    def lookup_address(self, device: int, step: int, address: int, stride: int = 0, dtype: int = 0) -> None:
        """As lookup, into the memory at `address`, which is not checked; 0: only into the step's staging block.
        `stride`: elements from row to row, at least dim; 0: dim. `dtype`: the number of a frugal_type."""
        d = self._device(device, step)
        self._settle(d.trainer)
        self.await_lookup(device, step)
        to = d.to
        to.rows, to.stride, to.bags, to.as_ = address or None, stride, None, dtype if address else 0
        status = self._logged(d.trainer, (LOOKED_UP, d, step, (None, None)), lib.frugal_lookup_into, (device,), (step,),
                              (ctypes.byref(to),))
        if status:
            self._fail(status)

    def lookup_bags(self, device: int, step: int, offsets: Any, weights: Any = None, pooling: str = "sum",
                    out: Any = None, dtype: Optional[str] = None) -> Any:
        """The rows of the announced batch, pooled: an array of floats [n_bags, dim], as from `lookup`. Bag b pools the
        positions offsets[b] to offsets[b + 1] - 1: sums are of float32, and rounded once.

        `offsets`: int32 or uint32 [n_bags + 1], the first 0, the last n. `weights`: float32 [n], by position; only
        with the pooling "sum". Both must stay as they are until `update`. `pooling`: "sum" or "mean".
        """
        d = self._device(device, step)
        n = self._keys_of(d, step)
        bounds, scale = bags_of(offsets, weights, n, d.ordinal, d.stream)
        n_bags = bounds.shape[0] - 1
        out, pooled, number = self._target(d, (n_bags, self.dim), out, dtype, "lookup_bags")
        self.lookup_bags_addresses(device, step, n_bags, bounds.address, scale and scale.address,
                                   named(pooling, POOLING, "pooling"), pooled.address, (bounds, scale), pooled.stride,
                                   number)
        return out

    def lookup_bags_addresses(self, device: int, step: int, n_bags: int, offsets: int, weights: Optional[int],
                              pooling: int, out: int, owner: Any, stride: int = 0, dtype: int = 0) -> None:
        """As lookup_bags, from addresses that are not checked; `owner` is kept until the update. `stride`: elements
        from pooled row to pooled row, at least dim; 0: dim. `dtype`: the number of a frugal_type."""
        d = self._device(device, step)
        self._settle(d.trainer)
        self.await_lookup(device, step)
        bags, to = d.bags, d.to
        bags.n_bags, bags.offsets, bags.weights, bags.pooling = n_bags, offsets, weights, pooling
        bags.stride = stride
        to.rows, to.stride, to.bags, to.as_ = out or None, 0, ctypes.addressof(bags), dtype if out else 0
        status = self._logged(d.trainer, (LOOKED_UP, d, step, (n_bags, owner)), lib.frugal_lookup_into, (device,),
                              (step,), (ctypes.byref(to),))
        if status:
            self._fail(status)

    def update(self, device: int, step: int, grads: Any = None, lr: Optional[float] = None, by_bag: bool = False,
               scale: float = 1.0, dtype: Optional[str] = None) -> None:
        """Commits the step of `device`.

        `grads`: an array of floats [n, dim] by position; with `by_bag` [n_bags, dim], of the bags of the latest
        lookup_bags; None: no gradients (a skipped step). Those of 16 bits are summed as float32. `dtype`: their
        type, as of `lookup`; None: the array says. `lr`: the learning rate of the step, the same on all devices;
        gradients need one. `scale`: what gradients are multiplied by; with 0 the step has no gradients. Never waits.
        """
        d = self._device(device, step)
        by_bag = flag(by_bag, "by_bag")
        self._settle(d.trainer)
        array = None
        if grads is not None:
            if lr is None:
                raise ValueError("update: gradients need a learning rate; give it: update(..., lr=0.01)")
            n = d.n_bags if by_bag else d.n.get(step)
            if step < d.updated:
                raise OrderError(f"update of device {device} at step {step}; the next step to update is {d.updated}")
            if n is None:
                raise ValueError("update: by_bag is set, but the latest lookup was not lookup_bags" if by_bag else
                                 f"update: device {device} has not announced step {step}")
            # Kept in a variable, because a copy that an object exports lives only as long as its owner here.
            array = array_of(grads, "update: grads", _kinds_of(dtype, "update"), (n, self.dim), False, d.ordinal,
                             d.stream, "rows")
        if array is None or not array.address:
            self.update_address(device, step, None, lr or 0.0, by_bag and array is not None, scale)
        else:
            self.update_address(device, step, array.address, lr or 0.0, by_bag, scale, 0, array.stride,
                                _arrays.TYPE_OF[array.kind])

    def update_address(self, device: int, step: int, address: Optional[int], lr: float, by_bag: bool = False,
                       scale: float = 1.0, n: int = 0, stride: int = 0, dtype: int = 0) -> None:
        """As update, with `n` gradients at `address`, `stride` elements apart (0: dim), of the frugal_type of the
        number `dtype`; None: none."""
        d = self._device(device, step)
        self._settle(d.trainer)
        gradients = d.gradients
        if ctypes.c_float(scale).value == 0:
            address, n, stride, by_bag = None, 0, 0, False  # the library's 0 stands for 1
        gradients.grads, gradients.lr, gradients.by_bag = address, lr, by_bag
        gradients.n, gradients.stride, gradients.scale, gradients.as_ = n, stride, scale, dtype if address else 0
        status = self._logged(d.trainer, (UPDATED, d, step, None), lib.frugal_update, (device,), (step,),
                              (ctypes.byref(gradients),))
        if status:
            self._fail(status)

    def sum_squares(self, device: int, step: int, grads: Any, by_bag: bool = False, scale: float = 1.0,
                    dtype: Optional[str] = None) -> float:
        """The sum of squares of the step's gradients, summed by unique row, between its lookup and its update: for
        clipping by the norm of a whole model (frugal_sum_squares in frugal.h). `grads`, `by_bag`, `dtype`: as for
        update."""
        d = self._device(device, step)
        by_bag = flag(by_bag, "by_bag")
        n = d.n_bags if by_bag else d.n.get(step)
        if n is None:
            raise ValueError(f"sum_squares: device {device} has not looked up step {step}{' by bags' * by_bag}")
        array = array_of(grads, "sum_squares: grads", _kinds_of(dtype, "sum_squares"), (n, self.dim), False, d.ordinal,
                         d.stream, "rows")
        return self.sum_squares_address(device, step, array.address, by_bag, scale, n, array.stride,
                                        _arrays.TYPE_OF[array.kind])

    def sum_squares_address(self, device: int, step: int, address: int, by_bag: bool = False, scale: float = 1.0,
                            n: int = 0, stride: int = 0, dtype: int = 0) -> float:
        """As sum_squares, of gradients as update_address has them."""
        if not address or ctypes.c_float(scale).value == 0:
            return 0.0
        gradients = c.frugal_gradients(grads=address, by_bag=by_bag, n=n, stride=stride, scale=scale, as_=dtype)
        squares = ctypes.c_double()
        status = self._call(lib.frugal_sum_squares, device, step, ctypes.byref(gradients), ctypes.byref(squares))
        if status:
            self._fail(status)
        return squares.value

    def finish(self, device: int = 0) -> None:
        """The data of `device` has ended: it looks up and updates what it has announced, and has no part in later
        steps. So devices may have data of different length. `cancel` of a step that it has announced takes this
        back."""
        d = self._device(device)
        with self._announcing:
            self._settle(self._log)
            self._check(self._logged(self._log, (FINISHED, d, 0, None), lib.frugal_finish, (device,)))

    def cancel(self, step: int) -> None:
        """Takes back all announced steps from `step` on, on all devices. ArgumentError with several machines."""
        self._device(0, step)
        with self._announcing:
            self._settle(self._log)
            for d in self._devices:
                self._settle(d.loader)
            self._check(self._logged(self._log, (CANCELLED, None, step, None), lib.frugal_cancel, (step,)))

    def drain(self) -> None:
        """Closes and flushes all committed steps: the table is whole then. With several processes: only in the one that
        opened, when the others have made their last updates; in others it raises ProcessError. Collective."""
        with self._announcing:
            status = self._call(lib.frugal_drain)
        if status:
            self._fail(status)

    def help(self) -> bool:
        """Does one piece of pending work on the calling thread; returns whether there was any."""
        return bool(self._call(lib.frugal_help))

    def stop(self) -> None:
        """Wakes every waiting call with Stopped, later ones too. Any thread may call it, and handlers of Python's
        signal module."""
        self._call(lib.frugal_stop)
        self._ended = True
        if self._waiters:
            self._wake()

    # Waiting

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _fail(self, status: int) -> None:
        if status in (STOPPED, LOST):
            self._ended = True
            if self._waiters:
                self._wake()
        fail(status, [table.name for table in self.tables])

    def _check(self, status: int) -> None:
        if status:
            self._fail(status)

    def _wait(self, ready: Callable[[], bool], explain: Callable[[], str]) -> None:
        """Waits until other threads have made the calls that this one needs, and helps meanwhile. Ctrl-C ends it."""
        since = time.monotonic()
        noticed = False
        with self._condition:
            self._waiters += 1
        try:
            while not ready() and not self._ended:
                if self._call(lib.frugal_help):
                    continue
                with self._condition:
                    if not ready() and not self._ended:
                        self._condition.wait(SLICE)
                noticed = self._check_wait(since, noticed, explain)
        finally:
            with self._condition:
                self._waiters -= 1

    def _check_wait(self, since: float, noticed: bool, explain: Callable[[], str]) -> bool:
        """StuckError after stuck_seconds; long before, a warning: was there one?"""
        waited = time.monotonic() - since
        if 0 <= self._stuck_seconds < waited:
            raise StuckError(f"waited {self._stuck_seconds:g} s (stuck_seconds): {explain()}")
        if noticed or waited < NOTICE_SECONDS:
            return noticed
        warnings.warn(f"frugal: this call has waited for {NOTICE_SECONDS:g} s: {explain()}", RuntimeWarning, 5)
        return True

    def _wait_for_process(self, since: float, noticed: bool, explain: Callable[[], str]) -> bool:
        """Helps, or sleeps: an eighth of the time since `since`, so a wait takes at most an eighth longer than it has
        to, and a long one costs little. Returns what _check_wait does."""
        noticed = self._check_wait(since, noticed, explain)
        if not self._call(lib.frugal_help):
            time.sleep(min(max((time.monotonic() - since) / 8, SHORTEST), LONGEST))
        return noticed

    def wait_for_change(self, seconds: float) -> None:
        """Helps, or sleeps until a device announces or updates, at most `seconds`."""
        if self._call(lib.frugal_help):
            return
        with self._condition:
            self._waiters += 1
            self._condition.wait(seconds)
            self._waiters -= 1

    def _late(self, call: str, step: int) -> str:
        local = [(number, d) for number, d in enumerate(self._devices) if d.attached or not self._shared]
        ended = "if its data has ended, finish({}) says so"
        for number, d in local:
            if d.announced < step + (call == "lookup") and not d.finished:
                return (f"{call} of step {step}: device {number} has announced its steps below {d.announced} only. All "
                        f"devices announce a step before one looks it up; {ended.format(number)}")
        if len(local) < self.devices:
            return (f"{call} of step {step}: a device of another {'process' if self.machines == 1 else 'machine'} is "
                    f"behind; lookahead is {self.lookahead}. If the data of a device has ended, it calls finish")
        least = min(range(self.devices), key=lambda number: self._devices[number].updated)
        return (f"{call} of step {step}: device {least} has updated its steps below {self._devices[least].updated} "
                f"only; lookahead is {self.lookahead}. Update these steps first, or announce in another thread; "
                f"{ended.format(least)}")

    # Rows

    def read_rows(self, keys: Any, table: int = 0, state: bool = False, out: Any = None) -> Any:
        """Rows as of the last committed step: float32 [n, dim] for `keys` [n], which has every weight of 16 bits
        exactly; with `state` a pair of them and of the optimizer state, float32 [n, state_floats]. Only between
        steps. Collective: each machine reads what it likes."""
        array = keys_of(keys, "read_rows: keys")
        n = array.shape[0]
        weights = _arrays.new_array((n, self.dim)) if out is None else out
        to = array_of(weights, "read_rows: out", ("float32",), (n, self.dim), True) if n else None
        floats = _arrays.new_array((n, self.state_floats)) if state else None
        of_state = array_of(floats, "read_rows", ("float32",), None, True).address if n and state else None
        segment = self._segment(table, array)
        status = self._call(lib.frugal_read_rows, ctypes.byref(segment), to and to.address, of_state)
        if status:
            self._fail(status)
        return (weights, floats) if state else weights

    def write_rows(self, keys: Any, weights: Any = None, table: int = 0, state: Any = None) -> None:
        """Writes rows: `weights` float32 [n, dim], `state` float32 [n, state_floats], either may be None. Weights of 16
        bits are the nearest ones. Only while drained, nothing announced. Of several machines each writes rows of its
        `own_keys`, and none announces a step before all have: exchange(b"") waits for that."""
        array = keys_of(keys, "write_rows: keys")
        n = array.shape[0]
        source = None if weights is None else array_of(weights, "write_rows: weights", ("float32",), (n, self.dim))
        floats = None if state is None else array_of(state, "write_rows: state", ("float32",), (n, self.state_floats))
        segment = self._segment(table, array)
        self._check(self._call(lib.frugal_write_rows, ctypes.byref(segment), source and source.address,
                                    floats and floats.address))
        if self.after_write is not None:
            self.after_write()

    def rows_at(self, write: bool, table: int, keys: int, n: int, weights: Optional[int], state: Optional[int]) -> None:
        """read_rows or write_rows of the `n` keys at the address `keys` (int64), without checks of the arrays."""
        segment = c.frugal_keys(table=table, keys=keys, n=n)
        call = lib.frugal_write_rows if write else lib.frugal_read_rows
        with self._announcing:
            status = self._call(call, ctypes.byref(segment), weights, state)
        if status:
            self._fail(status)
        if write and self.after_write is not None:
            self.after_write()

    def view(self, table: int = 0) -> Any:
        """The host rows of `table` in place: a read-only array [rows, dim], without a copy: float32; of bf16
        ml_dtypes.bfloat16, or uint16 with the same bits where ml_dtypes is not installed; of fp16 float16. (Without
        NumPy both are uint16.) Exact while the instance is drained (BusyError unless it is). The memory lives as long
        as the view: `close` refuses while it is in use, and the end of a `with` leaves it to the last view to free the
        memory. Of several machines each has a view of its `own_keys`, [how many, dim] in their order."""
        memory, stride = self.view_memory(table)
        shape = (len(self.own_keys(table)), self.dim)
        if not shape[0]:
            return _arrays.new_array(shape, TYPES[self.rows_as])
        return _arrays.matrix_in(memory, shape, stride, TYPES[self.rows_as])

    def view_memory(self, table: int = 0) -> tuple:
        """As view, for other libraries: an object with the buffer protocol over the rows' elements, those of 16 bits as
        uint16, and the number of elements from row to row. It may be written, and must not be."""
        self._table(table)
        return self._call(self._view, table)

    def _view(self, handle: int, table: int) -> tuple:
        address, stride = ctypes.c_void_p(), ctypes.c_uint64()
        self._check(lib.frugal_view(handle, table, ctypes.byref(address), ctypes.byref(stride)))
        made = _arrays.memory_at(address.value or 0, (len(self.own_keys(table)), self.dim), stride.value,
                                 TYPES[self.rows_as], self._owner)
        self._views = [view for view in self._views if view() is not None] + [weakref.ref(made)]
        return made, stride.value

    def own_keys(self, table: int = 0) -> Any:
        """The keys of `table` whose rows are in the memory of this machine, in rising order: a range, or an array of
        the standard library. One machine has all."""
        self._table(table)
        if self._dealt is None:
            return range(self.rows[table])
        return self._dealt.keys_of(sum(self.rows[:table]), self.rows[table], sum(self.rows))

    def home(self, key: int, table: int = 0) -> int:
        """The number of the machine that has the row."""
        machine = ctypes.c_uint32()
        self._check(self._call(lib.frugal_home, self._table(table), in_range(key, 64, "home: key"),
                               ctypes.byref(machine)))
        return machine.value

    def exchange(self, mine: Any) -> Any:
        """Collective: what each machine has given, in turn, for sums that have the same bits everywhere. `mine`: an
        array of NumPy, as large on all machines; returns an array [machines, ...]. Of another object with the buffer
        protocol it returns a list of bytes. (Modules of frugal_embedding.torch take a tensor.)"""
        given = mine.tobytes() if hasattr(mine, "tobytes") else bytes(mine)
        n = len(given)
        out = ctypes.create_string_buffer(n * self.machines)
        address = ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p).value
        self.exchange_addresses(address, n, ctypes.addressof(out))
        return _arrays.parts_as(mine, out.raw, self.machines)

    def exchange_addresses(self, mine: Optional[int], n: int, out: int) -> None:
        """As exchange, of `n` bytes at the address `mine`, to n * machines bytes at `out`."""
        self._check(self._call(lib.frugal_exchange, mine, n, out))

    def wire_counts(self) -> dict[str, Any]:
        """What has gone over the wire since the instance was opened: the fields of frugal_wire_counts in
        frugal_machines.h; lists are by frugal_wire_kind: keys, early rows, rows, records, calls."""
        made = c.frugal_wire_counts()
        self._check(self._call(lib.frugal_get_wire_counts, ctypes.byref(made)))
        return as_dict(made)

    def preload(self, device: int, keys: Any, table: int = 0) -> None:
        """Puts the rows of `keys` [n] into the device's cache. Only while drained, nothing announced."""
        self._device(device)
        segment = self._segment(table, keys_of(keys, "preload: keys"))
        self._check(self._call(lib.frugal_preload, device, ctypes.byref(segment)))

    def release_holders(self) -> None:
        """Empties all caches; copies made from then on serve every device. Only while drained, nothing announced."""
        self._check(self._call(lib.frugal_release_holders))

    def verify(self) -> None:
        """CopyError, unless every cached copy that counts as current equals its host row. Only while drained."""
        self._check(self._call(lib.frugal_verify))

    def _table(self, table: int) -> int:
        if type(table) is not int:
            table = in_range(table, 32, "table")
        if not 0 <= table < len(self.rows):
            raise TableError(f"table {table}: the instance has {len(self.rows)}, numbered from 0")
        return table

    def _label(self, table: int) -> str:
        name = self.tables[table].name if type(table) is int and 0 <= table < len(self.tables) else ""
        return f"table {table} ({name})" if name else f"table {table}"

    def _segment(self, table: int, array: Array) -> Any:
        self._table(table)
        narrow = array.kind == "int32"
        return c.frugal_keys(table=table, n=array.shape[0], keys=None if narrow else array.address,
                             keys32=array.address if narrow else None)

    # Statistics, saves, the end

    def stats(self) -> dict[str, Any]:
        """Counts since the instance was opened: the fields of frugal_stats in frugal_seeing.h."""
        made = c.frugal_stats()
        self._call(lib.frugal_get_stats, ctypes.byref(made))
        return as_dict(made)

    def traffic(self, device: int = 0) -> dict[str, Any]:
        """What crossed between a device on host cores and host memory, in all its steps: frugal_traffic."""
        self._device(device)
        made = c.frugal_traffic()
        self._check(self._call(lib.frugal_cpu_get_traffic, device, None, ctypes.byref(made)))
        return as_dict(made)

    def metrics(self, name: Optional[str] = None) -> str:
        """The counts as OpenMetrics text, for a scraper; with the label `store` if `name` is given."""
        return metrics([self], None if name is None else [name])

    def trace_start(self, events: int = 0) -> None:
        """Begins to record what each thread does: its last `events`, 16 to 2^24; 0: 16384."""
        self._check(self._call(lib.frugal_trace_start, in_range(events, 32, "events")))

    def trace_stop(self) -> None:
        """Ends the recording; what was recorded stays, to be written."""
        self._check(self._call(lib.frugal_trace_stop))

    def trace_write(self, path: str) -> None:
        """Writes what is recorded as JSON for ui.perfetto.dev or chrome://tracing."""
        self._check(self._call(lib.frugal_trace_write, path_of(path, "trace_write")))

    def get_counts(self, keys: Any, table: int = 0, out: Any = None) -> Any:
        """How often copies of the rows of `keys` [n] would have served a hit: uint64 [n], estimates
        (frugal_counts.h). Into `out` if it is given; a NumPy array, or an array of the standard library."""
        array = keys_of(keys, "get_counts: keys")
        counts = _arrays.new_counts(array.shape[0]) if out is None else out
        to = array_of(counts, "get_counts: out", ("uint64",), array.shape, True)
        self._check(self._call(lib.frugal_get_counts, ctypes.byref(self._segment(table, array)), to.address))
        return counts

    def set_counts(self, keys: Any, counts: Any, table: int = 0) -> None:
        """Sets the counts of the rows of `keys` [n] to `counts`, uint64 [n]. Only while drained."""
        array = keys_of(keys, "set_counts: keys")
        given = array_of(counts, "set_counts: counts", ("uint64",), array.shape)
        self._check(self._call(lib.frugal_set_counts, ctypes.byref(self._segment(table, array)), given.address))

    def rank_keys(self, n: int, table: int = 0) -> tuple:
        """The `n` keys of `table` with the largest counts, in falling order, and these counts: two uint64 [n]."""
        n = in_range(n, 32, "n")
        keys, counts = _arrays.new_counts(n), _arrays.new_counts(n)
        to = [array_of(one, "rank_keys", ("uint64",), (n,), True) for one in (keys, counts)]
        self._check(self._call(lib.frugal_rank_keys, self._table(table), n, to[0].address, to[1].address))
        return keys, counts

    def save(self, path: str, increment: bool = False, replace: bool = False) -> None:
        """Saves all rows, their state and the number of the next step to the file `path`; with `increment` the rows
        that have changed since the last save. Only while drained. Collective: each machine writes its share beside
        `path`, which is in a folder that all have, and names them. As many machines restore it. See frugal_save.h."""
        save([self], path, increment, replace)

    def close(self) -> None:
        """Ends the workers and frees the memory. Updates that were not drained are lost. Threads that are in a call are
        woken with Stopped, and waited for; later calls are ValueErrors. BusyError while a view is in use. A closed
        instance may be closed again. With `name`: training ends, with Stopped, for processes that have joined and still
        train. In a process that has joined: its devices take no part any more, and the others train on without them."""
        if self._handle is None:
            return
        if self._has_views():
            raise BusyError("close: a view of a table is in use, whose memory would be freed; delete the view first")
        owner = self._leave()
        if owner is not None and not self._has_views():  # a view that another thread just made frees it
            check(owner.close())

    def _has_views(self) -> bool:
        return any(view() is not None for view in self._views)

    def _leave(self) -> Optional[_Owner]:
        """No call can begin any more, and none is under way: the owner may free the instance."""
        handle, self._handle = self._handle, None
        if handle is not None and self._calls - {get_ident()}:
            lib.frugal_stop(handle)
        self._ended = True
        self._wake()
        while self._calls - {get_ident()}:
            time.sleep(0.001)
        owner, self._owner = self._owner, None
        return owner

    def __enter__(self) -> "Frugal":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._handle is None:
            return
        owner = self._leave()
        if owner is None or self._has_views():  # the last view frees it
            return
        status = owner.close()
        if status and kind is None:  # else the caller's exception is what went wrong first
            fail(status)

    def __reduce__(self) -> Any:
        raise TypeError("an instance cannot be pickled or copied; save it to a file (Frugal.save), and open it "
                        "from there")


def join(name: str, seconds: float = 60.0) -> Frugal:
    """Frugal.join: joins the instance that another process has opened with `name`."""
    return Frugal.join(name, seconds)


def save(instances: Sequence[Frugal], path: str, increment: bool = False, replace: bool = False) -> None:
    """Saves several instances to one file; part i is instances[i]. All are drained. See frugal_save.h."""
    desc = struct_of(c.frugal_save_desc, path=path_of(path, "save"), increment=increment, replace=replace)
    check(_of_all(instances, lambda handles: lib.frugal_save(handles, len(instances), ctypes.byref(desc))))


def metrics(instances: Sequence[Frugal], names: Optional[Sequence[str]] = None) -> str:
    """What the instances have counted since they were opened, as OpenMetrics text for a scraper: frugal_write_metrics
    in frugal_seeing.h. `names`: one for each, its label `store`."""
    labels = labels_of(names, len(instances))
    size = 1 << 14
    while True:
        text = ctypes.create_string_buffer(size)
        length = _of_all(instances, lambda handles: lib.frugal_write_metrics(handles, labels, len(instances), text,
                                                                              size))
        if not length:
            raise ArgumentError(lib.frugal_message().decode("utf-8", "replace"))
        if length < size:
            return text.value.decode()
        size = length + 4096


def _of_all(instances: Sequence[Frugal], call: Callable[[Any], Any]) -> Any:
    """Calls `call` with the handles of all instances; none of them is freed meanwhile."""
    handles: list = []

    def enter(left: Sequence[Frugal]) -> Any:
        if not left:
            return call((ctypes.c_void_p * len(handles))(*handles))

        def next_one(handle: Any) -> Any:
            handles.append(handle)
            return enter(left[1:])
        return left[0]._call(next_one)
    return enter(list(instances))


def read_saved(path: str, part: int = 0) -> dict[str, Any]:
    """What the save `path` contains, of its instance `part`: the fields of frugal_saved in frugal_save.h."""
    made = c.frugal_saved()
    check(lib.frugal_read_saved(path_of(path, "read_saved"), in_range(part, 32, "part"), ctypes.byref(made)))
    return as_dict(made)
