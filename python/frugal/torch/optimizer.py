"""The learning rate of modules of frugal.torch as an optimizer of PyTorch, so that schedulers can drive it."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Optional, Sequence, Union

import torch

from .advice import SCALING
from .modules import _Module


class _Rows(torch.Tensor):
    """Stands for a module's rows in a parameter group. Their gradients are never here, so what reads them (a
    GradScaler, clipping by norm) would do nothing, in silence."""

    @property
    def grad(self) -> Any:  # type: ignore[override]
        raise RuntimeError("frugal.torch.Optimizer: the rows of a table have no .grad, because the backward has given "
                           "their gradients to the table: no GradScaler can unscale them here, and nothing can clip "
                           f"them. {SCALING} To clip the gradient of each row, make the module with "
                           "optimizer=frugal.Optimizer(..., clip_norm=...)")


class Optimizer(torch.optim.Optimizer):
    """One parameter group for each module. Its "lr" is the learning rate that the module's next backward uses.

    The rows are updated in the backward, by the optimizer that the module was made with. `step` only ends a step whose
    forward had no backward. Call it after the backward, and a scheduler's step after it, as with any optimizer.
    GradScaler's `step` and `unscale_` refuse it: call its own `step`, and set `gradient_scale` of the module.

    `modules`: a module of frugal.torch, or several. `lr`: the learning rate of all; None: each keeps its own.
    """

    def __init__(self, modules: Union[_Module, Sequence[_Module]], lr: Optional[float] = None):
        self._modules = [modules] if isinstance(modules, torch.nn.Module) else list(modules)
        for module in self._modules:
            if not isinstance(module, _Module):
                raise TypeError("frugal.torch.Optimizer: modules of frugal.torch are wanted; a "
                                f"{type(module).__name__} was given. Give the tables of a model, as model.bag; another "
                                "optimizer trains the rest")
        self._complete = False
        groups = [{"params": [module._hidden.setdefault("rows", torch.zeros(0, device="cpu").as_subclass(_Rows))],
                   "lr": module.lr if lr is None else lr} for module in self._modules]
        super().__init__(groups, {"lr": 0.0})
        self._complete = True
        self._bind()

    def _bind(self) -> None:
        for module, group in zip(self._modules, self.param_groups):
            for store, _, _ in module._parts:
                for session in store.sessions:  # a step has one learning rate, on all devices
                    session.group, session.optimizer = group, weakref.ref(self)

    def __setstate__(self, state: Any) -> None:  # load_state_dict ends here, with new groups
        super().__setstate__(state)
        self._bind()

    def __reduce__(self) -> Any:
        raise TypeError("a frugal.torch.Optimizer cannot be pickled or copied; save its state_dict()")

    def add_param_group(self, param_group: Any) -> None:
        if self._complete:
            raise TypeError("frugal.torch.Optimizer: all modules are given when it is made, and it trains nothing "
                            "else; make another optimizer for other parameters")
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: rows have no gradients that stay."""

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Ends the step under way of each module. Returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        sessions = [session for module in self._modules for _, session, _ in module._parts]
        refused = [session.refused for session in sessions if session.refused is not None]
        for session in sessions:
            session.refused = None
            session.close_step()
        if refused:
            raise refused[0]
        return loss


__all__ = ["Optimizer"]
