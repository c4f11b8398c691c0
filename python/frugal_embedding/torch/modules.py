"""Modules whose rows lie in a Frugal instance: Embedding, EmbeddingBag and EmbeddingBagCollection.

A forward with gradients and its backward are one training step: the backward gives the gradients to the table, whose
optimizer runs inside the library. The modules have no parameters, so an optimizer of torch.optim for the rest of a
model does not see them; their learning rate is the attribute `lr`, or that of a frugal_embedding.torch.Optimizer.
"""
from __future__ import annotations

import dataclasses
import weakref
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from ..errors import LostError
from ..instance import Frugal
from ..instance import save as save_instances
from ..settings import TYPES, Normal, Optimizer as Settings, Table, Uniform, Workers, Zero, in_range
from . import advice, inputs, operators, weight
from .machines import Machines
from .micro_batches import MicroBatches, single_bounds
from .padding import padding_of, paddings_of
from .pooling import pool_max
from .processes import Processes
from .session import FLOAT_TYPES, POOLING, Session
from .warm import Cache

DEFAULT = "adagrad"  # the optimizer of a module for which none was chosen
CHUNK = 1 << 20  # rows that are read or written at a time
Places = Union[str, torch.device, Sequence[Union[str, torch.device]]]


class _Store:
    """An instance with the sessions of its devices. It is opened again when a state is loaded that goes on at another
    step. `of_features`: of each feature, which a step has keys of, its table. `padding`: of each table the key that no
    step has, or None; `shows_padding`: positions of it are looked up as its row, else as zeros."""

    def __init__(self, tables: Sequence[Table], of_features: Sequence[int], dim: int, places: Sequence[torch.device],
                 cache: Cache, padding: Sequence[Optional[int]], gate_on_stream: bool, processes: Optional[Processes],
                 machines: Optional[Machines], options: Dict[str, Any], shows_padding: bool = False):
        self.tables, self.of_features, self.dim, self.places = list(tables), list(of_features), dim, places
        self.cache, self.gate_on_stream = cache, gate_on_stream
        self.padding, self.shows_padding = [padding[table] for table in of_features], shows_padding
        self.processes = processes if processes is not None and processes.world_size > 1 else None
        self.machines = machines if machines is not None and machines.machines > 1 else None
        self.options = dict(options, devices=len(places))
        if self.options["lookahead"] is None:
            self.options["lookahead"] = 1 if self.announces_in_vain else 10
        # The logical devices that are driven here: that of the rank, or one for each place.
        self.numbers = range(len(places))
        if self.processes is not None:
            if len(places) != 1:
                raise ValueError(f"device: with `processes` each process has one; {len(places)} were given")
            self.numbers = range(self.processes.rank, self.processes.rank + 1)
        if self.machines is not None:
            if self.processes is not None:
                raise ValueError("machines: either `machines` or `processes` is wanted; both were given. With "
                                 "`machines` each process has a part of the tables, on one host, too")
            self.options.update(devices=len(places) * self.machines.machines, machines=self.machines)
            self.numbers = range(self.machines.machine * len(places), (self.machines.machine + 1) * len(places))
        if self.processes is not None or self.machines is not None:
            advice.check_alone(cache.frequencies, shows_padding)
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
                self.instance.attach_cuda(device, place.index, self.cache.rows, self.cache.policy, stream.cuda_stream,
                                          self.gate_on_stream)
            else:
                self.instance.attach_cpu(device, self.cache.rows, self.cache.policy)
            session = Session(self.instance, device, place, self.of_features, stream, siblings, self.padding)
            session.group = self.groups[at]
            if at < len(self.sessions):  # opened again: modules and groups keep their sessions
                before = self.sessions[at]
                before.__dict__.update(session.__dict__, id=before.id, group=before.group, optimizer=before.optimizer,
                                       first_update=before.first_update)
                siblings[-1] = weakref.ref(self.sessions[at])
            else:
                self.sessions.append(session)
        self.cache.fill(self.instance, self.numbers)
        if self.shows_padding:
            read = weakref.WeakMethod(self.read_padding)  # the instance shall not keep its module

            def read_again() -> None:
                method = read()
                if method is not None:
                    method()
            self.instance.after_write = read_again
            self.read_padding()

    def read_padding(self) -> None:
        """Positions of the padding are looked up as the row that it has now."""
        row = torch.empty(1, self.dim, dtype=torch.float32, device="cpu")
        keys = torch.tensor(self.padding, dtype=torch.int64, device="cpu")
        self.instance.rows_at(False, 0, keys.data_ptr(), 1, row.data_ptr(), None)
        for session in self.sessions:
            session.fill = row[0].to(session.place)

    @property
    def announces_in_vain(self) -> bool:
        """Does an announcement before the forward save nothing? A device on host cores that alone updates rows in place
        flushes nothing, and has nothing to copy; of a table in a file it asks for pages ahead."""
        return (len(self.places) == 1 and self.processes is None and self.machines is None and
                self.places[0].type == "cpu" and
                not self.cache.rows and self.options.get("file") is None and
                self.options.get("alone", "default") in ("default", "place"))

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
        """Reads or writes all rows of `table`: weight [rows, dim], state [rows, state_floats], in host memory. Of
        several machines each writes its own."""
        rows = self.tables[table].rows
        if write and self.machines is not None:
            for keys in torch.tensor(self.instance.own_keys(table), dtype=torch.int64, device="cpu").split(CHUNK):
                rows_of, state_of = weight[keys], state[keys]
                self.instance.rows_at(True, table, keys.data_ptr(), keys.numel(), rows_of.data_ptr(),
                                      state_of.data_ptr() if state_of.numel() else None)
            return
        for first in range(0, rows, CHUNK):
            keys = torch.arange(first, min(first + CHUNK, rows), dtype=torch.int64, device="cpu")
            at_state = state[first].data_ptr() if state.numel() else None
            self.instance.rows_at(write, table, keys.data_ptr(), keys.numel(), weight[first].data_ptr(), at_state)


