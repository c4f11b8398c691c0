"""Modules whose rows lie in a Frugal instance: Embedding, EmbeddingBag and EmbeddingBagCollection.

A forward with gradients and its backward are one training step: the backward gives the gradients to the table, whose
optimizer runs inside the library. The modules have no parameters, so an optimizer of torch.optim for the rest of a
model does not see them; their learning rate is the attribute `lr`, or that of a frugal.torch.Optimizer.
"""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from ..errors import LostError
from ..instance import Frugal
from ..instance import save as save_instances
from ..settings import Normal, Optimizer as Settings, Table, Workers, in_range
from . import advice, operators
from .micro_batches import micro_batches_of
from .processes import Processes
from .session import POOLING, Session, that_stays

DEFAULT = "adagrad"  # the optimizer of a module for which none was chosen
CHUNK = 1 << 20  # rows that are read or written at a time
Places = Union[str, torch.device, Sequence[Union[str, torch.device]]]


class _Store:
    """An instance with the sessions of its devices. It is opened again when a state is loaded that goes on at another
    step."""

    def __init__(self, tables: Sequence[Table], dim: int, places: Sequence[torch.device], cache_rows: int, policy: str,
                 gate_on_stream: bool, processes: Optional[Processes], options: Dict[str, Any]):
        self.tables, self.dim, self.places = list(tables), dim, places
        self.cache_rows, self.policy, self.gate_on_stream = cache_rows, policy, gate_on_stream
        self.processes = processes if processes is not None and processes.world_size > 1 else None
        self.options = dict(options, devices=len(places))
        # The logical devices that are driven here: that of the rank, or one for each place.
        self.numbers = range(len(places))
        if self.processes is not None:
            if len(places) != 1:
                raise ValueError(f"device: with `processes` each process has one; {len(places)} were given")
            self.numbers = range(self.processes.rank, self.processes.rank + 1)
        self.sessions: List[Session] = []
        self.groups: List[dict] = [{"lr": 0.0} for _ in places]
        self.open()

    def open(self) -> None:
        if self.processes is None:
            self.instance = Frugal(self.tables, self.dim, **self.options)
        else:
            self.instance = self.processes.open(self.tables, self.dim, self.options)
        siblings: list = []
        for at, (device, place) in enumerate(zip(self.numbers, self.places)):
            stream = None
            if place.type == "cuda":
                stream = torch.cuda.Stream(place) if self.gate_on_stream else torch.cuda.current_stream(place)
                self.instance.attach_cuda(device, place.index, self.cache_rows, self.policy, stream.cuda_stream,
                                          self.gate_on_stream)
            else:
                self.instance.attach_cpu(device, self.cache_rows, self.policy)
            session = Session(self.instance, device, place, range(len(self.tables)), stream, siblings)
            session.group = self.groups[at]
            if at < len(self.sessions):  # opened again: modules and groups keep their sessions
                before = self.sessions[at]
                before.__dict__.update(session.__dict__, id=before.id, group=before.group, optimizer=before.optimizer)
                siblings[-1] = _reference(self.sessions[at])
            else:
                self.sessions.append(session)

    @property
    def announces_in_vain(self) -> bool:
        """Does an announcement before the forward save nothing? A device on host cores that alone updates rows in place
        flushes nothing, and has nothing to copy; of a table in a file it asks for pages ahead."""
        return (len(self.places) == 1 and self.processes is None and self.places[0].type == "cpu" and
                not self.cache_rows and self.options.get("file") is None and self.instance.is_in_place)

    def open_at(self, step: int) -> None:
        """Opens the instance again, with `step` as its next step. Rows are then first values again."""
        for name in ("file", "weights", "saved"):
            if self.options.get(name) is not None and len(self.options[name]):
                raise RuntimeError(f"load_state_dict: the state goes on at step {step}, and a table opened with "
                                   f"`{name}` cannot be opened again there. Open it with first_step={step}, or restore "
                                   "a file of save() with saved=[...]")
        if self.processes is not None and not self.instance.joined:
            self.processes.await_ranks(self.instance)
        try:
            self.instance.close()
        except LostError:
            if not self.instance.joined:
                raise  # else rank 0 has closed it first, to open it again
        self.options["first_step"] = step
        self.open()

    def move(self, write: bool, table: int, weight: Tensor, state: Tensor) -> None:
        """Reads or writes all rows of `table`: weight [rows, dim], state [rows, state_floats], in host memory."""
        rows = self.tables[table].rows
        for first in range(0, rows, CHUNK):
            keys = torch.arange(first, min(first + CHUNK, rows), dtype=torch.int64, device="cpu")
            at_state = state[first].data_ptr() if state.numel() else None
            self.instance.rows_at(write, table, keys.data_ptr(), keys.numel(), weight[first].data_ptr(), at_state)


