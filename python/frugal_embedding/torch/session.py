"""The steps of one logical device, as PyTorch drives them: which batch is announced for which step, and which step has
been looked up and waits for its gradients. Modules and operators act through a session; it is not for users.

One forward and its backward are one step. A forward without gradients (torch.no_grad) is a step of its own, read-only
and complete when the forward returns. The backward commits the step; with an `Optimizer` it leaves the gradients in
`gradient`, and Optimizer.step commits. A step that was announced as micro-batches has a forward and a backward for each
(micro_batches.py).

compiled.cc takes the usual step: no step is under way, and the batch is the next that is announced, or nothing is. It
reads and writes the attributes here under the GIL, as `begin`, `looked_up` and `update` do, and calls these for the
rest.
"""
from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

import torch

from .._library import c
from ..instance import Frugal
from . import compiled
from .micro_batches import MicroBatches
from .padding import bounds_without, without_padding

KEY_TYPES = {torch.int64: "int64", torch.int32: "int32"}
FLOAT_TYPES = {torch.float32: c.FRUGAL_FP32, torch.bfloat16: c.FRUGAL_BF16, torch.float16: c.FRUGAL_FP16}
POOLING = {None: c.FRUGAL_POOL_SUM, "sum": c.FRUGAL_POOL_SUM, "mean": c.FRUGAL_POOL_MEAN}

_sessions: "weakref.WeakValueDictionary[int, Session]" = weakref.WeakValueDictionary()
_next_session = 0
_lock = threading.Lock()


class _Batch:
    """Keys of one step: keys[i] of table tables[i], and again of the first for each further micro-batch. `owner`: the
    loader that has announced them; the session, if a forward has. `micro`: None, if there is one forward for all.
    `sent`: those of the keys that the step has; `mask`: bool [n], which positions these are; None: all."""

    __slots__ = ("step", "keys", "read_only", "announced", "begun", "owner", "versions", "micro", "sent", "mask")

    def __init__(self, step: int, keys: Sequence[torch.Tensor], read_only: bool, owner: Any,
                 micro: Optional[MicroBatches] = None):
        self.step, self.keys, self.read_only, self.announced, self.owner = step, keys, read_only, False, owner
        self.begun = False  # the call that announces it was made, and may have been interrupted behind it
        self.versions = [version_of(part) for part in keys]
        self.micro = micro
        self.sent: Sequence[torch.Tensor] = keys
        self.mask: Optional[torch.Tensor] = None


def version_of(tensor: torch.Tensor) -> Optional[int]:
    return None if tensor.is_inference() else tensor._version


