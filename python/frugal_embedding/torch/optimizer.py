"""The update of the tables of frugal_embedding.torch as an optimizer of PyTorch: for schedulers, GradScaler, clipping
by norm and micro-batches."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Iterable, List, Optional, Sequence, Union

import torch
from torch import Tensor

from .modules import _Module
from .session import Session

# What may be done to gradients by position or bag, because it means the same for gradients summed by row.
_ALLOWED = {"_amp_foreach_non_finite_check_and_unscale_", "mul_", "div_", "__imul__", "__itruediv__", "_foreach_mul_",
            "_foreach_div_", "isfinite", "isnan", "isinf", "detach", "dim", "numel", "size", "__get__", "__repr__"}


class _Gradients(Tensor):
    """The gradients that wait for Optimizer.step: by position or by bag, and not summed by row, as those of a parameter
    would be. So a norm of them, or a bound, would be another number than the caller thinks."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _ALLOWED:
            raise TypeError(f"frugal_embedding.torch.Optimizer: {getattr(func, '__name__', func)} of the gradients of "
                            "a table, which are by position, and not summed by row. To clip by norm write "
                            "optimizer.clip_grad_norm_(model.parameters(), max_norm); to clip the gradient of each "
                            "row, make the module with optimizer=frugal_embedding.Optimizer(..., clip_norm=...)")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class _Rows(Tensor):
    """Stands for the rows of a part of a module in a parameter group. `grad`: what waits for the step, or None."""

    session: Session

    @property
    def grad(self) -> Any:  # type: ignore[override]
        session = self.session
        if session.gradient is None or session.open is None:
            return None
        return session.gradient.as_subclass(_Gradients)


class Optimizer(torch.optim.Optimizer):
    """One parameter group for each module. Its "lr" is the learning rate that the next `step` uses.

    Backwards of the modules leave their gradients here, and `step` gives them to the tables, whose rows the optimizer
    updates that the module was made with. So a GradScaler takes it as any optimizer: scaler.step(optimizer), after
    scaler.unscale_(optimizer) or without. A forward between a backward and `step` raises RuntimeError.

    `modules`: a module of frugal_embedding.torch, or several. `lr`: the learning rate of all; None: each keeps its own.
    """

    _step_supports_amp_scaling = True  # scaler.step sets found_inf and grad_scale

    def __init__(self, modules: Union[_Module, Sequence[_Module]], lr: Optional[float] = None):
        self._modules = [modules] if isinstance(modules, torch.nn.Module) else list(modules)
        for module in self._modules:
            if not isinstance(module, _Module):
                raise TypeError("frugal_embedding.torch.Optimizer: modules of frugal_embedding.torch are wanted; a "
                                f"{type(module).__name__} was given. Give the tables of a model, as model.bag; another "
                                "optimizer trains the rest")
            if not all(session.commits_itself() for _, session, _ in module._parts):
                raise ValueError(f"frugal_embedding.torch.Optimizer: {module} has one, whose step commits; change its "
                                 "param_groups, or delete it")
        self._complete = False
        groups = [{"params": [_rows_of(session) for _, session, _ in module._parts],
                   "lr": module.lr if lr is None else lr} for module in self._modules]
        super().__init__(groups, {"lr": 0.0})
        self._complete = True
        self._bind()

    def _sessions(self) -> List[Session]:
        return [session for module in self._modules for _, session, _ in module._parts]

    def _bind(self) -> None:
        for module, group in zip(self._modules, self.param_groups):
            for store, own, _ in module._parts:
                own.optimizer = weakref.ref(self)
                for session in store.sessions:  # a step has one learning rate, on all devices
                    if session is own or session.commits_itself():
                        session.group = group

    def __setstate__(self, state: Any) -> None:  # load_state_dict ends here, with new groups
        super().__setstate__(state)
        self._bind()

    def __reduce__(self) -> Any:
        raise TypeError("a frugal_embedding.torch.Optimizer cannot be pickled or copied; save its state_dict()")

    def add_param_group(self, param_group: Any) -> None:
        if self._complete:
            raise TypeError("frugal_embedding.torch.Optimizer: all modules are given when it is made, and it trains "
                            "nothing else; make another optimizer for other parameters")
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients that wait for `step`: their step ends without any."""
        for session in self._sessions():
            if session.gradient is not None:
                session.drop_step()

    def clip_grad_norm_(self, parameters: Union[Tensor, Iterable[Tensor]], max_norm: float) -> Tensor:
        """As torch.nn.utils.clip_grad_norm_, of `parameters` and of the tables together: the norm of a table's gradient
        is that of its rows, each summed over the batch. To be called after the backward, and after scaler.unscale_.
        Returns the norm, in float64, on the CPU: this waits for a GPU. ValueError with several devices, of which none
        knows the gradients of the others."""
        for module in self._modules:
            for store, _, _ in module._parts:
                if store.instance.devices > 1:
                    raise ValueError(f"clip_grad_norm_: one device is wanted; {module} has {store.instance.devices}. "
                                     "Make it with optimizer=frugal_embedding.Optimizer(..., clip_norm=...)")
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        grads = [one.grad for one in given if one.grad is not None]
        squares = sum(session.sum_squares() for session in self._sessions())
        squares += sum(float(torch.linalg.vector_norm(grad, dtype=torch.float64)) ** 2 for grad in grads)
        norm = squares ** 0.5
        factor = max_norm / (norm + 1e-6)
        if not factor >= 1.0:  # and if it is no number, as by torch
            for grad in grads:
                grad.mul_(factor)
            for session in self._sessions():
                if session.gradient is not None:
                    session.scale *= factor
        return torch.tensor(norm, dtype=torch.float64, device="cpu")

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Gives the gradients of each module to its tables; a step without any ends. Returns what `closure` returns.
        RuntimeError, with nothing changed, before the last micro-batch of a step has had its forward."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        try:
            self._commit()
        except BaseException:  # a GradScaler multiplies its scale by one that is there, so it must not stay
            self.__dict__.pop("grad_scale", None)
            self.__dict__.pop("found_inf", None)
            raise
        return loss

    def _commit(self) -> None:
        sessions = self._sessions()
        for session in sessions:
            session.check_complete()
        found = getattr(self, "found_inf", None)  # by a GradScaler
        scale = getattr(self, "grad_scale", None)
        if found is not None and bool(found):
            for session in sessions:
                session.drop_step()
            return
        factor = 1.0 if scale is None else 1.0 / float(scale)
        for group in self.param_groups:  # before the first commit
            if not 0 <= float(group["lr"]) < float("inf"):
                raise ValueError(f"lr: a finite rate of 0 or more is wanted; {group['lr']} was given")
        for session in sessions:
            session.commit(factor)


def _rows_of(session: Session) -> Tensor:
    made = torch.zeros(0, device="cpu").as_subclass(_Rows)
    made.session = session  # type: ignore[attr-defined]
    return made


__all__ = ["Optimizer"]