def _reference(session: Session) -> Any:
    import weakref
    return weakref.ref(session)


def _place(given: Union[str, torch.device]) -> torch.device:
    place = torch.device(given)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device: cpu or cuda is wanted; {given} was given")
    return place


class _Module(nn.Module):
    """What the modules share: one or several instances (one for each dim), and a device of theirs."""

    _own_workers: Optional[Workers] = None  # which the module has made
    _default = ""  # of the optimizer: its kind, if nobody has chosen one

    def _start(self, stores: Sequence[_Store], names: Sequence[Sequence[str]], device: int, lr: float) -> None:
        place = stores[0].places[device]
        # In a tuple and a dict, so that nn.Module takes none of it for a parameter.
        self._parts = tuple((store, store.sessions[device], tuple(of)) for store, of in zip(stores, names))
        self._hidden = {"anchor": torch.zeros(0, dtype=torch.float32, device=place, requires_grad=True)}
        self._place, self._device = place, device
        self.__dict__["_parameters"] = advice.Parameters(self._hidden["anchor"])
        self._offsets: Dict[Any, Tensor] = {}  # of this device alone: they lie where it is, and it has its own thread
        for _, session, _ in self._parts:
            session.group.setdefault("lr", 0.0)
        self.lr = lr
        for part, (_, session, _) in enumerate(self._parts):
            session.first_update = _check_of(self, part)

    @property
    def lr(self) -> float:
        """The learning rate of the steps to come, of all devices. A frugal.torch.Optimizer shares it, so schedulers may
        change it."""
        return self._parts[0][1].group["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for store, _, _ in self._parts:
            for session in store.sessions:
                session.group["lr"] = value

    @property
    def instances(self) -> Tuple[Frugal, ...]:
        """The instances, for statistics and for the calls that modules do not have."""
        return tuple(store.instance for store, _, _ in self._parts)

    @property
    def device(self) -> torch.device:
        return self._place

    @property
    def is_saver(self) -> bool:
        """May this process drain, save, view and make a state_dict? Of several processes rank 0 alone may."""
        return not self._parts[0][0].instance.joined

    def on(self, device: int) -> "_Module":
        """This module on another logical device of the same tables: `device` is an index into `devices`."""
        places = self._parts[0][0].places
        if not 0 <= in_range(device, 32, "on: device") < len(places):
            raise IndexError(f"on: the module has {len(places)} devices here, numbered from 0; {device} was given")
        made = type(self).__new__(type(self))
        nn.Module.__init__(made)
        for name, value in self.__dict__.items():
            if name not in made.__dict__ and name not in ("_parts", "_hidden"):
                made.__dict__[name] = value
        made._start([store for store, _, _ in self._parts], [names for _, _, names in self._parts], device, self.lr)
        return made.requires_grad_(self.trains)

    @property
    def trains(self) -> bool:
        """Is a forward with gradients a training step? requires_grad_(False) ends this: each is read-only then."""
        return self._hidden["anchor"].requires_grad

    def _lookup(self, part: int, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                pooling: int) -> Tensor:
        store, session, _ = self._parts[part]
        rows, _ = operators.lookup(self._hidden["anchor"], keys, offsets, weights, session.id, pooling, store.dim,
                                   torch.is_grad_enabled() and self.trains)
        return rows

    def _takes(self, batch: Any) -> bool:
        """Is this batch of a loader what `announce` takes?"""
        raise NotImplementedError

    def announce(self, *features: Any, read_only: bool = False, owner: Any = None) -> None:
        """Announces the keys of a forward to come: what `features` are is said at each module."""
        raise NotImplementedError

    def announce_micro_batches(self, batches: Sequence[Any], *, owner: Any = None) -> None:
        """Announces several forwards to come as one step: `batches`, what `forward` will be given, in their order; for
        bags with their offsets, as a pair. Their backwards are collected, and commit when all have come; with a
        frugal.torch.Optimizer its `step` commits. The rows then have the bits of one batch with all their keys:
        `max_keys` must hold that many, and the memory of rows and gradients is that of such a batch. One that has no
        backward counts as gradients of 0. per_sample_weights are refused. ValueError, if the module does not train."""
        if not self.trains:
            raise ValueError("announce_micro_batches: the module does not train: requires_grad_(False) was called")
        if not len(batches):
            raise ValueError("announce_micro_batches: at least one batch is wanted; none was given")
        parts = [self._micro_parts(batch) for batch in batches]  # of each batch and part: keys, bounds, pooling
        steps = []
        for number, (_, session, _) in enumerate(self._parts):
            of_part = [part[number] for part in parts]
            bounds = None if of_part[0][1] is None else [bounds for _, bounds, _ in of_part]
            steps.append((session, [one for keys, _, _ in of_part for one in keys],
                          micro_batches_of([keys for keys, _, _ in of_part], bounds, of_part[0][2])))
        done: List[Session] = []
        try:
            for session, keys, micro in steps:
                session.announce(keys, False, owner, micro)
                done.append(session)
        except BaseException:
            for session in reversed(done):
                session.take_back_last()
            raise

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        """Of what forward takes, for each part: its keys by table, where its bags begin, how they are pooled."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Takes back what is announced and has had no forward, on all devices. No forward may be under way."""
        for _, session, _ in self._parts:
            session.cancel()

    def finish(self) -> None:
        """The data of this module's device has ended, and other devices go on: it has no part in their steps any more.
        `cancel` of a step that it has announced takes this back."""
        for _, session, _ in self._parts:
            session.refuse_pending("finish")
            session.close_step()
            session.instance.finish(session.device)

    def drain(self) -> None:
        """Ends the step under way and flushes all updates: the tables are whole then. `view` needs it. With several
        processes in rank 0 alone (ProcessError elsewhere), when all others have made their last backward."""
        for _, session, _ in self._parts:
            session.drain()

    def save(self, path: str, increment: bool = False, replace: bool = False) -> None:
        """Saves the tables with their optimizer state to a file, checksummed, of any size: frugal_save.h. A module is
        opened from it with saved=[path], and with increments after it. With several processes in rank 0 alone, as
        `drain`."""
        self.drain()
        save_instances(self.instances, path, increment, replace)

    def close(self) -> None:
        """Frees the tables. The module cannot be used afterwards. With several processes rank 0 must wait until the
        others have made their last backward, because their calls raise LostError afterwards."""
        for store, _, _ in self._parts:
            store.instance.close()
        if self._own_workers is not None:
            self._own_workers.close()

    def _table(self, name: str) -> Tuple[_Store, int]:
        for store, _, names in self._parts:
            if name in names:
                return store, names.index(name)
        raise KeyError(f"no table {name!r}; there are {[name for part in self._parts for name in part[2]]}")

    def view(self, name: str = "") -> Any:
        """The rows of a table in place, after drain(): a read-only NumPy array float32 [rows, dim], without a copy."""
        store, table = self._table(name)
        return store.instance.view(table)

    # state_dict

    def _key(self, name: str) -> str:
        return f"{name}." if name else ""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        self.drain()
        for store, session, names in self._parts:
            for table, name in enumerate(names):
                rows, floats = store.tables[table].rows, store.instance.state_floats
                weight = torch.empty(rows, store.dim, dtype=torch.float32, device="cpu")
                state = torch.empty(rows, floats, dtype=torch.float32, device="cpu")
                store.move(False, table, weight, state)
                destination[f"{prefix}{self._key(name)}weight"] = weight
                destination[f"{prefix}{self._key(name)}state"] = state
        steps = [session.step for _, session, _ in self._parts]  # differ only if a lookup of a part has failed
        destination[f"{prefix}step"] = torch.tensor(steps if len(steps) > 1 else steps[0], dtype=torch.int64,
                                                    device="cpu")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: List[str], unexpected_keys: List[str], error_msgs: List[str]) -> None:
        wanted: Dict[str, Optional[tuple]] = {f"{prefix}step": None}
        for store, _, names in self._parts:
            for table, name in enumerate(names):
                rows = store.tables[table].rows
                wanted[f"{prefix}{self._key(name)}weight"] = (rows, store.dim)
                wanted[f"{prefix}{self._key(name)}state"] = (rows, store.instance.state_floats)
        absent = [key for key in wanted if key not in state_dict]
        if absent and not any(key.endswith("weight") for key in absent):
            absent[0] = advice.OnlyRows(absent[0])
        missing_keys += absent
        for key, shape in wanted.items():
            given = state_dict.get(key)
            if given is None or shape is None:
                continue
            if tuple(given.shape) != shape or given.dtype != torch.float32:
                error_msgs.append(f"{key}: float32 of shape {shape} is wanted; {given.dtype} of shape "
                                  f"{tuple(given.shape)} was given")
        unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in wanted]
        if error_msgs or len(absent) == len(wanted):  # what is there is loaded, as by torch.nn
            return
        self.cancel()
        if self.is_saver:
            self.drain()
        steps = [session.step for _, session, _ in self._parts]
        if f"{prefix}step" in state_dict:
            given = torch.as_tensor(state_dict[f"{prefix}step"], device="cpu").reshape(-1).tolist()
            steps = [int(step) for step in (given * len(steps) if len(given) == 1 else given)]
        for (store, session, names), step in zip(self._parts, steps):
            if store.instance.joined:  # rank 0 writes the rows
                if session.step != step:
                    store.open_at(step)
                continue
            loaded = [self._to_load(state_dict, prefix, store, table, name) for table, name in enumerate(names)]
            if session.step != step:
                store.open_at(step)
            for table, (weight, state) in enumerate(loaded):
                store.move(True, table, weight, state)

    def _to_load(self, state_dict: Any, prefix: str, store: _Store, table: int, name: str) -> Tuple[Tensor, Tensor]:
        """Weights and state of a table: where weights come without state, it is zeros; what is absent stays."""
        given = [state_dict.get(f"{prefix}{self._key(name)}{part}") for part in ("weight", "state")]
        if given[0] is None or given[1] is None:
            rows = store.tables[table].rows
            now = [torch.zeros(rows, width, dtype=torch.float32, device="cpu")
                   for width in (store.dim, store.instance.state_floats)]
            store.move(False, table, *now)
            if given[0] is not None:
                now[1].zero_()
            given = [there if one is None else one for one, there in zip(given, now)]
        return given[0].cpu().contiguous(), given[1].cpu().contiguous()

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a module of frugal.torch cannot be copied; on(device) gives the same tables on another device")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        advice.check_conversion(self, self._place, fn)
        return super()._apply(fn, recurse)

    def _replicate_for_data_parallel(self) -> Any:
        raise TypeError("nn.DataParallel: a module of frugal.torch has no replicas; make it with a list of devices, "
                        "and use on(i) for each")

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(f"{type(self).__name__} has no attribute 'weight': its rows are no parameter. First "
                                 "values: init=...; rows: view() after drain(); to set them: load_state_dict")
        return super().__getattr__(name)

    def __getstate__(self) -> Any:
        raise TypeError("a module of frugal.torch cannot be pickled; save its state_dict(), or use save(path)")