def that_stays(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, or a copy, if others may write it without a trace: memory that is not PyTorch's, as NumPy's."""
    if tensor.is_cuda or not (tensor.is_inference() or not tensor.untyped_storage().resizable()):
        return tensor
    return tensor.clone()


def whole_keys(keys: torch.Tensor, what: str) -> torch.Tensor:
    """`keys`, int64 or int32, without gaps: those that have some are copied, as the library copies keys anyway."""
    if not isinstance(keys, torch.Tensor):
        raise TypeError(f"{what}: a tensor of keys is wanted; a {type(keys).__name__} was given")
    if keys.dtype not in KEY_TYPES:
        raise TypeError(f"{what}: keys of int64 or int32 are wanted; {keys.dtype} of shape {tuple(keys.shape)} was "
                        "given. Convert them where they are made: keys.long()")
    keys = keys.contiguous()
    return keys.clone() if keys.data_ptr() % keys.element_size() else keys


def host_keys(keys: torch.Tensor, what: str) -> torch.Tensor:
    """`keys` as the library reads them, in host memory. On a GPU they are copied, which waits for the GPU."""
    keys = whole_keys(keys, what)
    return keys.cpu() if keys.is_cuda else keys


def _are_the_same(announced: torch.Tensor, version: Optional[int], given: torch.Tensor) -> bool:
    if announced.numel() != given.numel() or announced.dtype != given.dtype:
        return False
    if version_of(announced) != version:
        return False  # changed in place since the library has copied it
    if announced.data_ptr() == given.data_ptr():
        return True
    # They are compared where the given ones lie: from a GPU one answer comes back, for which the forward waits.
    return torch.equal(announced.to(given.device).view(-1), given.reshape(-1))


def new_floats(shape: Tuple[int, ...], place: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory that the library writes: float32, whatever PyTorch's default is, or of another one of FLOAT_TYPES."""
    return torch.empty(shape, dtype=dtype, device=place)


def _stride_of(grads: torch.Tensor) -> int:
    """Elements from gradient to gradient; of one, PyTorch may say anything."""
    return grads.stride(0) if grads.shape[0] > 1 else 0


class Session:
    """Of `instance`, the logical device `device`, which is attached; its tensors are on `place`."""

    def __init__(self, instance: Frugal, device: int, place: torch.device, tables: Sequence[int],
                 stream: Optional["torch.cuda.Stream"], siblings: list, padding: Sequence[Optional[int]] = ()):
        global _next_session
        self.instance, self.device, self.place, self.stream = instance, device, place, stream
        self.tables = tuple(tables)
        self.step = instance.first_step  # the next to look up
        self.tail = self.step  # the next to announce, or to put off
        self.open: Optional[int] = None  # the step that waits for its gradients
        self.queue: deque = deque()
        self.ahead = 0  # loader threads that announce
        self.given_up: Optional[threading.Event] = None  # when set, such a thread waits for no other process any more
        self.group: dict = {"lr": 0.0}  # whose "lr" is the learning rate; a group of Optimizer, if there is one
        self.first_update: Optional[Callable[[], None]] = None  # called by the first backward: it may raise
        self.optimizer: Any = None  # a weak reference to the frugal_embedding.torch.Optimizer whose step commits
        # Of the step under way, until the optimizer commits it: [n, dim], or [n_bags, dim] by bag, of one of
        # FLOAT_TYPES; and what the rows' gradients are multiplied by.
        self.gradient: Optional[torch.Tensor] = None
        self.by_bag, self.scale = False, 1.0
        self.kept: Any = None  # what the table reads then: offsets, weights, and the version of the weights
        self.micro: Optional[MicroBatches] = None  # of the step under way
        # Of each of `tables`, the key that no step has; (): all have all. What it is looked up as; None: zeros.
        self.padding = tuple(padding) if any(key is not None for key in padding) else ()
        self.fill: Optional[torch.Tensor] = None
        self.mask: Optional[torch.Tensor] = None  # of the step under way: which positions it has
        self.direct = not instance._shared  # may compiled.cc take steps?
        self.siblings = siblings  # of all devices of the instance
        siblings.append(weakref.ref(self))
        with _lock:
            self.id = _next_session
            _next_session += 1
            _sessions[self.id] = self
            if compiled.module is not None:
                compiled.module.add(self)

    # Announcing

    def own_keys(self, keys: Sequence[torch.Tensor], what: Sequence[str]) -> list:
        """The keys of each table as the library reads them: where they are, if all are on the GPU of this device; else
        in host memory. Several processes and machines share keys there."""
        there = not self.instance._shared and all(
            isinstance(part, torch.Tensor) and part.is_cuda and part.device == self.place for part in keys)
        return [(whole_keys if there else host_keys)(part, name) for part, name in zip(keys, what)]

    def announce(self, keys: Sequence[torch.Tensor], read_only: bool = False, owner: Any = None,
                 micro: Optional[MicroBatches] = None) -> None:
        """Announces keys[i] of each table for the next step that has no batch yet; of each micro-batch in turn, if
        there are several. Waits until this is legal."""
        self._announce_those_put_off(wait=True)
        if self.queue:  # where an announcement was interrupted, its batch is there already
            self.tail = max(self.tail, self.queue[-1].step + 1)
        batch = self._batch(self.tail, [that_stays(part) for part in keys], read_only, owner, micro)
        if self.ahead:  # in a thread, which no Ctrl-C reaches; the trainer shall not see a batch to announce
            self._announce(batch)
            self.tail = batch.step + 1
            self.queue.append(batch)
            return
        self.queue.append(batch)
        self.tail = batch.step + 1
        try:
            self._announce(batch)
        except Exception:
            self.tail = batch.step
            self.queue.remove(batch)
            raise

    def _batch(self, step: int, keys: Sequence[torch.Tensor], read_only: bool, owner: Any,
               micro: Optional[MicroBatches] = None) -> _Batch:
        batch = _Batch(step, keys, read_only, owner, micro)
        if self.padding:
            batch.sent, batch.mask = without_padding(keys, self.padding, self.place)
        return batch

    def take_back_last(self) -> None:
        """Takes back the batch that was announced last. With several devices it stays."""
        if self.instance.devices == 1 and not self.ahead:
            batch = self.queue.pop()
            self.tail = batch.step
            if batch.step < self.instance._devices[self.device].announced:
                self.instance.cancel(batch.step)

    def may_announce(self) -> bool:
        """Would `announce` not wait?"""
        return self.instance.may_announce(self.tail)

    def _announce(self, batch: _Batch) -> None:
        if batch.begun and batch.step < self.instance.next_steps(self.device)["announce"]:
            batch.announced = True  # by the call that was interrupted
            return
        batch.begun = True
        segments = [(table, keys.data_ptr(), keys.numel(), KEY_TYPES[keys.dtype], keys)
                    for table, keys in zip(itertools.cycle(self.tables), batch.sent)]
        stream = None
        if batch.sent and batch.sent[0].is_cuda:  # as own_keys left them: all are
            current = torch.cuda.current_stream(self.place)
            for keys in batch.sent:
                keys.record_stream(current)  # on which the library orders its reading
            stream = current.cuda_stream
        self.instance.announce_addresses(self.device, batch.step, segments, batch.read_only, self.given_up, stream)
        batch.announced = True

    def _announce_those_put_off(self, wait: bool) -> None:
        for batch in list(self.queue):  # a copy: the other thread takes from the queue
            if batch.announced:
                continue
            if not wait and not self.instance.may_announce(batch.step):
                break
            self._announce(batch)

    # A step

    def begin(self, keys: Sequence[torch.Tensor], train: bool) -> _Batch:
        """Takes the announced batch for these keys, or announces it now. Its step is to be looked up; `put_back`, if
        that fails."""
        self.refuse_pending("forward")
        self.close_step()
        if not self.ahead:
            self._recover_announced()
        head = self.queue[0] if self.queue else None
        if head is not None and head.owner is self and self.instance.devices == 1 and not self.ahead:
            self._forget_failed()
            head = self.queue[0] if self.queue else None
        if head is not None and (train or head.read_only):
            self.check_keys(head, 0, keys)
            if train and head.read_only:
                raise RuntimeError(f"forward: step {head.step} was announced read-only, and this forward is to be "
                                   "trained. Announce with read_only=False, or use torch.no_grad()")
            if not head.announced:
                self._announce_those_put_off(wait=True)
            self.queue.popleft()
            self.mask = head.mask
            return head
        batch = self._batch(self.step, self.own_keys(keys, ["forward"] * len(keys)), not train, self)
        self.mask = batch.mask
        if head is None:
            self.queue.append(batch)  # so that it is found there, if Ctrl-C comes behind the call
            self.tail = batch.step + 1
            try:
                self._announce(batch)
            except Exception:
                self.queue.clear()
                self.tail = batch.step
                raise
            self.queue.popleft()
            return batch
        self._put_off()
        try:
            self._announce(batch)
        except BaseException:
            for later in self.queue:
                later.step -= 1
            raise
        self.tail += 1
        return batch

    def has_micro_batch(self) -> bool:
        """Is a step under way of which a micro-batch has had no forward yet?"""
        self._recover()
        return self.open is not None and self.micro is not None and self.micro.next < self.micro.n

    def check_keys(self, batch: _Batch, first: int, keys: Sequence[torch.Tensor]) -> None:
        """RuntimeError, unless `keys` are those that were announced, from keys[first] on."""
        announced, versions = batch.keys[first:], batch.versions[first:]
        if batch.micro is not None:
            announced, versions = announced[:len(keys)], versions[:len(keys)]
        if not (len(announced) == len(keys) and all(map(_are_the_same, announced, versions, keys))):
            raise RuntimeError(
                f"forward: step {batch.step} was announced with other keys ({sum(k.numel() for k in announced)} of "
                f"them; {sum(k.numel() for k in keys)} were given). Give each forward the batch that the loader "
                "yields, in order and unchanged; cancel() of the module takes back all that is announced")

    @contextmanager
    def stream_after(self, tensors: Sequence[Optional[torch.Tensor]]) -> Iterator[None]:
        """With a stream of its own, the device's work comes after the current stream's and before what that is given
        next, and `tensors` live long enough."""
        current = None if self.stream is None else torch.cuda.current_stream(self.place)
        if self.stream is None or current is None or current.cuda_stream == self.stream.cuda_stream:
            yield
            return
        self.stream.wait_stream(current)
        for tensor in tensors:
            if tensor is not None and tensor.is_cuda:
                tensor.record_stream(self.stream)
        yield
        current.wait_stream(self.stream)

    def gather(self, step: int, offsets: Optional[torch.Tensor], weights: Optional[torch.Tensor], pooling: int,
               rows: torch.Tensor) -> None:
        """Looks up `step` into `rows`, of one of FLOAT_TYPES: by position, or pooled."""
        dtype = FLOAT_TYPES[rows.dtype]
        mask, whole = self.mask, rows
        if mask is not None and offsets is None:
            rows = new_floats((int(mask.sum()), self.instance.dim), self.place, rows.dtype)
        elif mask is not None and offsets is not None:
            offsets, weights = bounds_without(offsets, mask), None if weights is None else weights[mask]
        with self.stream_after([offsets, weights, rows]):
            if offsets is None:
                self.instance.lookup_address(self.device, step, rows.data_ptr(), dtype=dtype)
            else:
                self.instance.lookup_bags_addresses(self.device, step, offsets.numel() - 1, offsets.data_ptr(),
                                                    None if weights is None else weights.data_ptr(), pooling,
                                                    rows.data_ptr(), (offsets, weights), dtype=dtype)
        if rows is not whole:
            whole.zero_() if self.fill is None else whole.copy_(self.fill.expand_as(whole))
            whole[mask] = rows

    def _of_table(self, grads: torch.Tensor) -> torch.Tensor:
        """Gradients of the step under way, without those of positions that it does not have."""
        return grads if self.mask is None or self.by_bag else grads[self.mask]

    def start_micro_batches(self, batch: _Batch, dtype: torch.dtype = torch.float32) -> None:
        """Looks up the rows of all micro-batches of `batch`, whose step is the next, into `dtype`."""
        micro = batch.micro
        assert micro is not None
        self.mask = batch.mask
        rows = new_floats((micro.first[-1], self.instance.dim), self.place, dtype)
        self.gather(batch.step, micro.all_bounds, None, micro.pooling, rows)
        self.looked_up(batch.step, True)
        micro.rows, micro.batch, self.micro = rows, batch, micro

    def put_back(self, batch: _Batch) -> None:
        """The lookup of a batch that `begin` took has failed: its step is still the next one."""
        self.queue.appendleft(batch)

    def has_failed(self, step: int, keys: Sequence[torch.Tensor]) -> None:
        """A forward in compiled.cc has announced `step`, the next, with `keys`, and could not look it up."""
        batch = _Batch(step, keys, False, self)
        batch.announced = batch.begun = True
        self.queue.append(batch)

    def _forget_failed(self) -> None:
        """Takes back a batch that a forward has announced and could not look up."""
        self.instance.cancel(self.step)
        self.queue.popleft()
        self.tail -= 1
        for batch in self.queue:
            batch.step -= 1
            batch.announced = batch.begun = False

    def _put_off(self) -> None:
        """Makes place for a batch before those that are announced for training."""
        if self.instance.devices > 1 or self.ahead:
            raise RuntimeError(
                f"forward without gradients: training batches are announced from step {self.step} on, and with several "
                "devices, or a loader that announces in a thread, this one cannot be put before them. Evaluate "
                "between loaders, or announce it with read_only=True")
        self.instance.cancel(self.step)
        for batch in self.queue:
            batch.step += 1
            batch.announced = batch.begun = False

    def token(self, step: int, micro_batch: int = 0) -> torch.Tensor:
        """What the backward of a forward shows, so that an update meets its own lookup."""
        return torch.tensor((step, micro_batch), dtype=torch.int64, device="cpu")

    def looked_up(self, step: int, train: bool) -> None:
        """`step` has been looked up. Without training it ends here."""
        self.step = step + 1
        if train:
            self.open = step
        else:
            self.instance.update_address(self.device, step, None, 0.0)
            self._announce_those_put_off(wait=False)

    def close_step(self) -> None:
        """Ends the step under way: without gradients, or with those that are there."""
        self._recover()
        if self.gradient is not None and self.open is not None and self.commits_itself():
            return self.commit()  # of micro-batches; or the optimizer that was waited for is gone
        self.drop_step()

    def drop_step(self) -> None:
        """Ends the step under way without gradients."""
        self._recover()
        self._forget_gradient()
        if self.open is not None:
            step, self.open = self.open, None
            self.instance.update_address(self.device, step, None, 0.0)

    def _forget_gradient(self) -> None:
        self.gradient, self.kept, self.micro, self.scale = None, None, None, 1.0

    def refuse_pending(self, call: str) -> None:
        """RuntimeError, if `call` would lose gradients that wait for an Optimizer."""
        self._recover()
        if self.gradient is not None and self.open is not None and not self.commits_itself():
            raise RuntimeError(f"{call}: the gradients of step {self.open} wait for step() of the "
                               "frugal_embedding.torch.Optimizer. Call it first, or zero_grad() to drop them")

    def _check_weights(self) -> None:
        weights, version = (None, None) if self.kept is None else self.kept[1:]
        if weights is not None and version_of(weights) != version:
            raise RuntimeError(f"frugal_embedding.torch.Optimizer: the per_sample_weights of step {self.open} were "
                               "changed in place after the backward, and the table reads them now. zero_grad() "
                               "drops the step")

    def commit(self, scale: float = 1.0) -> None:
        """Gives the table the gradients of the step under way, times `scale`. Without any, ends it."""
        if self.open is None or self.gradient is None:
            return self.drop_step()
        self._check_weights()
        grads = self._of_table(self.gradient)
        with self.stream_after([grads]):  # none has an address where there are no keys: the step ends without any
            self.instance.update_address(self.device, self.open, grads.data_ptr() or None, float(self.group["lr"]),
                                         self.by_bag, self.scale * scale, grads.shape[0], _stride_of(grads),
                                         FLOAT_TYPES[grads.dtype])
        self.open = None
        self._forget_gradient()

    def check_complete(self) -> None:
        if self.has_micro_batch():
            micro = self.micro
            assert micro is not None
            raise RuntimeError(f"frugal_embedding.torch.Optimizer: step {self.open} was announced as {micro.n} "
                               f"micro-batches, of which {micro.next} have had a forward. Call step() after the "
                               "last one's backward")

    def sum_squares(self) -> float:
        """Of the gradients that wait for commit, summed by row."""
        grads = self.gradient
        if grads is None or self.open is None:
            return 0.0
        self._check_weights()
        grads = self._of_table(grads)
        with self.stream_after([grads]):
            return self.instance.sum_squares_address(self.device, self.open, grads.data_ptr(), self.by_bag, self.scale,
                                                     grads.shape[0], _stride_of(grads), FLOAT_TYPES[grads.dtype])

    def _recover(self) -> None:
        """After a KeyboardInterrupt the library may be a call ahead of what is noted here; what it says is true."""
        d = self.instance._devices[self.device]
        looked_up = max(d.looked_up, d.updated)
        if looked_up == self.step and d.updated == (self.step if self.open is None else self.open):
            return
        self.instance.next_steps(self.device)
        self._forget_gradient()
        self.step = max(d.looked_up, d.updated)
        self.open = d.updated if d.updated < self.step else None
        while self.queue and self.queue[0].step < self.step:
            self.queue.popleft()
        if not self.ahead:
            self.tail = self.queue[-1].step + 1 if self.queue else self.step

    def _recover_announced(self) -> None:
        """As _recover, for what is announced, while no thread announces."""
        announced = self.instance._devices[self.device].announced
        for batch in self.queue:
            if batch.step >= announced:  # an interrupted cancel has taken it back
                batch.announced = batch.begun = False
        lost = announced > self.step + len(self.queue) or bool(self.queue) and self.queue[0].step != self.step
        if lost and self.instance.devices == 1:  # taken from the queue, and never looked up
            self.instance.cancel(self.step)
            for at, batch in enumerate(self.queue):
                batch.step, batch.announced, batch.begun = self.step + at, False, False
            self.tail = self.step + len(self.queue)

    def commits_itself(self) -> bool:
        """Does the backward commit? Else step() of an Optimizer does."""
        return self.optimizer is None or self.optimizer() is None

    def update(self, step: int, micro_batch: int, grads: torch.Tensor, offsets: Optional[torch.Tensor] = None,
               weights: Optional[torch.Tensor] = None) -> None:
        """The gradients of `step`: [n, dim] of one of FLOAT_TYPES, or with `offsets` [n_bags, dim] by bag. All must
        stay until the commit."""
        if self.open != step or (self.gradient is not None if self.micro is None else
                                 self.micro.has_backward(micro_batch)):
            raise RuntimeError(
                f"backward: step {step} is closed already"
                f"{'' if self.open in (None, step) else f', and step {self.open} is under way'}. A forward has one "
                "backward, which comes before the next forward of the module and before Optimizer.step(). If a step "
                "uses a table twice, give one forward a list of its inputs: rows_a, rows_b = bag([a, b]); a collection "
                "has features={feature: table}")
        self._check_first()
        self.by_bag = offsets is not None if self.micro is None else self.micro.bounds is not None
        if self.micro is None:
            self.kept = offsets, weights, None if weights is None else version_of(weights)
            self.gradient, self.scale = grads, 1.0
        else:
            self.gradient = self.micro.take_gradients(micro_batch, grads)
            if not self.micro.is_complete():
                return
        if self.commits_itself():
            try:
                self.commit()
            finally:
                self._forget_gradient()

    def _check_first(self) -> None:
        """The first backward asks the module. If it refuses, the step ends without gradients: the table is
        unchanged."""
        if self.first_update is None:
            return
        try:
            self.first_update()
        except RuntimeError:
            self.drop_step()
            raise
        self.first_update = None

    # Between steps

    def following(self, owner: Any) -> Any:
        """What the next forward takes, if `owner` has announced it: its batch, and the number of its micro-batch."""
        if self.has_micro_batch():
            assert self.micro is not None
            return (self.micro.batch, self.micro.next) if self.micro.batch.owner is owner else None
        return (self.queue[0], 0) if self.queue and self.queue[0].owner is owner else None

    def skip(self) -> None:
        """What the next forward would take, which is announced, is not trained."""
        if not self.has_micro_batch():
            self.refuse_pending("skip")
            self.close_step()
            batch = self.queue[0]
            if not batch.announced:
                self._announce_those_put_off(wait=True)
            self.queue.popleft()
            if batch.micro is None:
                self.instance.lookup_address(self.device, batch.step, 0)
                return self.looked_up(batch.step, False)
            self.start_micro_batches(batch)
        micro = self.micro
        assert micro is not None
        micro.skip()
        if micro.is_complete() and self.commits_itself():
            self.commit()

    def cancel(self) -> None:
        """Takes back all announced steps that no device has looked up, on all devices of the instance. ProcessError in
        a process that has joined, and ArgumentError with several machines, if anything is announced."""
        all_of = [session for session in (ref() for ref in self.siblings) if session is not None]
        if any(session.ahead for session in all_of):
            raise RuntimeError("cancel: a loader announces in a thread; close it first")
        for session in all_of:
            session._recover()
        step = max(session.step for session in all_of)
        for session in all_of:
            if session.step < step:
                raise RuntimeError(f"cancel: device {session.device} has not looked up step {session.step}, and "
                                   "another device has; give it its forward first")
        if any(max(session.tail, session.instance._devices[session.device].announced) > step for session in all_of):
            self.instance.cancel(step)
        for session in all_of:
            session.queue.clear()
            session.tail = step

    def drain(self) -> None:
        """Ends the steps under way and drains: the table is whole, and what is announced stays."""
        for session in [ref() for ref in self.siblings]:
            if session is not None:
                session.refuse_pending("drain")
                session.close_step()
        self.instance.drain()


def session_of(number: int) -> Session:
    session = _sessions.get(number)
    if session is None:
        raise RuntimeError(f"frugal: session {number} is gone: its module was deleted")
    return session


__all__ = ["POOLING", "Session", "session_of", "that_stays", "whole_keys"]