def _place(given: Union[str, torch.device]) -> torch.device:
    place = torch.device(given)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device: cpu or cuda is wanted; {given} was given")
    return place


def _output_type(given: Optional[torch.dtype]) -> torch.dtype:
    if given is not None and given not in FLOAT_TYPES:
        raise ValueError(f"output_dtype: one of {', '.join(map(str, FLOAT_TYPES))} is wanted; {given!r} was given")
    return given or torch.float32


class _Module(nn.Module):
    """What the modules share: one or several instances (one for each dim), and a device of theirs. `output_dtype`: what
    forward returns, and of what its gradients are."""

    output_dtype: torch.dtype
    mode = ""  # of bags

    _own_workers: Optional[Workers] = None  # which the module has made
    _default = ""  # of the optimizer: its kind, if nobody has chosen one

    def _start(self, stores: Sequence[_Store], names: Sequence[Sequence[str]], device: int, lr: float) -> None:
        place = stores[0].places[device]
        # In a tuple and a dict, so that nn.Module takes none of it for a parameter.
        self._parts = tuple((store, store.sessions[device], tuple(of)) for store, of in zip(stores, names))
        self._hidden = {"anchor": torch.zeros(0, dtype=self.output_dtype, device=place, requires_grad=True)}
        self._place, self._device = place, device
        self.__dict__["_parameters"] = advice.Parameters(self._hidden["anchor"])
        self._offsets: Dict[int, tuple] = {}  # of this device alone: they lie where it is, and it has its own thread
        for _, session, _ in self._parts:
            session.group.setdefault("lr", 0.0)
        self.lr = lr
        for part, (_, session, _) in enumerate(self._parts):
            session.first_update = _check_of(self, part)

    @property
    def lr(self) -> float:
        """The learning rate of the steps to come, of all devices. An `Optimizer` shares it, so schedulers may change
        it."""
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
        """May this process drain, save, view and make a state_dict? Of several `processes` rank 0 alone may; of several
        machines all do it together."""
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
        advice.refuse_export()
        rows, _ = operators.lookup(self._hidden["anchor"], keys, offsets, weights, session.id, pooling, store.dim,
                                   torch.is_grad_enabled() and self.trains)
        return rows

    def _pooled(self, part: int, keys: List[Tensor], bounds: Optional[Tensor], weights: Optional[Tensor]) -> Tensor:
        """[n_bags, dim] by the module's mode. `bounds` None: each bag has one key, a row is its own sum, mean and
        maximum."""
        mode = self.mode
        if mode != "max":
            return self._lookup(part, keys, bounds, weights, POOLING[mode])
        rows = self._lookup(part, keys, None, None, 0)
        return rows if bounds is None else pool_max(rows, bounds, keys, self._parts[part][1].padding)

    def _pooling(self, bounds: Optional[Tensor]) -> Tuple[Optional[Tensor], int]:
        """Of a step of micro-batches, how the library pools."""
        return (None, 0) if self.mode == "max" else (bounds, POOLING[self.mode])

    def _takes(self, batch: Any) -> bool:
        """Is this batch of a loader what `announce` takes?"""
        raise NotImplementedError

    def announce(self, *features: Any, read_only: bool = False, owner: Any = None) -> None:
        """Announces the keys of a forward to come: what `features` are is said at each module."""
        raise NotImplementedError

    def announce_micro_batches(self, batches: Sequence[Any], *, owner: Any = None) -> None:
        """Announces several forwards to come as one step: `batches`, what `forward` will be given, in their order; for
        bags with their offsets, as a pair. Their backwards are collected, and commit when all have come; with an
        `Optimizer` its `step` commits. The rows then have the bits of one batch with all their keys: `max_keys` must
        hold that many, and the memory of rows and gradients is that of such a batch. One that has no backward counts as
        gradients of 0. per_sample_weights are refused. ValueError, if the module does not train."""
        if not self.trains:
            raise ValueError("announce_micro_batches: the module does not train: requires_grad_(False) was called")
        if not len(batches):
            raise ValueError("announce_micro_batches: at least one batch is wanted; none was given")
        parts = [self._micro_parts(batch) for batch in batches]  # of each batch and part: keys, bounds, pooling
        steps = []
        for number, (_, session, _) in enumerate(self._parts):
            of_part = [part[number] for part in parts]
            all_keys = [keys for keys, _, _ in of_part]
            if len({len(keys) for keys in all_keys}) > 1:
                raise ValueError("announce_micro_batches: as many inputs in each are wanted; lists of "
                                 f"{[len(keys) for keys in all_keys]} were given")
            bounds = None
            if any(bounds is not None for _, bounds, _ in of_part):  # else all bags have one key
                bounds = [single_bounds(sum(part.numel() for part in keys), self._place) if bounds is None else bounds
                          for keys, bounds, _ in of_part]
            steps.append((session, [one for keys in all_keys for one in keys],
                          MicroBatches(all_keys, bounds, of_part[0][2])))
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
        `drain`; all of several machines call it, and `path` is in a folder that all have."""
        self.drain()
        save_instances(self.instances, path, increment, replace)

    def exchange(self, given: Tensor) -> Tensor:
        """What each machine gives, in turn: [machines, ...], of the type and place of `given`, which is as large on
        all. All machines call it. For dense gradients that are added in one order, so that sums have the same bits
        on all; without `machines` a copy."""
        mine = given.detach().cpu().contiguous()
        instance = self._parts[0][0].instance
        made = torch.empty((instance.machines, *given.shape), dtype=given.dtype, device="cpu")
        instance.exchange_addresses(mine.data_ptr(), mine.numel() * mine.element_size(), made.data_ptr())
        return made.to(given.device)

    def close(self) -> None:
        """Frees the tables. The module cannot be used afterwards. With several processes rank 0 must wait until the
        others have made their last backward, because their calls raise LostError afterwards. One of several machines
        closes behind its last call that all make."""
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
        """The rows of a table in place, after drain(): a read-only NumPy array [rows, dim], without a copy, as from
        Frugal.view."""
        store, table = self._table(name)
        return store.instance.view(table)

    def view_tensor(self, name: str = "") -> Tensor:
        """As view, a tensor: float32, bfloat16 or float16, as the table stores its rows. PyTorch has no read-only
        tensors, but do not write this one: copies in caches would not follow. load_state_dict writes rows."""
        store, table = self._table(name)
        memory, stride = store.instance.view_memory(table)
        dtype = next(dtype for dtype, number in FLOAT_TYPES.items() if number == TYPES[store.instance.rows_as])
        flat = torch.frombuffer(memory, dtype=dtype)
        return flat.as_strided((len(store.instance.own_keys(table)), store.dim), (stride, 1))

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
            types = list(FLOAT_TYPES) if key.endswith("weight") else [torch.float32]  # as floats they are exact
            if tuple(given.shape) != shape or given.dtype not in types:
                error_msgs.append(f"{key}: {' or '.join(map(str, types))} of shape {shape} is wanted; {given.dtype} of "
                                  f"shape {tuple(given.shape)} was given")
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
        if self._parts[0][0].machines is not None:
            self.exchange(torch.zeros(1))  # no machine announces a step before all have written their rows

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
        return given[0].to("cpu", torch.float32).contiguous(), given[1].cpu().contiguous()

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a module of frugal_embedding.torch cannot be copied; on(device) gives the same tables on "
                        "another device")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        advice.check_conversion(self, self._place, self.output_dtype, fn)
        return super()._apply(fn, recurse)

    def _replicate_for_data_parallel(self) -> Any:
        raise TypeError("nn.DataParallel: a module of frugal_embedding.torch has no replicas; make it with a list of "
                        "devices, and use on(i) for each")

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(f"{type(self).__name__} has no attribute 'weight': it has several tables. First "
                                 "values: init=...; rows: view(name) after drain(); to set them: load_state_dict")
        if name == "reset_parameters":
            raise AttributeError(f"{type(self).__name__} has no attribute 'reset_parameters': first values are drawn "
                                 "by init=... and seed=... when a module is made; later load_state_dict sets rows")
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            weight.refuse("to assign it")
        super().__setattr__(name, value)

    def __getstate__(self) -> Any:
        raise TypeError("a module of frugal_embedding.torch cannot be pickled; save its state_dict(), or use "
                        "save(path)")


def _check_of(module: _Module, part: int) -> Callable[[], None]:
    """What the first update of a part of `module` asks."""
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

    _shows_padding = False  # positions of padding_idx are looked up as its row

    def __init__(self, num_embeddings: int, embedding_dim: int, *, max_keys: int, lr: float = 0.01,
                 optimizer: Union[None, str, Settings] = None, init: Any = Normal(0.0, 1.0),
                 lookahead: Optional[int] = None, device: Places = "cpu", cache_rows: int = 0,
                 cache_ratio: Optional[float] = None, policy: str = "counted", ids_freq_mapping: Any = None,
                 warmup_ratio: Optional[float] = None, padding_idx: Optional[int] = None,
                 gate_on_stream: bool = False, processes: Optional[Processes] = None,
                 machines: Optional[Machines] = None, output_dtype: Optional[torch.dtype] = None, **options: Any):
        super().__init__()
        options = advice.refuse_options(options)
        self.output_dtype = _output_type(output_dtype)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        rows = in_range(num_embeddings, 64, "num_embeddings")
        self.padding_idx = padding_of(padding_idx, rows)
        cache = Cache(cache_rows, cache_ratio, policy, ids_freq_mapping, warmup_ratio).of_tables({"": rows})
        self._default = "" if optimizer is not None else DEFAULT
        places = [_place(one) for one in ([device] if isinstance(device, (str, torch.device)) else device)]
        shows = self._shows_padding and self.padding_idx is not None
        drawn = shows and isinstance(init, (Zero, Uniform, Normal)) and not advice.has_rows(options)
        store = _Store([Table(num_embeddings, init)], [0], embedding_dim, places, cache, [self.padding_idx],
                       gate_on_stream, processes, machines,
                       dict(options, max_keys=max_keys, lookahead=lookahead, optimizer=optimizer or DEFAULT), shows)
        if drawn:  # as torch.nn: zeros, until load_state_dict or write_rows
            store.instance.write_rows(torch.tensor([self.padding_idx]), torch.zeros(1, store.dim, device="cpu"))
        self._start([store], [("",)], 0, lr)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, *, max_keys: int, **arguments: Any) -> Any:
        """As that of torch.nn: a module with the rows `embeddings`, float32 [rows, dim], a tensor or an array, which
        are copied. `freeze`: forwards are read-only; requires_grad_() ends this. `arguments`: those of the class."""
        given = embeddings.detach().cpu().contiguous() if isinstance(embeddings, Tensor) else embeddings
        if len(getattr(given, "shape", ())) != 2:
            raise ValueError("from_pretrained: float32 [rows, dim], a tensor or an array, is wanted; "
                             f"{inputs.describe(embeddings)} of shape {tuple(getattr(given, 'shape', ()))} was given")
        if "init" in arguments:
            raise TypeError("from_pretrained: the rows are `embeddings`; `init` was given, too")
        made = cls(int(given.shape[0]), int(given.shape[1]), max_keys=max_keys, init=given, **arguments)
        return made.requires_grad_(not freeze)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The rows [num_embeddings, embedding_dim] of the type that the table stores, in place, read-only and without
        gradients; after the next step an error says that they are of an earlier one. It drains, so a step must not be
        under way. Assignment and writes are RuntimeErrors that say what to do."""
        store, session, _ = self._parts[0]
        if store.instance.machines > 1:
            raise RuntimeError("weight: each machine has a part of the rows: module.view() has those of "
                               "module.instance.own_keys(), and state_dict() has all")
        for one in store.sessions:
            if one.open is not None:
                raise RuntimeError(f"weight: step {one.open} is under way. Read it after the backward (forwards that "
                                   "have none belong under torch.no_grad()). It has no gradient: for a loss on rows "
                                   "use what forward returns")
        self.drain()
        of = weakref.ref(session)
        return weight.weight_of(self.view_tensor(), lambda: getattr(of(), "step", None), session.step)

    @property
    def instance(self) -> Frugal:
        """The instance, for statistics and for the calls that modules do not have."""
        return self._parts[0][0].instance

    def announce(self, input: Any, *_: Any, read_only: bool = False,  # type: ignore[override]
                 owner: Any = None) -> None:
        """Announces the keys of a forward to come: `input` as forward will be given it; offsets are not read. Waits
        until the step is at most `lookahead` steps ahead. `read_only`: the forward will be without gradients."""
        keys = self._own_keys(self._keys_of(input, "announce"), "announce")
        self._parts[0][1].announce(keys, read_only or not self.trains, owner)

    def _keys_of(self, input: Any, call: str) -> List[Tensor]:
        """The keys of one input, or of each of a list."""
        raise NotImplementedError

    def _own_keys(self, keys: Sequence[Tensor], call: str) -> List[Tensor]:
        return self._parts[0][1].own_keys(keys, [call] * len(keys))

    def _takes(self, batch: Any) -> bool:
        return isinstance(batch, Tensor)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, device={self._place}"