def _check_of(module: _Module, part: int) -> Callable[[], None]:
    """What the first update of a part of `module` asks."""
    import weakref
    of = weakref.ref(module)

    def check() -> None:
        module = of()
        if module is None:
            return
        session = module._parts[part][1]
        if not session.commits_itself():
            return
        asks = not part and module._default and module._parameters.listed  # type: ignore[attr-defined]
        advice.check_first_update(module, f"the default, {module._default}, with lr {module.lr:g}" if asks else "")
    return check


class _OneTable(_Module):
    """Embedding and EmbeddingBag."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, max_keys: int, lr: float = 0.01,
                 optimizer: Union[None, str, Settings] = None, init: Any = Normal(0.0, 1.0), lookahead: int = 10,
                 device: Places = "cpu", cache_rows: int = 0, policy: str = "counted", gate_on_stream: bool = False,
                 processes: Optional[Processes] = None, **options: Any):
        super().__init__()
        options = advice.refuse_options(options)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._default = "" if optimizer is not None else DEFAULT
        places = [_place(one) for one in ([device] if isinstance(device, (str, torch.device)) else device)]
        store = _Store([Table(num_embeddings, init)], embedding_dim, places, cache_rows, policy, gate_on_stream,
                       processes, dict(options, max_keys=max_keys, lookahead=lookahead, optimizer=optimizer or DEFAULT))
        self._start([store], [("",)], 0, lr)

    @property
    def instance(self) -> Frugal:
        """The instance, for statistics and for the calls that modules do not have."""
        return self._parts[0][0].instance

    def announce(self, input: Tensor, *_: Any, read_only: bool = False,  # type: ignore[override]
                 owner: Any = None) -> None:
        """Announces the keys of a forward to come: int64 or int32, those that forward will be given. Waits until
        the step is at most `lookahead` steps ahead. `read_only`: the forward will be without gradients."""
        session = self._parts[0][1]
        session.announce(session.own_keys([input], ["announce"]), read_only or not self.trains, owner)

    def _takes(self, batch: Any) -> bool:
        return isinstance(batch, Tensor)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, device={self._place}"


class Embedding(_OneTable):
    """As torch.nn.Embedding: rows by key, whose table lies in a Frugal instance in host memory.

    `num_embeddings`, `embedding_dim`: rows of the table, and floats of a row. `max_keys`: the most keys of one forward.
    `lr`: learning rate. `optimizer`: "sgd", "adagrad", "rowwise_adagrad", "adam", or frugal.Optimizer. `init`: first
    values (frugal.Table). `lookahead`: how many steps may be announced ahead. `device`: "cpu", "cuda:0", or a list: one
    logical device each, reached by on(i). `cache_rows`, `policy`: of the cache on each device. `gate_on_stream`: on a
    GPU, the stream waits at the gate, and not the host; needs a worker. `processes`: this process is one of several
    that train the table, and has one device. `options`: further arguments of frugal.Frugal, as workers, seed, file,
    saved, increments; of several processes those of rank 0 count.
    """

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        return [(self._parts[0][1].own_keys([batch], ["announce_micro_batches"]), None, 0)]

    def forward(self, input: Tensor) -> Tensor:
        """`input`: int64 or int32 of any shape. Returns float32 [*input.shape, embedding_dim]."""
        rows = self._lookup(0, [input], None, None, 0)
        return rows.view(*input.shape, self.embedding_dim)


class EmbeddingBag(_OneTable):
    """As torch.nn.EmbeddingBag: pooled rows, whose table lies in a Frugal instance in host memory.

    `mode`: "sum" or "mean". `include_last_offset`: offsets have n_bags + 1 elements, the last one n. The other
    arguments are those of frugal.torch.Embedding.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, max_keys: int, mode: str = "mean",
                 include_last_offset: bool = False, **arguments: Any):
        advice.check_mode(mode)
        super().__init__(num_embeddings, embedding_dim, max_keys=max_keys, **arguments)
        self.mode, self.include_last_offset = mode, include_last_offset

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        input, offsets = _pair(batch)
        bounds = _bounds([(input, offsets)], self.include_last_offset, self._place, self._offsets)
        return [(self._parts[0][1].own_keys([input], ["announce_micro_batches"]), bounds, POOLING[self.mode])]

    def forward(self, input: Tensor, offsets: Optional[Tensor] = None,
                per_sample_weights: Optional[Tensor] = None) -> Tensor:
        """`input`: int64 or int32 [n] with `offsets` int64 or int32 [n_bags], or [n_bags, keys a bag] without.
        `per_sample_weights`: float32 of input's shape, with the mode "sum"; they get gradients if they ask for any.
        Returns float32 [n_bags, embedding_dim]."""
        bounds = _bounds([(input, offsets)], self.include_last_offset, self._place, self._offsets)
        weights = per_sample_weights
        if weights is not None:
            if self.mode != "sum":
                raise ValueError(f"per_sample_weights: only mode 'sum' has them; the mode is {self.mode!r}")
            if weights.shape != input.shape:
                raise ValueError(f"per_sample_weights: the shape of input, {tuple(input.shape)}, is wanted; "
                                 f"{tuple(weights.shape)} was given")
            weights = that_stays(weights).reshape(-1)
        return self._lookup(0, [input], bounds, weights, POOLING[self.mode])


