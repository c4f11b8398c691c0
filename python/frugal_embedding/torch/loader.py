"""A data loader that announces ahead: Frugal flushes the updates of a row before the step that reads it next, if it
knows that step early enough."""
from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from typing import Any, Callable, Generator, Iterable, Iterator, Mapping, Optional, Union

from ..settings import in_range
from .inputs import describe
from .modules import _Module


class Loader:
    """Iterates over `batches`, and announces each some steps before it is yielded.

        for batch in Loader(torch.utils.data.DataLoader(...), bag, lambda batch: batch["ids"]):
            loss = criterion(model(bag(batch["ids"], batch["offsets"])), batch["label"])

    `modules`: a module, or {module: keys} for several. `keys`: from a batch, what the module's announce is given: a
    tensor, and for a collection its features. The forward must be given the same keys. `ahead`: how many steps; None:
    the module's lookahead; none, if all tables have one device, on host cores, without a cache, and no file: there it
    would save nothing. `read_only`: the forwards will be without gradients, as in an evaluation. `thread`: a thread
    takes and announces batches, beside training; else this happens between the steps. `accumulate`: so many batches are
    one step, as micro-batches (announce_micro_batches of the modules, which `keys` then serves); the last step may have
    fewer. Call step() of an `Optimizer` after each so many.

    A batch that was yielded and has had no forward when the next one is taken is a step without gradients; of
    micro-batches the last of a step must have its forward before step(). If the loop is left early, what is announced
    is taken back; with several devices it stays announced, until `cancel` of the module. With several processes each
    has a Loader, over batches of its own, and all have as many; one that has fewer calls `finish` of the module when
    they have ended.
    """

    def __init__(self, batches: Iterable[Any], modules: Union[_Module, Mapping[_Module, Callable[[Any], Any]]],
                 keys: Optional[Callable[[Any], Any]] = None, *, ahead: Optional[int] = None, read_only: bool = False,
                 thread: bool = False, accumulate: int = 1):
        if isinstance(modules, _Module):
            modules = {modules: keys or _itself}
        elif not isinstance(modules, Mapping) or not all(isinstance(module, _Module) for module in modules):
            raise TypeError("Loader: a module of frugal_embedding.torch, or {module: keys} for several, is wanted; "
                            f"{describe(modules)} was given. Give the tables of a model, as model.bag")
        elif keys is not None:
            raise TypeError("Loader: with {module: keys} each module has its keys there; `keys` was given, too")
        self.batches, self.modules, self.read_only, self.thread = batches, dict(modules), read_only, thread
        self.accumulate = in_range(accumulate, 32, "accumulate")
        if accumulate < 1 or (accumulate > 1 and read_only):
            raise ValueError(f"accumulate: 1 or more is wanted, and 1 with read_only; {accumulate} was given")
        most = min(f.lookahead for module in self.modules for f in module.instances)
        if ahead is not None and not 0 <= in_range(ahead, 32, "ahead") <= most:
            raise ValueError(f"ahead: 0 to the modules' lookahead, {most}, is wanted; {ahead} was given. Make the "
                             "modules with lookahead=...")
        self.ahead = most if ahead is None else ahead
        # Without announcements a forward announces its own keys, which costs less than to compare them.
        self.announces = ahead is not None or thread or accumulate > 1 or \
            not all(store.announces_in_vain for module in self.modules for store, _, _ in module._parts)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def _sessions(self) -> list:
        return [session for module in self.modules for _, session, _ in module._parts]

    def _keys_of(self, batch: Any, module: _Module, keys: Callable[[Any], Any]) -> Any:
        if keys is _itself and not module._takes(batch):
            raise TypeError(f"Loader: no key function was given, and a batch is {describe(batch)}, which {module} does "
                            "not take as it is. Say where the keys are: Loader(batches, module, lambda batch: "
                            "batch[0])")
        return keys(batch)

    def _announce(self, batches: list, owner: Any) -> None:
        """The batches of one step."""
        for module, keys in self.modules.items():
            given = [self._keys_of(batch, module, keys) for batch in batches]
            if self.accumulate > 1:
                module.announce_micro_batches(given, owner=owner)
            else:
                module.announce(given[0], read_only=self.read_only, owner=owner)

    def _steps(self) -> Iterator[list]:
        """The batches of each step."""
        batches = iter(self.batches)
        while True:
            of_step = list(itertools.islice(batches, self.accumulate))
            if not of_step:
                return
            yield of_step

    def __iter__(self) -> Iterator[Any]:
        return self._announced() if self.announces else self._unannounced()

    def _announced(self) -> Iterator[Any]:
        owner = object()
        yielded = self._in_thread(owner) if self.thread else self._between_steps(owner)
        sessions = self._sessions()
        try:
            for of_step in yielded:
                for batch in of_step:
                    before = [session.following(owner) for session in sessions]
                    yield batch
                    for session, following in zip(sessions, before):
                        if following is not None and session.following(owner) == following:
                            session.skip()  # it has had no forward
        finally:
            yielded.close()
            self._take_back(owner)

    def _unannounced(self) -> Iterator[Any]:
        """The batches. One that has had no forward is a step, as where they are announced: Adam counts steps."""
        sessions = self._sessions()
        first = True
        for batch in self.batches:
            if first:
                first = False
                for module, keys in self.modules.items():
                    self._keys_of(batch, module, keys)
            before = {session: session.step for session in sessions}
            yield batch
            if any(session.step == step for session, step in before.items()):
                self._skip(batch, before)

    def _skip(self, batch: Any, before: dict) -> None:
        """Of each module whose sessions are where they were `before`."""
        for module, keys in self.modules.items():
            sessions = [session for _, session, _ in module._parts]
            if all(session.step == before[session] for session in sessions):
                module.announce(keys(batch), read_only=self.read_only, owner=self)
                for session in sessions:
                    session.skip()

    def _between_steps(self, owner: Any) -> Generator[list, None, None]:
        waiting: deque = deque()
        steps = self._steps()
        sessions = self._sessions()
        more = True
        while True:
            while more and len(waiting) <= self.ahead and all(session.may_announce() for session in sessions):
                of_step = next(steps, None)
                if of_step is None:
                    more = False
                    break
                self._announce(of_step, owner)
                waiting.append(of_step)
            if not waiting:
                if not more:
                    return
                for session in sessions:  # the step before has had no backward
                    session.refuse_pending("Loader")
                    session.close_step()
                of_step = next(steps, None)
                if of_step is None:
                    return
                self._announce(of_step, owner)
                waiting.append(of_step)
            yield waiting.popleft()

    def _in_thread(self, owner: Any) -> Generator[list, None, None]:
        ready: queue.Queue = queue.Queue(maxsize=self.ahead + 1)
        closing = threading.Event()
        sessions = self._sessions()

        def put(item: Any) -> None:
            while not closing.is_set():
                try:
                    return ready.put(item, timeout=0.05)
                except queue.Full:
                    pass

        def run() -> None:
            try:
                for of_step in self._steps():
                    while not closing.is_set() and not all(session.may_announce() for session in sessions):
                        sessions[0].instance.wait_for_change(0.05)
                    if closing.is_set():
                        return
                    self._announce(of_step, owner)
                    put((of_step, None))
                put((None, None))
            except BaseException as error:  # raised again in the loop
                put((None, error))

        for session in sessions:
            session.ahead += 1
            session.given_up = closing
        thread = threading.Thread(target=run, name="frugal loader", daemon=True)
        thread.start()
        try:
            while True:
                try:
                    of_step, error = ready.get(timeout=0.05)
                except queue.Empty:
                    if not all(session.may_announce() for session in sessions):
                        for session in sessions:  # the thread waits for a step that has had no backward
                            session.refuse_pending("Loader")
                            session.close_step()
                    continue
                if error is not None:
                    raise error
                if of_step is None:
                    return
                yield of_step
        finally:
            closing.set()
            thread.join()
            for session in sessions:
                session.ahead -= 1
                session.given_up = None

    def _take_back(self, owner: Any) -> None:
        for session in self._sessions():
            if session.instance.is_closed:
                continue  # or a forked child ends, in which it never was open
            if any(batch.owner is owner for batch in session.queue) and session.instance.devices == 1:
                session.cancel()


def _itself(batch: Any) -> Any:
    return batch


__all__ = ["Loader"]
