"""The attribute `weight` of modules: the rows of a table as a tensor that is read, and not written. The table is no
parameter, so what PyTorch would do to one in place, or with gradients, is refused in a sentence."""
from __future__ import annotations

from typing import Any, List, NoReturn

import torch
from torch import Tensor

_WRITES = {"__setitem__", "__set__", "backward", "register_hook", "retain_grad"}


def refuse(what: str) -> NoReturn:
    raise RuntimeError(f"weight: {what} is refused, because the rows of a table are no parameter, and copies in caches "
                       "would not follow. First values: init=...; to set rows: load_state_dict, or write_rows of "
                       "module.instance; to train them: the module's optimizer=... and lr=...")


class Weight(Tensor):
    """Rows in place. Results that lie in the same memory are of this class, others are plain tensors."""

    step_of: Any  # says the step that training has come to; None: the module is gone, and its rows stay as they are
    step: int

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        owner = next((one for one in (*args, *kwargs.values()) if isinstance(one, Weight)), None)
        written = args[0] if args else kwargs.get("tensor")
        if _writes(name, kwargs) and (name.startswith("embedding") or _has_weight(written)):
            refuse(name)
        if _has_weight(kwargs.get("out")):
            refuse(f"{name}(out=...)")
        with torch._C.DisableTorchFunctionSubclass():
            if owner is not None and name not in ("__get__", "size", "dim", "numel", "stride", "__len__"):
                _check_step(owner)
            made = func(*args, **kwargs)
            return made if owner is None else _kept(made, owner)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor).clone().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor).clone()


def _writes(name: str, kwargs: Any) -> bool:
    """Does the function of this name write its first argument? embedding scales rows down, if it is asked to."""
    if name in ("embedding", "embedding_bag"):
        return kwargs.get("max_norm") is not None
    if name.startswith("__"):
        return name in _WRITES or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name in _WRITES or name.endswith("_")


def _has_weight(given: Any) -> bool:
    """Is it one, or a list that has one?"""
    return any(isinstance(one, Weight) for one in (given if isinstance(given, (tuple, list)) else [given]))


def _check_step(weight: Weight) -> None:
    now = weight.step_of()
    if now is not None and now != weight.step:
        raise RuntimeError(f"weight: these rows are of step {weight.step}, and training has come to step {now}; they "
                           "may lack updates. Read module.weight again, or keep a copy: module.weight.clone()")


def _kept(made: Any, owner: Weight) -> Any:
    """`made`, of which what lies in the rows' memory stays read-only."""
    if isinstance(made, Tensor):
        plain = made.as_subclass(Tensor) if isinstance(made, Weight) else made
        if plain.layout == torch.strided and plain.device == owner.device and \
                plain.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr():
            return weight_of(plain, owner.step_of, owner.step)
        return plain
    if isinstance(made, (tuple, list)) and any(isinstance(one, Tensor) for one in made):
        return type(made)([_kept(one, owner) for one in made])  # torch.return_types, too
    if type(made).__module__ == "numpy" and hasattr(made, "setflags"):
        made.setflags(write=False)
    return made


def weight_of(rows: Tensor, step_of: Any, step: int) -> Weight:
    made = rows.as_subclass(Weight)
    made.step_of, made.step = step_of, step
    return made


__all__: List[str] = []
