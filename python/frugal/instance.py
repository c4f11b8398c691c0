"""An instance: tables in host memory, the devices that train them, and their steps. The calls are those of frugal.h.

Arrays are NumPy arrays, objects with the buffer protocol (array, memoryview), or DLPack (PyTorch, CuPy, JAX). They are
read and written in place. Where a shape is given, n is the number of keys of a batch.

Threads: a device has a loader (`announce`) and a trainer (`lookup`, `update`), in two threads or one; one thread may
drive several devices. The calls release the GIL.

Ctrl-C: a call that has to wait for another thread (for the announcement of a loader, or for another device) waits in
Python, where Ctrl-C ends it with KeyboardInterrupt. Nothing has changed then, and the call may be made again. Once
nobody else has to act, the library finishes the call by itself.
"""
from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _arrays
from ._arrays import Array, array_of
from ._library import STOPPED, c, check, fail, has_cuda, lib
from .errors import BusyError, DeviceError, StuckError
from .settings import (ALONE, MODES, POLICIES, POOLING, REDUCE, Normal, Optimizer, Table, Uniform, Workers, Zero,
                       as_optimizer, named)

Keys = Union[Any, Mapping[int, Any], Sequence[tuple]]

KEY_KINDS = ("int64", "uint64", "int32")
LOST = -17
SLICE = 0.05  # seconds: how long a wait in Python sleeps, unless it is woken


class _Device:
    """What the calls of one device reuse: their structs, and the arrays that must live until the update."""

    def __init__(self, first_step: int):
        self.announced = self.looked_up = self.updated = first_step  # the next step of each kind
        self.n: dict[int, int] = {}  # keys of the announced steps that have not been updated
        self.attached = self.finished = False
        self.ordinal: Optional[int] = None  # of a device on a GPU
        self.stream = 0
        self.n_bags: Optional[int] = None  # of the latest lookup
        self.bags = c.frugal_bags()
        self.gradients = c.frugal_gradients()
        self.batch = c.frugal_batch()
        self.kept: Any = None  # arrays of self.bags
        self.segments: Any = None


_instances: "weakref.WeakSet[Frugal]" = weakref.WeakSet()


def _forget() -> None:
    """In a forked child, as of a data loader: the instances are the parent's, whose workers the child does not have."""
    for instance in list(_instances):
        instance._handle = None


os.register_at_fork(after_in_child=_forget)


