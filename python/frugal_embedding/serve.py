"""Tables that are only read: lookups from any threads, while newer versions are taken over (frugal_serve.h).

    from frugal_embedding.serve import Server
    with Server(["monday", "tuesday"]) as server:                # a save and its increments
        rows = server.lookup(keys)                                 # float32 [n, dim], from any thread
        server.refresh(["monday", "tuesday", "wednesday"])         # another thread, once wednesday exists

`Server.on_gpus` caches rows on GPUs (frugal_cuda_serve.h). Arrays are as in `Frugal`, rows float32 without gaps.
Modules for PyTorch: ServedEmbedding and ServedEmbeddingBag of frugal_embedding.torch. docs/serving.md says what
versions share.
"""
from __future__ import annotations

import array
import ctypes
import os
import time
import weakref
from threading import get_ident
from typing import Any, Optional, Sequence

from . import _arrays
from ._arrays import array_of
from ._given import Keys, as_dict, bags_of, by_table, keys_of, paths_of
from ._library import c, check, lib, need_gpus
from .errors import DeviceError
from .settings import POOLING, TYPES, flag, in_range, named, path_of, struct_of, word_of


class _Handle:
    """An object of the library that is freed when no call is under way."""

    _free: Any  # of the library

    def __init__(self, handle: int, wanted: str):
        self._handle: Optional[int] = handle
        self._calls: set[int] = set()  # threads that are in a call of the library
        self._process, self._wanted = os.getpid(), wanted
        _open_handles.add(self)

    def _call(self, function: Any, *arguments: Any) -> None:
        thread = get_ident()
        self._calls.add(thread)
        try:
            if self._handle is None:
                raise ValueError(f"{type(self).__name__}: it is closed. Open another one: {self._wanted}")
            status = function(self._handle, *arguments)
        finally:
            self._calls.discard(thread)
        if status:
            check(status)

    def close(self) -> None:
        """Frees everything, when calls of other threads have returned; later ones are ValueErrors. May be called
        again."""
        handle, self._handle = self._handle, None
        while self._calls - {get_ident()}:
            time.sleep(0.001)
        if handle is not None and os.getpid() == self._process:  # else the library leaves it to the parent
            self._free(handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if lib is not None and getattr(self, "_handle", None) is not None:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: it has this process's memory. Open "
                        f"another one there: {self._wanted}")


_open_handles: "weakref.WeakSet[_Handle]" = weakref.WeakSet()


def _forget_calls() -> None:
    """In a forked child: the threads that were in calls are the parent's."""
    for handle in list(_open_handles):
        handle._calls.clear()


os.register_at_fork(after_in_child=_forget_calls)


def _version(saved: Sequence[Any], file: Any, part: int, call: str) -> tuple:
    """A frugal_served, and what must outlive its use."""
    paths = paths_of(saved, f"{call}: saved")
    made = struct_of(c.frugal_served, saved=paths or None, n_saved=len(paths), part=part,
                     file=None if file is None else path_of(file, f"{call}: file"))
    return made, paths


def _segments(keys: Keys, what: str, ordinal: Optional[int] = None, stream: int = 0) -> tuple:
    """frugal_keys of a batch, their number, how many keys, and what must outlive the call."""
    arrays = [(table, keys_of(part, what, ordinal, stream)) for table, part in by_table(keys, what)]
    made = (c.frugal_keys * max(len(arrays), 1))()
    n = 0
    for struct, (table, array) in zip(made, arrays):
        struct.table, struct.n = in_range(table, 32, f"{what}: table"), in_range(array.shape[0], 32, what)
        struct.keys, struct.keys32 = (None, array.address) if array.kind == "int32" else (array.address, None)
        n += array.shape[0]
    return made, len(arrays), n, arrays


def _bags(offsets: Any, weights: Any, pooling: str, n: int, ordinal: Optional[int] = None, stream: int = 0) -> tuple:
    """A frugal_bags, the number of bags, and what must outlive the call."""
    bounds, scale = bags_of(offsets, weights, n, ordinal, stream)
    made = c.frugal_bags(n_bags=bounds.shape[0] - 1, offsets=bounds.address, weights=scale and scale.address,
                         pooling=named(pooling, POOLING, "pooling"))
    return made, bounds.shape[0] - 1, (bounds, scale)