class Embedding(_OneTable):
    """As torch.nn.Embedding: rows by key, whose table lies in a Frugal instance in host memory.

    `num_embeddings`, `embedding_dim`: rows of the table, and floats of a row. `max_keys`: the most keys of one forward.
    `lr`: learning rate. `optimizer`: frugal_embedding.Optimizer, or its kind alone, as in "adagrad"; "adamw" decays the
    rows that a step touches, and no others. `init`: first values, as of a Table. `lookahead`: how many steps may be
    announced ahead, for each of which there is memory for `max_keys`; None: 10, and 1 where a Loader announces nothing.
    `device`: "cpu", "cuda:0", or a list: one logical device each, reached by on(i). `cache_rows`, or `cache_ratio`, a
    share of the rows; `policy`: "counted", "lru" or "static": the cache on each device. `ids_freq_mapping` [rows], how
    often each key is expected: counted caches go by it, and `warmup_ratio` (1) of a cache is filled with the most
    frequent rows. `padding_idx`: a key, counted from the end if below 0, that no step has: positions of it give its
    row, which is zeros unless rows are given, get no gradient, and are no touch. `gate_on_stream`: on a GPU, the stream
    waits at the gate, and not the host; needs a worker. `processes`: this process is one of several that train the
    table, and has one device. `machines`: it is one of several that have a part of the table each; the devices in
    `device` are its own. `output_dtype`: what forward returns, and of what type its gradients are: torch.float32, the
    default, torch.bfloat16 or torch.float16, whatever the table stores (`rows_as`) and whatever torch.autocast asks
    for. `options`: further arguments of Frugal, as rows_as, rounding, workers, seed, file, saved, increments; of
    several processes those of rank 0 count.
    """

    _shows_padding = True

    def forward(self, input: Any) -> Any:
        """`input`: int64 or int32 of any shape, or a jagged tensor [n, j]. Returns [*input.shape, embedding_dim] of
        `output_dtype`, jagged as the input. A list of inputs is one step, and returns a list in its order."""
        if isinstance(input, Tensor) and not input.is_nested:
            return self._lookup(0, [input], None, None, 0).view(*input.shape, self.embedding_dim)
        many = inputs.is_list(input)
        given = input if many else [input]
        keys = self._all_keys(given, "forward")
        rows = self._lookup(0, keys, None, None, 0)
        made = [part.view(*of.shape, self.embedding_dim) if of is one else
                torch.nested.nested_tensor_from_jagged(part, one.offsets())
                for one, of, part in zip(given, keys, rows.split([of.numel() for of in keys]))]
        return made if many else made[0]

    def _all_keys(self, given: Sequence[Any], call: str) -> List[Tensor]:
        inputs.several(given)
        for one in given:
            if not isinstance(one, Tensor):
                raise TypeError(f"{call}: a tensor of keys is wanted; {inputs.describe(one)} was given")
        return [inputs.keys_of(one, call) for one in given]

    def _keys_of(self, input: Any, call: str) -> List[Tensor]:
        return self._all_keys(input if inputs.is_list(input) else [input], call)

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        call = "announce_micro_batches"
        return [(self._own_keys(self._keys_of(batch, call), call), None, 0)]