class Frugal:
    """An instance, open from its construction to `close`; as a context manager it is closed at the end.

    Fields are those of frugal_desc in frugal.h, where each is described.

    `tables`: Tables, or their numbers of rows. `dim`: floats a row. `devices`: logical devices. `max_keys`: the most
    keys of one device in one step. `lookahead`: how many steps announcements may run ahead, 0 to 15. `workers`: a
    number of threads of its own, or Workers that instances share; with 0 the calling threads do all work.
    `optimizer`: its kind, or an Optimizer. `weights`: a matrix float32 [rows of all tables, dim] of the caller, which
    is the table then; `state` likewise. `file`: the table is a file that is mapped into memory. `saved`: files that
    the rows are restored from, a base and its increments.

    Attributes: `dim`, `devices`, `rows` (of each table), `lookahead`, `max_keys`, `first_step`, `state_floats` (of
    the optimizer, a row).
    """

    def __init__(self, tables: Sequence[Union[Table, int]], dim: int, *, max_keys: int, devices: int = 1,
                 lookahead: int = 0, staging: int = 0, staging_bytes: int = 0, workers: Union[int, Workers] = 0,
                 defer: bool = False, mode: str = "p2f", alone: str = "default", reduce: str = "sum",
                 optimizer: Union[str, Optimizer] = "sgd", first_step: int = 0, seed: int = 0, init_threads: int = 0,
                 stuck_seconds: float = 0.0, weights: Any = None, state: Any = None, file: Optional[str] = None,
                 sparse: bool = False, take_torn: bool = False, saved: Sequence[str] = (), saved_part: int = 0,
                 saved_settings_may_differ: bool = False, increments: bool = False):
        self._handle: Optional[int] = None
        self._kept: list = [weights, state]  # the caller's matrices must outlive the instance
        made = [table if isinstance(table, Table) else Table(int(table)) for table in tables]
        default = as_optimizer(optimizer)
        structs = (c.frugal_table * len(made))()
        keep: list = []
        for struct, table in zip(structs, made):
            _fill_table(struct, table, dim, keep)
        desc = c.frugal_desc(
            tables=ctypes.addressof(structs), n_tables=len(made), dim=dim, devices=devices, max_keys=max_keys,
            lookahead=lookahead, staging=staging, staging_bytes=staging_bytes, defer=defer,
            mode=named(mode, MODES, "mode"), alone=named(alone, ALONE, "alone"),
            reduce=named(reduce, REDUCE, "reduce"), optimizer=default.struct(), first_step=first_step, seed=seed,
            init_threads=init_threads, stuck_seconds=stuck_seconds, sparse=sparse, take_torn=take_torn,
            file=None if file is None else os.fsencode(file), n_saved=len(saved), saved_part=saved_part,
            saved_settings_may_differ=saved_settings_may_differ, increments=increments)
        if isinstance(workers, Workers):
            desc.shared_workers = workers._handle
            self._kept.append(workers)
        else:
            desc.workers = workers
        total = sum(table.rows for table in made)
        desc.weights = _matrix(weights, "weights", (total, dim), self._kept)
        desc.state = _matrix(state, "state", (total, lib.frugal_state_floats(desc.optimizer.kind, dim)), self._kept)
        names = [os.fsencode(path) for path in saved]
        desc.saved = (ctypes.c_char_p * len(names))(*names)
        handle = ctypes.c_void_p()
        status = lib.frugal_open(ctypes.byref(desc), ctypes.byref(handle))
        if status:
            try:
                fail(status)
            finally:
                lib.frugal_close(handle.value)
        self.tables = tuple(made)
        self.optimizer = default
        self._take(handle.value or 0)

    def _take(self, handle: int) -> None:
        """Makes this the object of an open instance: all that it knows comes from the library, so that another way to
        open one ends here, too."""
        settings = c.frugal_desc.from_address(lib.frugal_settings(handle))
        rows = (c.frugal_table * settings.n_tables).from_address(settings.tables)
        self._handle = handle
        _instances.add(self)
        self.rows = tuple(table.rows for table in rows)
        self.dim, self.devices, self.max_keys = settings.dim, settings.devices, settings.max_keys
        self.lookahead, self.first_step = settings.lookahead, settings.first_step
        self.state_floats = lib.frugal_state_floats(settings.optimizer.kind, settings.dim)
        self._stuck_seconds = settings.stuck_seconds
        self._devices = [_Device(settings.first_step) for _ in range(settings.devices)]
        self._ended = False  # stopped, or a device was lost: whoever waits shall ask the library
        self._announcing = threading.Lock()  # held by calls during which none may announce
        self._condition = threading.Condition()
        self._waiters = 0
        self._views: list[weakref.ref] = []

    # Devices

    def attach_cpu(self, device: int = 0, cache_rows: int = 0, policy: str = "counted") -> None:
        """Attaches `device` as one on host cores, before its first announcement. `cache_rows`: rows of its cache; 0:
        none. `policy`: which rows it keeps: "counted", "lru" or "static"."""
        desc = c.frugal_cpu_desc(cache_rows=cache_rows, policy=named(policy, POLICIES, "policy"))
        check(lib.frugal_cpu_attach(self._open(), device, ctypes.byref(desc)))
        self._devices[device].attached = True

    def attach_cuda(self, device: int = 0, ordinal: int = 0, cache_rows: int = 0, policy: str = "counted",
                    stream: int = 0, gate_on_stream: bool = False, shrink_cache: bool = False) -> None:
        """Attaches `device` on GPU `ordinal`: see frugal_cuda.h. `stream`: the handle of a CUDA stream (as
        torch.cuda.current_stream().cuda_stream); 0: the default stream. Rows, gradients, offsets and weights of this
        device lie in the GPU's memory, and keys in the host's."""
        if not has_cuda:
            raise DeviceError("attach_cuda: this library has no GPUs. Build it with them, where nvcc is installed: "
                              "FRUGAL_BUILD_CUDA=1 pip install --force-reinstall ./python")
        desc = c.frugal_cuda_desc(cache_rows=cache_rows, policy=named(policy, POLICIES, "policy"),
                                  stream=stream or None, shrink_cache=shrink_cache, gate_on_stream=gate_on_stream)
        check(lib.frugal_cuda_attach(self._open(), device, ordinal, ctypes.byref(desc)))
        self._devices[device].attached = True
        self._devices[device].ordinal, self._devices[device].stream = ordinal, stream

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError("the instance is closed, or was opened by the parent of this process")
        return self._handle

    def _device(self, device: int) -> _Device:
        if self._handle is None:
            self._open()
        if not 0 <= device < self.devices:
            raise DeviceError(f"device {device}: the instance has {self.devices}, numbered from 0")
        return self._devices[device]

    # Steps

    def announce(self, device: int, step: int, keys: Keys, read_only: bool = False) -> None:
        """Announces the batch of `device` at `step`, at most `lookahead` steps ahead of training.

        `keys`: int64, uint64 or int32 [n] for table 0; or {table: keys}, or [(table, keys), ...]: the positions of the
        batch run through them in turn. They are copied, and are the caller's again. `read_only`: the device will
        bring no gradients. Waits until the step is legal.
        """
        segments = []
        for table, given in _by_table(keys):
            array = _keys(given, f"announce: keys of table {table}")
            segments.append((table, array.address, array.shape[0], array.kind, array.owner))
        self.announce_addresses(device, step, segments, read_only)

    def announce_addresses(self, device: int, step: int, segments: Sequence[tuple], read_only: bool = False) -> None:
        """As announce, for callers that have addresses already: segments of (table, address, n, kind, owner), `kind`
        one of int64, uint64 and int32. No array is checked."""
        d = self._device(device)
        n = len(segments)
        if d.segments is None or len(d.segments) < n:
            d.segments = (c.frugal_keys * max(n, 1))()
        total = 0
        for struct, (table, address, count, kind, _) in zip(d.segments, segments):
            struct.table, struct.n = table, count
            struct.keys, struct.keys32 = (None, address) if kind == "int32" else (address, None)
            total += count
        d.batch.segments = ctypes.addressof(d.segments)
        d.batch.n_segments, d.batch.read_only = n, read_only
        if step == d.announced and not self.may_announce(step):  # any other step is refused at once
            self._wait(lambda: self.may_announce(step), lambda: self._late("announce", step))
        with self._announcing:
            status = lib.frugal_announce(self._handle, device, step, ctypes.byref(d.batch))
        if status:
            self._fail(status)
        d.n[step] = total
        d.announced = step + 1
        if self._waiters:
            self._wake()

    def may_announce(self, step: int) -> bool:
        """Can `step` be announced without waiting for another call, of this thread or of another one?"""
        for d in self._devices:
            if d.finished:
                if d.updated < d.announced and d.updated + self.lookahead < step:
                    return False  # it still owes updates of what it has announced
            elif d.announced < step or d.updated + self.lookahead < step:
                return False
        return True

    def _keys_of(self, d: _Device, step: int) -> int:
        """The number of keys of the batch of `step`; waits for its loader, if the step is the next one."""
        n = d.n.get(step)
        if n is None and step == d.updated:
            self._wait(lambda: step in d.n or d.finished, lambda: self._late("lookup", step))
            n = d.n.get(step)
        return n or 0

    def _may_look_up(self, step: int) -> bool:
        for d in self._devices:
            if d.finished:
                if d.updated < min(step, d.announced):
                    return False
            elif d.announced <= step or d.updated < step:
                return False
        return True

    def lookup(self, device: int, step: int, out: Any = None) -> Any:
        """The rows of the announced batch: float32 [n, dim], by position; into `out` if it is given. May be repeated
        before update. Waits at the gate, until these rows have all updates of the steps before."""
        d = self._device(device)
        n = self._keys_of(d, step)
        if out is None:
            if d.ordinal is not None:
                raise ValueError("lookup: the device is on a GPU; give `out`, an array float32 [n, dim] in its memory")
            out = _arrays.new_array((n, self.dim))
        rows = array_of(out, "lookup: out", ("float32",), (n, self.dim), True, d.ordinal, d.stream)
        self.lookup_address(device, step, rows.address)
        return out

    def lookup_address(self, device: int, step: int, address: int) -> None:
        """As lookup, into the memory at `address`, which is not checked; 0: only into the step's staging block."""
        d = self._device(device)
        if step == d.updated and not self._may_look_up(step):
            self._wait(lambda: self._may_look_up(step), lambda: self._late("lookup", step))
        status = lib.frugal_lookup(self._handle, device, step, address or None)
        if status:
            self._fail(status)
        d.looked_up, d.n_bags, d.kept = step + 1, None, None

    def lookup_bags(self, device: int, step: int, offsets: Any, weights: Any = None, pooling: str = "sum",
                    out: Any = None) -> Any:
        """The rows of the announced batch, pooled: float32 [n_bags, dim]. Bag b pools the positions offsets[b] to
        offsets[b + 1] - 1.

        `offsets`: int32 or uint32 [n_bags + 1], the first 0, the last n. `weights`: float32 [n], by position; only
        with the pooling "sum". Both must stay as they are until `update`. `pooling`: "sum" or "mean".
        """
        d = self._device(device)
        n = self._keys_of(d, step)
        bounds = array_of(offsets, "lookup_bags: offsets", ("int32", "uint32"), (None,), False, d.ordinal, d.stream)
        if bounds.shape[0] < 1:
            raise ValueError("lookup_bags: offsets has no element; n_bags + 1 are wanted")
        scale = None
        if weights is not None:
            scale = array_of(weights, "lookup_bags: weights", ("float32",), (n,), False, d.ordinal, d.stream)
        n_bags = bounds.shape[0] - 1
        if out is None:
            if d.ordinal is not None:
                raise ValueError("lookup_bags: the device is on a GPU; give `out`, float32 [n_bags, dim] in its memory")
            out = _arrays.new_array((n_bags, self.dim))
        pooled = array_of(out, "lookup_bags: out", ("float32",), (n_bags, self.dim), True, d.ordinal, d.stream)
        self.lookup_bags_addresses(device, step, n_bags, bounds.address, scale and scale.address,
                                   named(pooling, POOLING, "pooling"), pooled.address, (bounds, scale))
        return out

    def lookup_bags_addresses(self, device: int, step: int, n_bags: int, offsets: int, weights: Optional[int],
                              pooling: int, out: int, owner: Any) -> None:
        """As lookup_bags, from addresses that are not checked; `owner` is kept until the update."""
        d = self._device(device)
        if step == d.updated and not self._may_look_up(step):
            self._wait(lambda: self._may_look_up(step), lambda: self._late("lookup", step))
        bags = d.bags
        bags.n_bags, bags.offsets, bags.weights, bags.pooling = n_bags, offsets, weights, pooling
        status = lib.frugal_lookup_bags(self._handle, device, step, ctypes.byref(bags), out or None)
        if status:
            self._fail(status)
        d.looked_up, d.n_bags, d.kept = step + 1, n_bags, owner

    def update(self, device: int, step: int, grads: Any = None, lr: float = 0.0, by_bag: bool = False,
               scale: float = 1.0) -> None:
        """Commits the step of `device`.

        `grads`: float32 [n, dim] by position; with `by_bag` [n_bags, dim], of the bags of the latest lookup_bags; None:
        no gradients (a skipped step). `lr`: the learning rate of the step, the same on all devices. Never waits.
        """
        d = self._device(device)
        address = None
        if grads is not None:
            n = d.n_bags if by_bag else d.n.get(step)
            if n is None:
                raise ValueError("update: by_bag is set, but the latest lookup was not lookup_bags" if by_bag else
                                 f"update: device {device} has not announced step {step}")
            address = array_of(grads, "update: grads", ("float32",), (n, self.dim), False, d.ordinal, d.stream).address
        self.update_address(device, step, address or None, lr, by_bag and address is not None, scale)

    def update_address(self, device: int, step: int, address: Optional[int], lr: float, by_bag: bool = False,
                       scale: float = 1.0, n: int = 0, stride: int = 0) -> None:
        """As update, with `n` gradients at `address`, `stride` floats apart (0: dim); None: none."""
        d = self._device(device)
        gradients = d.gradients
        gradients.grads, gradients.lr, gradients.by_bag = address, lr, by_bag
        gradients.n, gradients.stride, gradients.scale = n, stride, scale
        status = lib.frugal_update(self._handle, device, step, ctypes.byref(gradients))
        if status:
            self._fail(status)
        d.updated = step + 1
        d.n.pop(step, None)
        d.kept = None
        if self._waiters:
            self._wake()

    def finish(self, device: int = 0) -> None:
        """The data of `device` has ended: it looks up and updates what it has announced, and has no part in later
        steps. So devices may have data of different length. `cancel` of a step that it has announced takes this
        back."""
        d = self._device(device)
        with self._announcing:
            check(lib.frugal_finish(self._open(), device))
        d.finished = True
        if self._waiters:
            self._wake()

    def cancel(self, step: int) -> None:
        """Takes back all announced steps from `step` on, on all devices."""
        with self._announcing:
            check(lib.frugal_cancel(self._open(), step))
        for d in self._devices:
            for later in [s for s in d.n if s >= step]:
                del d.n[later]
            d.finished = d.finished and d.announced <= step
            d.announced = min(d.announced, step)

    def drain(self) -> None:
        """Closes and flushes all committed steps: the table is whole then."""
        with self._announcing:
            status = lib.frugal_drain(self._open())
        if status:
            self._fail(status)

    def help(self) -> bool:
        """Does one piece of pending work on the calling thread; whether there was any."""
        return bool(lib.frugal_help(self._open()))

    def stop(self) -> None:
        """Wakes every waiter with Stopped, later ones too. Any thread, and handlers of Python's signal module."""
        lib.frugal_stop(self._open())
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
        fail(status)

    def _wait(self, ready: Callable[[], bool], explain: Callable[[], str]) -> None:
        """Waits until other threads have made the calls that this one needs, and helps meanwhile. Ctrl-C ends it."""
        since = time.monotonic()
        with self._condition:
            self._waiters += 1
        try:
            while not ready() and not self._ended:
                if lib.frugal_help(self._open()):
                    continue
                with self._condition:
                    if not ready() and not self._ended:
                        self._condition.wait(SLICE)
                if 0 <= self._stuck_seconds < time.monotonic() - since:
                    raise StuckError(f"waited {self._stuck_seconds:g} s (stuck_seconds): {explain()}")
        finally:
            with self._condition:
                self._waiters -= 1

    def wait_for_change(self, seconds: float) -> None:
        """Helps, or sleeps until a device announces or updates, at most so long."""
        if lib.frugal_help(self._open()):
            return
        with self._condition:
            self._waiters += 1
            self._condition.wait(seconds)
            self._waiters -= 1

    def _late(self, call: str, step: int) -> str:
        for number, d in enumerate(self._devices):
            if d.announced < step + (call == "lookup") and not d.finished:
                return f"{call} of step {step}: device {number} has announced its steps below {d.announced} only"
        least = min(range(self.devices), key=lambda number: self._devices[number].updated)
        return (f"{call} of step {step}: device {least} has updated its steps below {self._devices[least].updated} "
                f"only; lookahead is {self.lookahead}")

    # Rows

    def read_rows(self, keys: Any, table: int = 0, state: bool = False, out: Any = None) -> Any:
        """Rows as of the last committed step: float32 [n, dim] for `keys` [n]; with `state` a pair of them and of the
        optimizer state, float32 [n, state_floats]. Between steps."""
        array = _keys(keys, "read_rows: keys")
        n = array.shape[0]
        weights = _arrays.new_array((n, self.dim)) if out is None else out
        to = array_of(weights, "read_rows: out", ("float32",), (n, self.dim), True) if n else None
        floats = _arrays.new_array((n, self.state_floats)) if state else None
        of_state = array_of(floats, "read_rows", ("float32",), None, True).address if n and state else None
        segment = self._segment(table, array)
        status = lib.frugal_read_rows(self._open(), ctypes.byref(segment), to and to.address, of_state)
        if status:
            self._fail(status)
        return (weights, floats) if state else weights

    def write_rows(self, keys: Any, weights: Any = None, table: int = 0, state: Any = None) -> None:
        """Writes rows: `weights` float32 [n, dim], `state` float32 [n, state_floats], either may be None. Drained, and
        nothing announced."""
        array = _keys(keys, "write_rows: keys")
        n = array.shape[0]
        source = None if weights is None else array_of(weights, "write_rows: weights", ("float32",), (n, self.dim))
        floats = None if state is None else array_of(state, "write_rows: state", ("float32",), (n, self.state_floats))
        segment = self._segment(table, array)
        check(lib.frugal_write_rows(self._open(), ctypes.byref(segment), source and source.address,
                                    floats and floats.address))

    def rows_at(self, write: bool, table: int, keys: int, n: int, weights: Optional[int], state: Optional[int]) -> None:
        """read_rows or write_rows of the `n` keys at the address `keys` (int64), without checks of the arrays."""
        segment = c.frugal_keys(table=table, keys=keys, n=n)
        call = lib.frugal_write_rows if write else lib.frugal_read_rows
        with self._announcing:
            status = call(self._open(), ctypes.byref(segment), weights, state)
        if status:
            self._fail(status)

    def view(self, table: int = 0) -> Any:
        """The host rows of `table` in place: a read-only array float32 [rows, dim], without a copy. Exact while the
        instance is drained (BusyError unless it is). Delete it before `close`."""
        address, stride = ctypes.c_void_p(), ctypes.c_uint64()
        check(lib.frugal_view(self._open(), table, ctypes.byref(address), ctypes.byref(stride)))
        anchor: list = []
        made = _arrays.matrix_at(address.value or 0, (self.rows[table], self.dim), stride.value, anchor)
        self._views = [view for view in self._views if view() is not None] + [weakref.ref(anchor.pop())]
        return made

    def preload(self, device: int, keys: Any, table: int = 0) -> None:
        """Puts the rows of `keys` [n] into the device's cache. Drained, nothing announced."""
        segment = self._segment(table, _keys(keys, "preload: keys"))
        check(lib.frugal_preload(self._open(), device, ctypes.byref(segment)))

    def release_holders(self) -> None:
        """Empties all caches; copies made from then on serve every device. Drained, nothing announced."""
        check(lib.frugal_release_holders(self._open()))

    def verify(self) -> None:
        """CopyError, unless every cached copy that counts as current equals its host row. Drained."""
        check(lib.frugal_verify(self._open()))

    @staticmethod
    def _segment(table: int, array: Array) -> Any:
        narrow = array.kind == "int32"
        return c.frugal_keys(table=table, n=array.shape[0], keys=None if narrow else array.address,
                             keys32=array.address if narrow else None)

    # Statistics, saves, the end

    def stats(self) -> dict[str, Any]:
        """Counts since the instance was opened: the fields of frugal_stats in frugal.h."""
        made = c.frugal_stats()
        lib.frugal_get_stats(self._open(), ctypes.byref(made))
        return _as_dict(made)

    def traffic(self, device: int = 0) -> dict[str, Any]:
        """What crossed between a device on host cores and host memory, in all its steps: frugal_traffic."""
        made = c.frugal_traffic()
        check(lib.frugal_cpu_get_traffic(self._open(), device, None, ctypes.byref(made)))
        return _as_dict(made)

    def save(self, path: str, increment: bool = False, replace: bool = False) -> None:
        """Saves all rows, their state and the number of the next step to the file `path`; with `increment` the rows
        that have changed since the last save. Drained. See frugal_save.h."""
        save([self], path, increment, replace)

    def close(self) -> None:
        """Ends the workers and frees the memory. Updates that were not drained are lost. A closed instance may be
        closed again."""
        if self._handle is None:
            return
        if any(view() is not None for view in self._views):
            raise BusyError("close: a view of a table is in use, whose memory would be freed; delete the view first")
        handle, self._handle = self._handle, None
        check(lib.frugal_close(handle))
        self._kept.clear()

    def __enter__(self) -> "Frugal":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and lib is not None:
            lib.frugal_close(handle)

    def __reduce__(self) -> Any:
        raise TypeError("an instance cannot be pickled or copied; save it to a file (Frugal.save), and open it "
                        "from there")