class Server(_Handle):
    """Tables of a save, or of the file of a table, that are only read.

    `saved`: files of Frugal.save or of a module's save, a base and its increments in order. `part`: the instance, of a
    save of several. `file`: instead, the file of a table whose trainer has closed it: all processes that serve it share
    the system's pages. `threads`: that read saves; 0: one for each processor. Errors: FileError, if a file is missing,
    damaged, or in use by a trainer; ArgumentError (neither `saved` nor `file`, or both).

    Attributes: `rows` (of each table), `dim`, `rows_as` (what weights are stored as).
    """

    _free = lib.frugal_serve_close

    def __init__(self, saved: Sequence[Any] = (), *, part: int = 0, file: Any = None, threads: int = 0):
        self._on_gpus: "weakref.WeakSet[GpuServer]" = weakref.WeakSet()
        version, kept = _version(saved, file, part, "Server")
        desc = c.frugal_serve_desc(from_=version, threads=in_range(threads, 32, "threads"))
        handle = ctypes.c_void_p()
        check(lib.frugal_serve_open(ctypes.byref(desc), ctypes.byref(handle)))
        super().__init__(handle.value or 0, "frugal_embedding.serve.Server(saved)")
        info = self.info()
        self.dim, self.rows_as = info["dim"], word_of(info["rows_as"], TYPES)
        self.rows = tuple(lib.frugal_serve_rows(handle, table) for table in range(info["n_tables"]))

    def info(self) -> dict[str, Any]:
        """The fields of frugal_serve_info in frugal_serve.h: the step of the version that lookups see, how many
        versions there have been, memory."""
        made = c.frugal_serve_info()
        self._call(lib.frugal_serve_get_info, ctypes.byref(made))
        return as_dict(made)

    @property
    def step(self) -> int:
        """The step of the version that lookups see now: the next that its trainer would have trained."""
        return self.info()["step"]

    def lookup(self, keys: Keys, out: Any = None, with_step: bool = False) -> Any:
        """The rows of `keys` [n] of table 0; or of {table: keys}, or [(table, keys), ...], one behind the other:
        float32 [n, dim], in `out` if it is given. All are of one version; `with_step`: a pair of them and its step.
        Errors: KeyRangeError, TableError."""
        segments, n_segments, n, kept = _segments(keys, "lookup: keys")
        out = _arrays.new_array((n, self.dim)) if out is None else out
        to = array_of(out, "lookup: out", ("float32",), (n, self.dim), True)
        return self._answer(out, with_step, lib.frugal_serve_lookup, segments, n_segments, to.address or None)

    def lookup_bags(self, keys: Keys, offsets: Any, weights: Any = None, pooling: str = "sum", out: Any = None,
                    with_step: bool = False) -> Any:
        """The same, pooled: float32 [n_bags, dim]. `offsets`: int32 or uint32 [n_bags + 1], the first 0, the last n.
        `weights`: float32 [n], with the pooling "sum". `pooling`: "sum" or "mean"."""
        segments, n_segments, n, kept = _segments(keys, "lookup_bags: keys")
        bags, n_bags, arrays = _bags(offsets, weights, pooling, n)
        out = _arrays.new_array((n_bags, self.dim)) if out is None else out
        to = array_of(out, "lookup_bags: out", ("float32",), (n_bags, self.dim), True)
        return self._answer(out, with_step, lib.frugal_serve_bags, segments, n_segments, ctypes.byref(bags),
                            to.address or None)

    def _answer(self, out: Any, with_step: bool, function: Any, *arguments: Any) -> Any:
        if not flag(with_step, "with_step"):
            self._call(function, *arguments, None)
            return out
        step = ctypes.c_uint64()
        self._call(function, *arguments, ctypes.byref(step))
        return out, step.value

    def refresh(self, saved: Sequence[Any] = (), *, part: int = 0, file: Any = None) -> None:
        """Takes over a newer version, or an older one, of the same tables; files as when the server was opened. Lookups
        go on meanwhile, and it returns when all of the old version have ended. One thread at a time. Errors: as when
        the server was opened; FileError, if the tables are others; the version served before stays."""
        version, kept = _version(saved, file, part, "refresh")
        self._call(lib.frugal_serve_refresh, ctypes.byref(version))

    def on_gpus(self, ordinals: Sequence[int] = (0,), *, hottest: Any = None, cache_rows: int = 0) -> "GpuServer":
        """These tables on GPUs, each of which caches the first `cache_rows` of `hottest`: int64 keys in falling order,
        or [(table, keys), ...]; None: in the order of the tables. Rows that are not cached are read in host memory. Not
        for the file of a table."""
        need_gpus("on_gpus", "frugal_cuda_serve_open")
        made = GpuServer(self, ordinals, hottest, cache_rows)
        self._on_gpus.add(made)
        return made

    def close(self) -> None:
        """As that of any server; those on GPUs are closed first."""
        for one in list(self._on_gpus):
            one.close()
        super().close()