class EmbeddingBag(_OneTable):
    """As torch.nn.EmbeddingBag: pooled rows, whose table lies in a Frugal instance in host memory.

    `mode`: "sum", "mean" or "max", by which a bag's gradient goes to the first of its rows with the maximum, and all
    its rows are touched. `include_last_offset`: offsets have n_bags + 1 elements, the last one n. `padding_idx`: bags
    have no position of it, nor does a mean count it. The other arguments are those of frugal_embedding.torch.Embedding.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, max_keys: int, mode: str = "mean",
                 include_last_offset: bool = False, **arguments: Any):
        advice.check_mode(mode)
        super().__init__(num_embeddings, embedding_dim, max_keys=max_keys, **arguments)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Any, offsets: Optional[Tensor] = None, per_sample_weights: Any = None, *,
                lengths: Optional[Tensor] = None) -> Any:
        """`input`: int64 or int32 [n_bags, keys a bag]; or [n] with `offsets` int64 or int32 [n_bags], or with
        `lengths` [n_bags]; or a jagged tensor [n_bags, j]; or a `Jagged`. `per_sample_weights`: float32 of input's
        shape, with the mode "sum"; they get gradients if they ask for any. Returns [n_bags, embedding_dim] of
        `output_dtype`.

        A list of inputs is one step: of each an input as above, or a pair (input, offsets), and a list of
        per_sample_weights, or none. Returns a list in its order."""
        if isinstance(input, Tensor) and not input.is_nested:
            if offsets is None and lengths is None and per_sample_weights is None and input.dim() == 2:
                shape = input.shape
                if shape[1] == 1:
                    return self._pooled(0, [input], None, None)
                return self._pooled(0, [input], inputs.bounds_of_shapes([shape], self._place, self._offsets), None)
        elif offsets is not None or lengths is not None:
            raise TypeError(f"{'lengths' if offsets is None else 'offsets'}: with a tensor of keys [n]; with "
                            f"{'a jagged tensor' if isinstance(input, Tensor) else inputs.describe(input)} none is "
                            "wanted. A list has pairs (input, offsets), or "
                            "frugal_embedding.torch.Jagged(input, lengths=lengths)")
        many = inputs.is_list(input)
        if many:
            bags = self._several(input)
        elif lengths is not None:
            if offsets is not None:
                raise TypeError("lengths: either offsets or lengths are wanted; both were given")
            bags = [inputs.bags_at(input, inputs.offsets_of(lengths, input.numel(), "lengths"), True, "input")]
        elif offsets is not None:
            bags = [inputs.bags_at(input, offsets, self.include_last_offset, "input")]
        else:
            bags = [inputs.bags_of(input, self.include_last_offset)]
        weights = self._weights(input if many else [input], bags, per_sample_weights, many)
        by_position = weights is None and all(one.single for one in bags)
        pooled = self._pooled(0, [one.keys for one in bags], None if by_position else
                              inputs.bounds_of(bags, self._place), weights)
        return list(pooled.split([one.n_bags for one in bags])) if many else pooled

    def _several(self, input: Sequence[Any]) -> List[inputs.Bags]:
        inputs.several(input)
        return [inputs.bags_of(one, self.include_last_offset) for one in input]

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        given = batch if inputs.is_list(batch) and not inputs.is_pair(batch) else [batch]
        bags = self._several(given)
        if any(one.weights is not None for one in bags):
            raise ValueError("per_sample_weights: a step of several micro-batches has none")
        bounds = None if all(one.single for one in bags) else inputs.bounds_of(bags, self._place)
        return [(self._own_keys([one.keys for one in bags], "announce_micro_batches"), *self._pooling(bounds))]

    def _weights(self, given: Sequence[Any], bags: Sequence[inputs.Bags], weights: Any,
                 many: bool) -> Optional[Tensor]:
        """[n], or None."""
        if weights is None:
            of = [one.weights for one in bags]
        elif not many:
            of = [weights]
        elif not inputs.is_list(weights) or len(weights) != len(bags):
            raise TypeError(f"per_sample_weights: a list of {len(bags)}, one for each input, is wanted; "
                            f"{inputs.describe(weights)} was given")
        else:
            of = list(weights)
        if all(one is None for one in of):
            return None
        inputs.check_weighted(self.mode)
        if any(one is None for one in of):
            raise TypeError("per_sample_weights: all inputs of a step have some, or none has; some are missing")
        flat = [inputs.weights_of(*one) for one in zip(of, given, bags)]
        return flat[0] if len(flat) == 1 else torch.cat(flat)

    def _keys_of(self, input: Any, call: str) -> List[Tensor]:
        if not inputs.is_list(input):
            return [inputs.keys_of(input, call)]
        inputs.several(input)
        for one in input:
            if isinstance(one, Tensor) and one.dim() != 2:  # else a pair would be taken for two inputs
                raise ValueError(f"{call}: each input of a list is [n_bags, keys a bag], a pair (input, offsets), or "
                                 f"jagged; shape {tuple(one.shape)} was given. One input is given without a list")
        return [inputs.keys_of(one, call) for one in input]


class EmbeddingBagCollection(_Module):
    """Several EmbeddingBags that are trained in one step. Tables of one dim and optimizer settings lie in one instance;
    tables of several dims in several, which share their workers.

    `tables`: {name: (rows, dim)} or {name: Table} with `dim`. `features`: {feature: name of its table}, for tables that
    several features use in one step; None: each table has one, of its name. `mode`: as of EmbeddingBag. `stacked`:
    forward returns one tensor [features, n_bags, dim] in the order of `features`, for which all tables have one dim and
    all inputs one number of bags: no gradient is then copied. `max_keys`: the most keys of one forward, of all features
    together. `padding_idx`: of all tables, or {table: key}; `ids_freq_mapping`: {table: frequencies}. The other
    arguments are those of `Embedding`.
    """

    def __init__(self, tables: Mapping[str, Any], *, max_keys: int, dim: Optional[int] = None,
                 features: Optional[Mapping[str, str]] = None, mode: str = "sum",
                 include_last_offset: bool = False, stacked: bool = False, lr: float = 0.01,
                 optimizer: Union[None, str, Settings] = None, init: Any = Normal(0.0, 1.0),
                 lookahead: Optional[int] = None, device: Places = "cpu", cache_rows: int = 0,
                 cache_ratio: Optional[float] = None, policy: str = "counted", ids_freq_mapping: Any = None,
                 warmup_ratio: Optional[float] = None, padding_idx: Union[None, int, Mapping[str, int]] = None,
                 gate_on_stream: bool = False, workers: Union[int, Workers] = 0, saved: Sequence[str] = (),
                 processes: Optional[Processes] = None, machines: Optional[Machines] = None,
                 output_dtype: Optional[torch.dtype] = None, **options: Any):
        super().__init__()
        options = advice.refuse_options(options)
        advice.check_mode(mode)
        self.output_dtype = _output_type(output_dtype)
        self.mode, self.include_last_offset, self.stacked = mode, include_last_offset, stacked
        self.names = list(tables)
        self.features = {name: name for name in tables} if features is None else dict(features)
        self._check_features()
        self._default = "" if optimizer is not None else DEFAULT
        by_dim: Dict[int, Dict[str, Table]] = {}
        for name, table in tables.items():
            rows_dim = (table, dim) if isinstance(table, Table) else (Table(table[0], init), table[1])
            if rows_dim[1] is None:
                raise ValueError(f"tables: {name!r} is a frugal_embedding.Table, which has no dim; give `dim`")
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
        # Of each part, the numbers of its features, and of each the table in the part.
        self._features_of = [[at for at, table in enumerate(self.features.values()) if table in of]
                             for of in by_dim.values()]
        tables_of = [[list(of).index(table) for table in self.features.values() if table in of]
                     for of in by_dim.values()]
        rows = {name: table.rows for of in by_dim.values() for name, table in of.items()}
        padding = paddings_of(padding_idx, rows)
        advice.check_names("ids_freq_mapping", ids_freq_mapping, rows)
        cache = Cache(cache_rows, cache_ratio, policy, ids_freq_mapping, warmup_ratio)
        stores = [_Store(list(of.values()), tables_of[part], width, places,
                         cache.of_tables({name: rows[name] for name in of}),
                         [padding.get(name) for name in of], gate_on_stream, processes, machines,
                         dict(arguments, saved=saved, saved_part=part if saved else 0))
                  for part, (width, of) in enumerate(by_dim.items())]
        self._start(stores, [list(of) for of in by_dim.values()], 0, lr)

    def _check_features(self) -> None:
        unknown = [name for name in self.features.values() if name not in self.names]
        unused = [name for name in self.names if name not in self.features.values()]
        if unknown or unused:
            raise ValueError(f"features: {{feature: table}} with each of the tables {self.names} is wanted; "
                             + (f"{unknown} are no tables" if unknown else f"{unused} have no feature"))

    def embedding_bag_configs(self) -> List[Any]:
        """Of each table its name, num_embeddings, embedding_dim and feature_names, as models of TorchRec ask for."""
        made = {}
        for store, _, names in self._parts:
            for table, name in zip(store.tables, names):
                of = [feature for feature, used in self.features.items() if used == name]
                made[name] = SimpleNamespace(name=name, num_embeddings=table.rows, embedding_dim=store.dim,
                                             feature_names=of)
        return [made[name] for name in self.names]

    def announce(self, features: Any, *, read_only: bool = False,  # type: ignore[override]
                 owner: Any = None) -> None:
        """Announces the keys of a forward to come: `features` as forward will be given them; offsets are not read, but
        those between the features of a KeyedJaggedTensor."""
        given = self._given(features, "announce")
        self._announce_all(self._keys_of(given, "announce"), read_only or not self.trains, owner)

    def _given(self, features: Any, call: str) -> Union[inputs.Mapped, inputs.Keyed]:
        return (inputs.Keyed if inputs.is_keyed(features) else inputs.Mapped)(features, self.features, call)

    def _keys_of(self, given: Any, call: str) -> List[List[Tensor]]:
        """Of each part, the keys of each feature."""
        what = [f"{call}: {name}" for name in self.features]
        return [session.own_keys(given.keys(at), [what[one] for one in at])
                for (_, session, _), at in zip(self._parts, self._features_of)]

    def _micro_parts(self, batch: Any) -> List[Tuple[List[Tensor], Optional[Tensor], int]]:
        given = self._given(batch, "announce_micro_batches")
        given.read(self.include_last_offset, False)
        if any(given.weights(at, None) is not None for at in self._features_of):
            raise ValueError("per_sample_weights: a step of several micro-batches has none")
        keys = self._keys_of(given, "announce_micro_batches")
        return [(keys[part], *self._pooling(given.bounds(at, False, self._place, self._offsets, part)))
                for part, at in enumerate(self._features_of)]

    def _takes(self, batch: Any) -> bool:
        return isinstance(batch, Mapping) or inputs.is_keyed(batch)

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

    def forward(self, features: Any, per_sample_weights: Optional[Mapping[str, Tensor]] = None) -> Any:
        """`features`: {feature: input}, each an input [n_bags, keys a bag], a pair of an input [n] and offsets
        [n_bags], a jagged tensor, or a `Jagged`, as for EmbeddingBag. `per_sample_weights`: {feature: weights of its
        input's shape}; mode "sum" only. Returns {feature: [n_bags, dim] of `output_dtype`}.

        Of TorchRec's KeyedJaggedTensor, whose weights are used if it has some, it returns a `KeyedTensor`. Stacked, it
        returns [features, n_bags, dim] of both."""
        given = self._given(features, "forward")
        given.read(self.include_last_offset, per_sample_weights is not None)
        weights = [given.weights(at, per_sample_weights) for at in self._features_of]
        if any(of is not None for of in weights):
            inputs.check_weighted(self.mode)
        sizes = [given.sizes(at) for at in self._features_of]
        if self.stacked and len(set(sizes[0])) > 1:
            raise ValueError(f"stacked: one number of bags is wanted; the inputs have {sizes[0]}")
        # One step of all parts: none is looked up unless all are announced.
        if len(self._parts) > 1 and not any(session.has_micro_batch() for _, session, _ in self._parts):
            for _, session, _ in self._parts:
                session.refuse_pending("forward")
                session.close_step()
                if session.queue and session.queue[-1].owner == "forward":  # of one that has failed
                    session.take_back_last()
            if not any(session.queue for _, session, _ in self._parts):
                self._announce_all(self._keys_of(given, "forward"), not (torch.is_grad_enabled() and self.trains),
                                   "forward")
        rows: Dict[int, Tensor] = {}
        for part, ((store, _, _), at) in enumerate(zip(self._parts, self._features_of)):
            bounds = given.bounds(at, weights[part] is not None, self._place, self._offsets, part)
            pooled = self._pooled(part, given.keys(at), bounds, weights[part])
            if self.stacked:
                return pooled.view(len(at), sizes[0][0], store.dim)
            rows.update(zip(at, pooled.split(sizes[part])))
        made = {name: rows[at] for at, name in enumerate(self.features)}
        return inputs.KeyedTensor(list(made), list(made.values())) if given.keyed else made

    def extra_repr(self) -> str:
        return f"{len(self.names)} tables, mode={self.mode}, device={self._place}"


__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection"]
