"""Several processes that train the same tables, one for each device, as torchrun starts them."""
from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Dict, Optional, Sequence

import torch

from ..errors import BusyError, DeviceError, ProcessError, SettingsError
from ..instance import Frugal
from ..settings import Table

_opened: Dict[str, int] = {}  # how many instances this process has opened or joined, by the name of their run


class Processes:
    """This process as one of several on a machine: the argument `processes` of the modules.

        torch.distributed.init_process_group("gloo")
        bag = EmbeddingBag(rows, dim, max_keys=n, workers=1, processes=Processes())
        ...                                      # the same steps in every process, each with batches of its own
        torch.distributed.barrier()              # all have made their last backward
        if bag.is_saver:
            bag.save("monday")                   # or drain(), view(), state_dict()
        torch.distributed.barrier()              # no process trains any more, nor needs the tables
        bag.close()

    Rank 0 opens the instance, with as many logical devices as there are processes; the others join it. Rank r has
    device r. The bits are those of one process with a list of as many devices. Every process makes its modules with the
    same arguments, in the same order.

    load_state_dict of a state of another step opens the instances again; there rank 0 waits for the others.

    Rank 0 alone may drain, save, cancel, view and read rows, and make a state_dict; elsewhere these raise
    errors.ProcessError. It must wait before them, and before close, until all others have made their last backward or
    have called `finish`: torch.distributed.barrier() does that. Otherwise drain leaves out steps that some device has
    not updated, or raises BusyError, and close ends training elsewhere with Stopped.

    `rank`, `world_size`: None: RANK and WORLD_SIZE of the environment, which torchrun sets; 0 and 1 where they are not
    set. One process is as no `processes`. `name`: of the run, at most 48 bytes, by which the others find rank 0; None:
    made of the port and the run's id that torchrun has chosen. `seconds`: how long the others wait for rank 0 to open,
    and rank 0 for the others where it opens again.

    Attributes: `rank`, `world_size`, `name`, `seconds`, `local_rank` (LOCAL_RANK, or the rank).
    """

    def __init__(self, rank: Optional[int] = None, world_size: Optional[int] = None, *, name: Optional[str] = None,
                 seconds: float = 300.0):
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.world_size = int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank)) if rank is None else rank
        self.seconds = seconds
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"Processes: a rank of 0 to world_size - 1 is wanted; rank {self.rank} of "
                             f"{self.world_size} was given")
        local = int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))
        if world_size is None and local != self.world_size:
            raise ValueError(f"Processes: all processes must run on one machine; {local} of {self.world_size} do. "
                             "Write torchrun --nnodes 1")
        if name is None and self.world_size > 1:
            if "MASTER_PORT" not in os.environ:
                raise ValueError("Processes: a name is wanted that no other run has, because MASTER_PORT is not set. "
                                 "Write Processes(..., name='run 7'), or start the processes by torchrun")
            name = _name_of_run()
        if name is not None and not 1 <= len(name.encode()) <= 48:
            raise ValueError(f"Processes: a name of 1 to 48 bytes is wanted; {name!r} was given")
        self.name = name or ""

    def open(self, tables: Sequence[Table], dim: int, options: Dict[str, Any]) -> Frugal:
        """Opens the next instance of the run in rank 0, and joins it in others; `options` are those of Frugal.
        SettingsError, if rank 0 has opened it with other tables or other options that devices depend on."""
        number = _opened.get(self.name, 0)
        _opened[self.name] = number + 1
        name = f"{self.name} {number}"
        if self.rank == 0:
            return Frugal(tables, dim, **dict(options, devices=self.world_size, name=name))
        made = Frugal.join(name, self.seconds)
        wanted = {"rows": tuple(table.rows for table in tables), "dim": dim, "devices": self.world_size,
                  "max_keys": options["max_keys"], "lookahead": options["lookahead"],
                  "rows_as": options.get("rows_as", "fp32")}
        for what, value in wanted.items():
            found = getattr(made, what)
            if found != value:
                made.close()
                raise SettingsError(f"{what}: rank 0 has opened instance {number} of the run with {found}, and rank "
                                    f"{self.rank} asks for {value}. Make the same modules in the same order")
        return made

    def await_ranks(self, instance: Frugal) -> None:
        """In rank 0: waits until the others have attached their devices to the instance, which is about to be closed
        and opened again under the next name. Who came later would look for the old name in vain. ProcessError after
        `seconds`."""
        until = time.monotonic() + self.seconds
        for rank in range(1, self.world_size):
            while not _is_attached(instance, rank):
                if time.monotonic() > until:
                    raise ProcessError(f"rank {rank} has not joined {instance.name!r} within {self.seconds:g} s. Make "
                                       "the same modules in every process")
                time.sleep(0.005)


def _is_attached(instance: Frugal, device: int) -> bool:
    try:
        instance.preload(device, torch.empty(0, dtype=torch.int64, device="cpu"))
    except DeviceError:
        return False
    except BusyError:
        pass  # it trains
    return True


def _name_of_run() -> str:
    """The same in all processes of a run, and of no other run: not of one that torchrun starts again, either."""
    parts = [os.environ.get(part, "") for part in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                                   "TORCHELASTIC_RESTART_COUNT")]
    return "torchrun " + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


__all__ = ["Processes"]