class GpuServer(_Handle):
    """A Server's tables on GPUs; made by Server.on_gpus. `gpu` of its calls is an index into `ordinals`."""

    _free = getattr(lib, "frugal_cuda_serve_close", None)

    def __init__(self, server: Server, ordinals: Sequence[int], hottest: Any, cache_rows: int):
        self.server, self.ordinals, self.dim, self.rows = server, tuple(ordinals), server.dim, server.rows
        numbers = (ctypes.c_int * len(self.ordinals))(*[in_range(one, 31, "ordinals") for one in self.ordinals])
        placement, kept = self._placement(hottest, cache_rows)
        desc = c.frugal_cuda_serve_desc(server=server._handle, ordinals=ctypes.addressof(numbers),
                                        gpus=len(self.ordinals), placement=placement)
        handle = ctypes.c_void_p()
        check(lib.frugal_cuda_serve_open(ctypes.byref(desc), ctypes.byref(handle)))
        super().__init__(handle.value or 0, "server.on_gpus(ordinals)")

    def _placement(self, hottest: Any, cache_rows: int) -> tuple:
        """A frugal_cuda_placement, and what must outlive its use: rows are numbered through all tables."""
        rows = array.array("I", range(min(cache_rows, sum(self.rows))) if hottest is None else ())
        for table, part in [] if hottest is None else by_table(hottest, "hottest"):
            keys = keys_of(part, "hottest")
            first = sum(self.rows[:in_range(table, 32, "hottest: table")])
            kind = ctypes.c_int32 if keys.kind == "int32" else ctypes.c_uint64
            if keys.shape[0]:
                rows.extend(first + key for key in (kind * keys.shape[0]).from_address(keys.address))
        return struct_of(c.frugal_cuda_placement, rows=rows.buffer_info()[0] if rows else None, n_rows=len(rows),
                         cache_rows=min(in_range(cache_rows, 64, "cache_rows"), len(rows))), rows

    def _place(self, gpu: int) -> int:
        if not 0 <= in_range(gpu, 32, "gpu") < len(self.ordinals):
            raise DeviceError(f"gpu {gpu}: the server has {len(self.ordinals)}, numbered from 0")
        return self.ordinals[gpu]

    def lookup(self, gpu: int, keys: Keys, out: Any, stream: int = 0) -> Any:
        """Enqueues on `stream` (the handle of a CUDA stream; 0: the default one) the lookup of `keys`, in the memory of
        the GPU, as Server.lookup has them, into `out` there, float32 [n, dim], which is returned. A key that is out of
        range gives a row of zeros, and a later lookup raises KeyRangeError."""
        ordinal = self._place(gpu)
        segments, n_segments, n, kept = _segments(keys, "lookup: keys", ordinal, stream)
        to = array_of(out, "lookup: out", ("float32",), (n, self.dim), True, ordinal, stream)
        self._call(lib.frugal_cuda_serve_lookup, gpu, stream or None, segments, n_segments, to.address or None, 0, None)
        return out

    def lookup_bags(self, gpu: int, keys: Keys, offsets: Any, weights: Any = None, pooling: str = "sum", *, out: Any,
                    stream: int = 0) -> Any:
        """The same, pooled, as Server.lookup_bags: `out` float32 [n_bags, dim]; all are in the memory of the GPU."""
        ordinal = self._place(gpu)
        segments, n_segments, n, kept = _segments(keys, "lookup_bags: keys", ordinal, stream)
        bags, n_bags, arrays = _bags(offsets, weights, pooling, n, ordinal, stream)
        to = array_of(out, "lookup_bags: out", ("float32",), (n_bags, self.dim), True, ordinal, stream)
        self._call(lib.frugal_cuda_serve_bags, gpu, stream or None, segments, n_segments, ctypes.byref(bags),
                   to.address or None, None)
        return out

    def refresh(self) -> None:
        """Takes over the version that lookups of the Server see, while lookups go on."""
        self._call(lib.frugal_cuda_serve_refresh)

    def place(self, hottest: Any, cache_rows: int) -> None:
        """Caches other rows, given as in Server.on_gpus. Needs room for both."""
        placement, kept = self._placement(hottest, cache_rows)
        self._call(lib.frugal_cuda_serve_place, ctypes.byref(placement))


__all__ = ["GpuServer", "Server"]