class EmbeddingBagCollection(_Module):
    """Several EmbeddingBags that are trained in one step. Tables of one dim and optimizer settings lie in one instance;
    tables of several dims in several, which share their workers.

    `tables`: {name: (rows, dim)} or {name: frugal.Table} with `dim`. `mode`: "sum" or "mean". `stacked`: forward
    returns one tensor [tables, n_bags, dim] in the order of `tables`, for which all tables have one dim and all inputs
    one number of bags: no gradient is then copied. `max_keys`: the most keys of one forward, of all tables together.
    The other arguments are those of frugal.torch.Embedding.
    """

    def __init__(self, tables: Mapping[str, Any], *, max_keys: int, dim: Optional[int] = None, mode: str = "sum",
                 include_last_offset: bool = False, stacked: bool = False, lr: float = 0.01,
                 optimizer: Union[None, str, Settings] = None, init: Any = Normal(0.0, 1.0), lookahead: int = 10,
                 device: Places = "cpu", cache_rows: int = 0, policy: str = "counted", gate_on_stream: bool = False,
                 workers: Union[int, Workers] = 0, saved: Sequence[str] = (), processes: Optional[Processes] = None,
                 **options: Any):
        super().__init__()
        options = advice.refuse_options(options)
        advice.check_mode(mode)
        self.mode, self.include_last_offset, self.stacked = mode, include_last_offset, stacked
        self.names = list(tables)
        self._default = "" if optimizer is not None else DEFAULT
        by_dim: Dict[int, Dict[str, Table]] = {}
        for name, table in tables.items():
            rows_dim = (table, dim) if isinstance(table, Table) else (Table(table[0], init), table[1])
            if rows_dim[1] is None:
                raise ValueError(f"tables: {name!r} is a frugal.Table, which has no dim; give `dim`")
            width = in_range(rows_dim[1], 32, f"tables: dim of {name!r}")
            by_dim.setdefault(width, {})[name] = dataclasses.replace(rows_dim[0], name=name)
            if rows_dim[0].optimizer is not None:
                self._default = ""
        if stacked and len(by_dim) > 1:
            raise ValueError(f"stacked: tables of one dim are wanted; those given have {sorted(by_dim)}")
        opens = processes is None or processes.rank == 0
        if len(by_dim) > 1 and isinstance(workers, int) and workers and opens:
            workers = self._own_workers = Workers(workers)
        places = [_place(one) for one in ([device] if isinstance(device, (str, torch.device)) else device)]
        arguments = dict(options, max_keys=max_keys, lookahead=lookahead, optimizer=optimizer or DEFAULT,
                         workers=workers)
        stores = [_Store(list(of.values()), width, places, cache_rows, policy, gate_on_stream, processes,
                         dict(arguments, saved=saved, saved_part=part if saved else 0))
                  for part, (width, of) in enumerate(by_dim.items())]
        self._start(stores, [list(of) for of in by_dim.values()], 0, lr)

    def announce(self, features: Mapping[str, Any], *, read_only: bool = False,  # type: ignore[override]
                 owner: Any = None) -> None:
        """Announces the keys of a forward to come: `features` as forward will be given them; offsets are not read."""
        self._announce_all(self._keys_of(features, "announce"), read_only or not self.trains, owner)

    def _keys_of(self, features: Mapping[str, Any], call: str) -> List[List[Tensor]]:
        """Of each part, the keys of each table."""
        return [session.own_keys([_pair(features[name])[0] for name in names], [f"{call}: {name}" for name in names])
                for _, session, names in self._parts]

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        made = []
        for (_, _, names), keys in zip(self._parts, self._keys_of(batch, "announce_micro_batches")):
            pairs = [_pair(batch[name]) for name in names]
            made.append((keys, _bounds(pairs, self.include_last_offset, self._place, self._offsets),
                         POOLING[self.mode]))
        return made

    def _takes(self, batch: Any) -> bool:
        return isinstance(batch, Mapping)

    def _announce_all(self, keys: Sequence[Sequence[Tensor]], read_only: bool, owner: Any) -> None:
        """All parts, or none."""
        done: List[Session] = []
        try:
            for (_, session, _), of_part in zip(self._parts, keys):
                session.announce(of_part, read_only, owner)
                done.append(session)
        except BaseException:
            for session in reversed(done):
                session.take_back_last()
            raise

    def forward(self, features: Mapping[str, Any], per_sample_weights: Optional[Mapping[str, Tensor]] = None) -> Any:
        """`features`: for each table an input [n_bags, keys a bag], or a pair of an input [n] and offsets [n_bags], as
        for EmbeddingBag. `per_sample_weights`: for each table weights of its input's shape; mode "sum" only.
        Returns {name: float32 [n_bags, dim]}, or, stacked, float32 [tables, n_bags, dim]."""
        made: Dict[str, Tensor] = {}
        # One step of all parts: none is looked up unless all are announced.
        if len(self._parts) > 1 and not any(session.has_micro_batch() for _, session, _ in self._parts):
            for _, session, _ in self._parts:
                session.refuse_pending("forward")
                session.close_step()
                if session.queue and session.queue[-1].owner == "forward":  # of one that has failed
                    session.take_back_last()
            if not any(session.queue for _, session, _ in self._parts):
                self._announce_all(self._keys_of(features, "forward"), not (torch.is_grad_enabled() and self.trains),
                                   "forward")
        for part, (store, _, names) in enumerate(self._parts):
            pairs = [_pair(features[name]) for name in names]
            bounds = _bounds(pairs, self.include_last_offset, self._place, self._offsets)
            weights = None
            if per_sample_weights is not None:
                weights = torch.cat([per_sample_weights[name].reshape(-1) for name in names])
            pooled = self._lookup(part, [input for input, _ in pairs], bounds, weights, POOLING[self.mode])
            sizes = [_bags(input, offsets, self.include_last_offset) for input, offsets in pairs]
            if self.stacked:
                if len(set(sizes)) > 1:
                    raise ValueError(f"stacked: one number of bags is wanted; the inputs have {sizes}")
                return pooled.view(len(names), sizes[0], store.dim)
            made.update(zip(names, pooled.split(sizes)))
        return {name: made[name] for name in self.names}

    def extra_repr(self) -> str:
        return f"{len(self.names)} tables, mode={self.mode}, device={self._place}"