def save(instances: Sequence[Frugal], path: str, increment: bool = False, replace: bool = False) -> None:
    """Saves several instances to one file; part i is instances[i]. All are drained. See frugal_save.h."""
    handles = (ctypes.c_void_p * len(instances))(*[f._open() for f in instances])
    desc = c.frugal_save_desc(path=os.fsencode(path), increment=increment, replace=replace)
    check(lib.frugal_save(handles, len(instances), ctypes.byref(desc)))


def read_saved(path: str, part: int = 0) -> dict[str, Any]:
    """What the save `path` contains, of its instance `part`: the fields of frugal_saved in frugal_save.h."""
    made = c.frugal_saved()
    check(lib.frugal_read_saved(os.fsencode(path), part, ctypes.byref(made)))
    return _as_dict(made)


def _fill_table(struct: Any, table: Table, dim: int, keep: list) -> None:
    struct.rows = table.rows
    init = table.init
    if isinstance(init, Zero):
        struct.init = c.FRUGAL_INIT_ZERO
    elif isinstance(init, Uniform):
        struct.init, struct.low, struct.high = c.FRUGAL_INIT_UNIFORM, init.low, init.high
    elif isinstance(init, Normal):
        struct.init, struct.mean, struct.deviation = c.FRUGAL_INIT_NORMAL, init.mean, init.deviation
    elif init is not None:
        struct.init = c.FRUGAL_INIT_COPY
        struct.source = _matrix(init, "Table.init", (table.rows, dim), keep, False)
    if table.optimizer is not None:
        own = table.optimizer.struct()
        keep.append(own)
        struct.optimizer = ctypes.addressof(own)


def _matrix(given: Any, what: str, shape: tuple, keep: list, writable: bool = True) -> Optional[int]:
    if given is None:
        return None
    array = array_of(given, what, ("float32",), shape, writable)
    keep.append(array.owner)
    return array.address


def _by_table(keys: Keys) -> Any:
    if isinstance(keys, Mapping):
        return keys.items()
    if isinstance(keys, (list, tuple)):
        if any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in keys):
            raise TypeError("announce: keys: an array for table 0, {table: array}, or [(table, array), ...] is wanted; "
                            f"a {type(keys).__name__} of something else was given. Make an array of numbers: "
                            "numpy.array(keys)")
        return keys
    return ((0, keys),)


def _keys(given: Any, what: str) -> Array:
    return array_of(given, what, KEY_KINDS, (None,))


def _as_dict(struct: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, ctypes.Array) else value
            for name, value in ((field[0], getattr(struct, field[0])) for field in struct._fields_)}
