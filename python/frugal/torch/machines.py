"""Several machines, over whose memories tables are dealt, as torchrun starts them."""
from __future__ import annotations

import os
from typing import Any, List, Optional

import torch
import torch.distributed as dist

from .. import machines


class Machines(machines.Machines):
    """This process as one of several machines: the argument `machines` of the modules, and of frugal.Frugal.

        torch.distributed.init_process_group("gloo")                  # or "nccl", for the rest of the model
        bag = frugal.torch.EmbeddingBag(rows, dim, max_keys=n, workers=1, machines=frugal.torch.Machines())
        ...                                      # the same steps in every process, each with batches of its own
        bag.save("monday")                       # all processes
        bag.close()                              # all processes

    Each process has a part of every table in its memory, whether it has a host of its own or not, and as many logical
    devices as it gives the module; they are numbered through all processes, by rank. The bits are those of one process
    with a list of as many devices. All processes make the same modules in the same order, and together they drain,
    save, make and load a state_dict, exchange. What is announced is trained; `cancel` does not take it back.

    `group`: a group of torch.distributed with gloo, whose ranks number the machines; None: one of its own, of all
    processes, which then all make. `deal`: "cyclic", "blocks", or the home of each row of all tables, uint8. `address`,
    `seconds`: see frugal.Machines. The group only tells the machines where they are, when a module is made; keys, rows
    and gradients go over connections between any two of them. Without torchrun there is one machine, and `machines`
    changes nothing.
    """

    def __init__(self, group: Optional[Any] = None, *, deal: Any = "cyclic", address: Optional[str] = None,
                 seconds: float = 300.0):
        if not (dist.is_available() and dist.is_gloo_available()):
            raise RuntimeError("Machines: torch.distributed with gloo is wanted, and this PyTorch was built without "
                               "it. Install another one, or use frugal.Machines with a `gather` of your own")
        rank, ranks = 0, 1
        if dist.is_initialized():
            if group is None:
                group = dist.new_group(backend="gloo")
            elif "gloo" not in dist.get_backend(group):
                raise ValueError(f"Machines: group: one with gloo is wanted; this one has {dist.get_backend(group)}. "
                                 "Make it by torch.distributed.new_group(backend='gloo'), or give none")
            rank, ranks = dist.get_rank(group), dist.get_world_size(group)
            if rank < 0:
                raise ValueError("Machines: group: this process is not in it")
        elif int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise RuntimeError(f"Machines: torch.distributed is not initialized, and WORLD_SIZE is "
                               f"{os.environ['WORLD_SIZE']}. First call torch.distributed.init_process_group('gloo')")
        self.group = group
        if isinstance(deal, torch.Tensor):
            deal = deal.cpu().contiguous().numpy()
        super().__init__(rank, ranks, self._of_all, deal=deal, address=address, seconds=seconds)

    def _of_all(self, given: Any) -> List[Any]:
        made: List[Any] = [None] * self.machines
        dist.all_gather_object(made, given, group=self.group)
        return made


__all__ = ["Machines"]
