"""The learning rate of modules of frugal.torch as an optimizer of PyTorch, so that schedulers can drive it."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

import torch

from .modules import _Module


class Optimizer(torch.optim.Optimizer):
    """One parameter group for each module. Its "lr" is the learning rate that the module's next backward uses.

    The rows are updated in the backward, by the optimizer that the module was made with. `step` only ends a step whose
    forward had no backward. Call it after the backward, and a scheduler's step after it, as with any optimizer.

    `modules`: a module of frugal.torch, or several. `lr`: the learning rate of all; None: each keeps its own.
    """

    def __init__(self, modules: Union[_Module, Sequence[_Module]], lr: Optional[float] = None):
        self._modules = [modules] if isinstance(modules, _Module) else list(modules)
        groups = [{"params": [module._hidden["anchor"]], "lr": module.lr if lr is None else lr}
                  for module in self._modules]
        super().__init__(groups, {"lr": 0.0})
        self._bind()

    def _bind(self) -> None:
        for module, group in zip(self._modules, self.param_groups):
            for store, _, _ in module._parts:
                for session in store.sessions:  # a step has one learning rate, on all devices
                    session.group = group

    def __setstate__(self, state: Any) -> None:  # load_state_dict ends here, with new groups
        super().__setstate__(state)
        self._bind()

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Ends the step under way of each module. Returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for module in self._modules:
            for _, session, _ in module._parts:
                session.close_step()
        return loss


__all__ = ["Optimizer"]
