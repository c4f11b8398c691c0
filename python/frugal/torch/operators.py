"""The operators of torch.library: frugal::lookup, and frugal::update, which its backward calls.

    frugal::lookup(Tensor anchor, Tensor[] keys, Tensor? offsets, Tensor? weights, int session, int pooling, int dim,
                   bool train) -> (Tensor rows, Tensor step)
    frugal::update(Tensor grads, Tensor step, Tensor? weights, int session, bool by_bag, bool wants_weights)
                   -> (Tensor anchor_grad, Tensor weights_grad)

`anchor` has no elements. It makes autograd call the backward, because keys have no gradients; rows get theirs in the
table, not in a tensor. The operators have no arguments that they change, so torch.compile may take them into a graph.
They run in the order of their data: the lookup of a step, then its update.
"""
from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from .session import Session, session_of, whole_keys

_library = torch.library.Library("frugal", "DEF")
_library.define("lookup(Tensor anchor, Tensor[] keys, Tensor? offsets, Tensor? weights, int session, int pooling, "
                "int dim, bool train) -> (Tensor, Tensor)")
_library.define("update(Tensor grads, Tensor step, Tensor? weights, int session, bool by_bag, bool wants_weights) "
                "-> (Tensor, Tensor)")


def _on_stream(session: Session, tensors: List[Optional[Tensor]]) -> Any:
    """With a stream of its own, the device's work comes after the current stream's, and `tensors` live long enough."""
    stream = session.stream
    if stream is None:
        return None
    current = torch.cuda.current_stream(session.place)
    if current.cuda_stream == stream.cuda_stream:
        return None
    stream.wait_stream(current)
    for tensor in tensors:
        if tensor is not None and tensor.is_cuda:
            tensor.record_stream(stream)
    return current


def _gather(session: Session, step: int, n: int, offsets: Optional[Tensor], weights: Optional[Tensor], pooling: int,
            rows: Tensor) -> None:
    current = _on_stream(session, [offsets, weights, rows])
    if offsets is None:
        session.instance.lookup_address(session.device, step, rows.data_ptr())
    else:
        session.instance.lookup_bags_addresses(session.device, step, offsets.numel() - 1, offsets.data_ptr(),
                                               None if weights is None else weights.data_ptr(), pooling,
                                               rows.data_ptr(), (offsets, weights))
    if current is not None:
        current.wait_stream(session.stream)


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
    rows = _floats((n if offsets is None else offsets.numel() - 1, dim), s.place)
    batch = s.begin([whole_keys(part, "forward") for part in keys], train)
    try:
        _gather(s, batch.step, n, offsets, weights, pooling, rows)
    except BaseException:
        s.put_back(batch)
        raise
    s.looked_up(batch.step, train)
    return rows, s.token(batch.step)


def _floats(shape: Tuple[int, ...], place: torch.device) -> Tensor:
    """Memory that the library writes: float32, whatever PyTorch's default is."""
    return torch.empty(shape, dtype=torch.float32, device=place)


def _check(given: Tensor, what: str, dtype: torch.dtype, place: torch.device) -> None:
    if given.dtype != dtype or not given.is_contiguous() or given.device != place:
        raise ValueError(f"{what}: contiguous {dtype} on {place} are wanted; {given.dtype} on {given.device} with "
                         f"strides {given.stride()} were given")


def _lookup_fake(anchor: Tensor, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                 session: int, pooling: int, dim: int, train: bool) -> Tuple[Tensor, Tensor]:
    n = sum(part.numel() for part in keys) if offsets is None else offsets.numel() - 1
    return _floats((n, dim), anchor.device), torch.empty((), dtype=torch.int64, device="cpu")


def _update(grads: Tensor, step: Tensor, weights: Optional[Tensor], session: int, by_bag: bool,
            wants_weights: bool) -> Tuple[Tensor, Tensor]:
    s = session_of(session)
    number = int(step)
    if grads.dtype != torch.float32 or grads.dim() != 2:
        raise TypeError(f"backward: gradients of float32 [n, dim] are wanted; {grads.dtype} of shape "
                        f"{tuple(grads.shape)} was given")
    dim = grads.shape[1]
    if (dim > 1 and grads.stride(1) != 1) or grads.stride(0) < dim:
        grads = grads.contiguous()  # autograd may give an expanded one, as of sum()
    if grads.data_ptr() % grads.element_size():
        grads = grads.clone()  # of memory that is not PyTorch's
    if wants_weights:
        of_weights = _weights_grad(s, number, grads, weights)
    else:
        of_weights = _floats((0,), grads.device)
    current = _on_stream(s, [grads])
    s.update(number, grads, by_bag)
    if current is not None:
        current.wait_stream(s.stream)
    return _floats((0,), grads.device), of_weights


def _weights_grad(s: Session, step: int, grads: Tensor, weights: Optional[Tensor]) -> Tensor:
    """The gradient of a weight: its row times the gradient of its bag. The rows are looked up once more."""
    assert weights is not None
    if s.open != step:
        return torch.zeros_like(weights)  # update says what is wrong
    bags = s.instance._devices[s.device]
    offsets, _ = bags.kept
    pooling = bags.bags.pooling
    rows = _floats((weights.numel(), s.instance.dim), grads.device)
    _gather(s, step, weights.numel(), None, None, 0, rows)
    _gather(s, step, weights.numel(), offsets, weights, pooling, torch.empty_like(grads))  # update asks for bags
    bag = torch.repeat_interleave(torch.arange(grads.shape[0], device=grads.device), offsets.long().diff())
    return (rows * grads[bag]).sum(1)


def _update_fake(grads: Tensor, step: Tensor, weights: Optional[Tensor], session: int, by_bag: bool,
                 wants_weights: bool) -> Tuple[Tensor, Tensor]:
    of_weights = torch.empty_like(weights) if wants_weights and weights is not None else _floats((0,), grads.device)
    return _floats((0,), grads.device), of_weights


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
        ctx.session, ctx.by_bag, ctx.train, ctx.n_keys = session, offsets is not None, train, len(keys)
        return rows, step

    @staticmethod
    def backward(ctx: Any, grads: Optional[Tensor], _: Any) -> Tuple:
        if grads is None:
            return (None,) * (7 + ctx.n_keys)
        step, weights, _ = ctx.saved_tensors
        weights = weights if ctx.wants else None
        if not ctx.train:
            raise RuntimeError("backward: this lookup was read-only, and rows get no gradients from it")
        anchor, of_weights = update(grads, step, weights, ctx.session, ctx.by_bag, weights is not None)
        return (anchor, None, of_weights if weights is not None else None) + (None,) * (4 + ctx.n_keys)


def _lookup_autograd(anchor: Tensor, keys: List[Tensor], offsets: Optional[Tensor], weights: Optional[Tensor],
                     session: int, pooling: int, dim: int, train: bool) -> Tuple[Tensor, Tensor]:
    return _Lookup.apply(anchor, offsets, weights, session, pooling, dim, train, *keys)


for _kind in ("CPU", "CUDA"):
    _library.impl("lookup", _lookup, _kind)
    _library.impl("update", _update, _kind)
torch.library.register_fake("frugal::lookup", _lookup_fake, lib=_library)
torch.library.register_fake("frugal::update", _update_fake, lib=_library)
_library.impl("lookup", _lookup_autograd, "Autograd")

lookup = torch.ops.frugal.lookup.default
update = torch.ops.frugal.update.default