def _pair(feature: Any) -> Tuple[Tensor, Optional[Tensor]]:
    return (feature, None) if isinstance(feature, Tensor) else (feature[0], feature[1])


def _bags(input: Tensor, offsets: Optional[Tensor], include_last: bool) -> int:
    return input.shape[0] if offsets is None else offsets.numel() - include_last


def _check_offsets(offsets: Tensor, n: int, include_last: bool) -> None:
    """Wrong offsets would pool the keys of another input, or leave some out."""
    if offsets.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"offsets: int32 or int64 is wanted; {offsets.dtype} was given. Write offsets.long()")
    if offsets.is_cuda:
        return  # the check would wait for the GPU, which finds those that fall or miss n as a whole
    if offsets.numel() == 0:
        if n:
            raise ValueError(f"offsets: the first must be 0; there are none, and {n} keys")
        return
    first, last = offsets[0].item(), offsets[-1].item()
    if first != 0:
        raise ValueError(f"offsets: the first must be 0; {first} was given")
    if last > n or (include_last and last != n):
        raise ValueError(f"offsets: the last must be {'' if include_last else 'at most '}{n}, the number of keys; "
                         f"{last} was given")
    if offsets.numel() > 1 and offsets.diff().min().item() < 0:
        raise ValueError("offsets: each must be at least the one before; these fall. Sort the bags by position")


