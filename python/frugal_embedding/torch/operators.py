"""The operators of torch.library: frugal::lookup, and frugal::update, which its backward calls.

    frugal::lookup(Tensor anchor, Tensor[] keys, Tensor? offsets, Tensor? weights, int session, int pooling, int dim,
                   bool train) -> (Tensor rows, Tensor step)
    frugal::update(Tensor grads, Tensor step, Tensor? offsets, Tensor? weights, int session, bool wants_weights)
                   -> (Tensor anchor_grad, Tensor weights_grad)

`anchor` has no elements, and the type that `rows` get: float32, bfloat16 or float16. It makes autograd call the
backward, because keys have no gradients; rows get theirs in the table, not in a tensor. The operators have no arguments
that they change, so torch.compile may take them into a graph. They run in the order of their data: the lookup of a
step, then its update, whose offsets and weights are those of the lookup: the table reads them. `step`: int64 [2], the
step and the micro-batch.

Their bodies are in compiled.cc, where it could be compiled (compiled.py), and the autograd node of lookup is there,
too; the functions here then do what it leaves to them. Else these are the bodies.
"""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from .._library import lib
from . import advice, compiled
from .session import FLOAT_TYPES, POOLING, Session, new_floats, session_of, whole_keys

_library = torch.library.Library("frugal", "DEF")
# Two equal calls are two steps, so no graph may merge them; and no CUDA graph may record them.
_tags = tuple(getattr(torch.Tag, tag) for tag in ("nondeterministic_seeded", "cudagraph_unsafe") if
              hasattr(torch.Tag, tag))
_library.define("lookup(Tensor anchor, Tensor[] keys, Tensor? offsets, Tensor? weights, int session, int pooling, "
                "int dim, bool train) -> (Tensor, Tensor)", tags=_tags)
try:  # PyTorch 2.4 has a list of what must not be merged, and asks for no tag
    from torch._functorch.compile_utils import rand_ops
    rand_ops.append(torch.ops.frugal.lookup)
except (ImportError, AttributeError):
    pass
_library.define("update(Tensor grads, Tensor step, Tensor? offsets, Tensor? weights, int session, bool wants_weights) "
                "-> (Tensor, Tensor)", tags=_tags)


def _lookup(anchor: Tensor, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor], session: int,
            pooling: int, dim: int, train: bool) -> Tuple[Tensor, Tensor]:
    s = session_of(session)
    n = sum(part.numel() for part in keys)
    if offsets is not None:
        _check(offsets, "offsets", torch.int32, s.place)
    if weights is not None:
        _check(weights, "per_sample_weights", torch.float32, s.place)
        if weights.numel() != n:
            raise ValueError(f"per_sample_weights: {n} are wanted, one for each key; {weights.numel()} were given")
    given = [whole_keys(part, "forward") for part in keys]
    if s.has_micro_batch():
        return _next_micro_batch(s, given, offsets, weights, train)
    batch = s.begin(given, train)
    try:
        if batch.micro is not None:
            return _first_micro_batch(s, batch, offsets, weights, anchor.dtype)
        rows = new_floats((n if offsets is None else offsets.numel() - 1, dim), s.place, anchor.dtype)
        s.gather(batch.step, offsets, weights, pooling, rows)
    except BaseException:
        s.put_back(batch)
        raise
    s.looked_up(batch.step, train)
    return rows, s.token(batch.step)