def _bounds(pairs: Sequence[Tuple[Tensor, Optional[Tensor]]], include_last: bool, place: torch.device,
            kept: Dict[Any, Tensor]) -> Tensor:
    """int32 [n_bags + 1]: where the bags of all inputs begin, in the order of the inputs, and their end. Those of
    inputs without offsets depend on their shapes alone, and the latest are kept, for the stream that made them."""
    stream = torch.cuda.current_stream(place).cuda_stream if place.type == "cuda" else 0
    shapes = []
    for input, offsets in pairs:
        if not isinstance(input, Tensor):
            raise TypeError(f"input: a tensor of keys is wanted; a {type(input).__name__} was given")
        if input.dim() != (2 if offsets is None else 1):
            raise ValueError(f"input: [n] with offsets, or [n_bags, keys a bag] without, is wanted; shape "
                             f"{tuple(input.shape)} {'without' if offsets is None else 'with'} offsets was given")
        if offsets is not None and (offsets.dim() != 1 or offsets.numel() < include_last):
            raise ValueError(f"offsets: [n_bags{' + 1' if include_last else ''}] is wanted; shape "
                             f"{tuple(offsets.shape)} was given")
        if offsets is not None:
            _check_offsets(offsets, input.numel(), include_last)
        shapes.append(tuple(input.shape) if offsets is None else None)
    key = (stream, *shapes)
    if None not in shapes and key in kept:
        return kept[key]
    parts, first = [], 0
    for input, offsets in pairs:
        if offsets is None:
            bags, each = input.shape
            parts.append(torch.arange(0, bags, dtype=torch.int32, device="cpu") * each + first)
        else:
            parts.append((offsets[:-1] if include_last else offsets).to(place, torch.int32) + first)
        first += input.numel()
    end = torch.tensor([first], dtype=torch.int32, device="cpu")
    bounds = torch.cat([part.to(place) for part in itertools.chain(parts, [end])])
    if None not in shapes:
        kept.clear()
        kept[key] = bounds
    return bounds


__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection"]