def _first_micro_batch(s: Session, batch: Any, offsets: Optional[Tensor], weights: Optional[Tensor],
                       dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    batch.micro.check_bounds(offsets, weights)
    s.start_micro_batches(batch, dtype)
    return batch.micro.take_rows(), s.token(batch.step)


def _next_micro_batch(s: Session, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                      train: bool) -> Tuple[Tensor, Tensor]:
    micro = s.micro
    assert micro is not None
    if not train:
        raise RuntimeError(f"forward without gradients: micro-batch {micro.next} of {micro.n} of step {s.open} comes "
                           "next. Evaluate between steps")
    s.check_keys(micro.batch, micro.next * micro.n_segments, keys)
    micro.check_bounds(offsets, weights)
    token = s.token(micro.batch.step, micro.next)
    return micro.take_rows(), token


def _check(given: Tensor, what: str, dtype: torch.dtype, place: torch.device) -> None:
    if given.dtype != dtype or not given.is_contiguous() or given.device != place:
        raise ValueError(f"{what}: contiguous {dtype} on {place} are wanted; {given.dtype} on {given.device} with "
                         f"strides {given.stride()} were given")


def _lookup_fake(anchor: Tensor, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                 session: int, pooling: int, dim: int, train: bool) -> Tuple[Tensor, Tensor]:
    advice.refuse_traced_export()
    if any(part.device.type == "meta" for part in keys):  # those of a graph that is traced say where they will be
        raise ValueError("forward: keys in memory are wanted; some on the device meta were given")
    n = sum(part.numel() for part in keys) if offsets is None else offsets.numel() - 1
    return new_floats((n, dim), anchor.device, anchor.dtype), torch.empty((2,), dtype=torch.int64, device="cpu")


def _update(grads: Tensor, step: Tensor, offsets: Optional[Tensor], weights: Optional[Tensor], session: int,
            wants_weights: bool) -> Tuple[Tensor, Tensor]:
    s = session_of(session)
    number, micro_batch = step.tolist()
    if grads.dtype not in FLOAT_TYPES or grads.dim() != 2:
        raise TypeError(f"backward: gradients [n, dim] of float32, bfloat16 or float16 are wanted; {grads.dtype} of "
                        f"shape {tuple(grads.shape)} was given")
    dim = grads.shape[1]
    if (dim > 1 and grads.stride(1) != 1) or grads.stride(0) < dim:
        grads = grads.contiguous()  # autograd may give an expanded one, as of sum()
    if grads.data_ptr() % grads.element_size():
        grads = grads.clone()  # of memory that is not PyTorch's
    if wants_weights:
        assert offsets is not None and weights is not None
        of_weights = _weights_grad(s, number, grads, offsets, weights)
    else:
        of_weights = new_floats((0,), grads.device)
    if not s.commits_itself() and s.micro is None:
        grads = grads.clone()  # which stays until the optimizer's step; a graph may use the memory again
    s.update(number, micro_batch, grads, offsets, weights)
    return new_floats((0,), grads.device, grads.dtype), of_weights


def _weights_grad(s: Session, step: int, grads: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """The gradient of a weight: its row times the gradient of its bag. The rows are looked up once more."""
    if s.open != step:
        return torch.zeros_like(weights)  # update says what is wrong
    rows = new_floats((weights.numel(), s.instance.dim), grads.device)
    s.gather(step, None, None, 0, rows)
    s.gather(step, offsets, weights, POOLING["sum"], torch.empty_like(grads))  # update asks for bags
    bag = torch.repeat_interleave(torch.arange(grads.shape[0], device=grads.device), offsets.long().diff())
    return (rows * grads[bag]).sum(1)


def _update_fake(grads: Tensor, step: Tensor, offsets: Optional[Tensor], weights: Optional[Tensor], session: int,
                 wants_weights: bool) -> Tuple[Tensor, Tensor]:
    of_weights = torch.empty_like(weights) if wants_weights and weights is not None else new_floats((0,), grads.device)
    return new_floats((0,), grads.device, grads.dtype), of_weights


class _Lookup(torch.autograd.Function):
    """The gradient of frugal::lookup. torch.library.register_autograd would do the same, and take about 100 us more a
    step, because it flattens lists of arguments in Python."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, offsets: Optional[Tensor], weights: Optional[Tensor], session: int,
                pooling: int, dim: int, train: bool, *keys: Tensor) -> Tuple[Tensor, Tensor]:
        with torch._C._AutoDispatchBelowAutograd():
            rows, step = lookup(anchor, keys, offsets, weights, session, pooling, dim, train)
        ctx.mark_non_differentiable(step)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(step, weights, offsets)  # the update reads them: autograd sees if they change
        ctx.wants = weights is not None and weights.requires_grad
        ctx.session, ctx.train, ctx.n_keys = session, train, len(keys)
        return rows, step

    @staticmethod
    def backward(ctx: Any, grads: Optional[Tensor], _: Any) -> Tuple:
        if grads is None:
            return (None,) * (7 + ctx.n_keys)
        step, weights, offsets = ctx.saved_tensors
        if not ctx.train:
            raise RuntimeError("backward: this lookup was read-only, and rows get no gradients from it")
        anchor, of_weights = update(grads, step, offsets, weights, ctx.session, ctx.wants)
        return (anchor, None, of_weights if ctx.wants else None) + (None,) * (4 + ctx.n_keys)


def _lookup_autograd(anchor: Tensor, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                     session: int, pooling: int, dim: int, train: bool) -> Tuple[Tensor, Tensor]:
    return _Lookup.apply(anchor, offsets, weights, session, pooling, dim, train, *keys)


if compiled.module is not None:
    compiled.module.start({function: ctypes.cast(getattr(lib, function), ctypes.c_void_p).value
                        if hasattr(lib, function) else 0 for function in
                        ("frugal_announce", "frugal_cuda_announce", "frugal_lookup_into", "frugal_update")},
                        _lookup, _update)
else:
    for _kind in ("CPU", "CUDA"):
        _library.impl("lookup", _lookup, _kind)
        _library.impl("update", _update, _kind)
    _library.impl("lookup", _lookup_autograd, "Autograd")
torch.library.register_fake("frugal::lookup", _lookup_fake, lib=_library)
torch.library.register_fake("frugal::update", _update_fake, lib=_library)

lookup = torch.ops.frugal.lookup.default
update = torch.ops.frugal.update.default
