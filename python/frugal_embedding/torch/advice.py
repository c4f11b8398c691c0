"""What modules of frugal_embedding.torch say to those who take them for modules of torch.nn: what they do not have, and
the right way; and the mistakes that can be seen before the first update."""
from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import Any, Dict, List, Mapping

import torch
from torch import nn

_INSTEAD = {
    "sparse": "in PyTorch it means sparse gradients, and the gradients of these modules always are. For a file whose "
              "disk space is not reserved write file_sparse=True",
    "max_norm": "a lookup changes no row. frugal_embedding.Optimizer(..., clip_norm=...) bounds the gradient of a row; "
                "for a norm of 1, normalize what forward returns",
    "norm_type": "it is of max_norm, and a lookup changes no row",
    "scale_grad_by_freq": "gradients are not divided by how often a key occurs. Bags of the mode 'mean' divide by "
                          "their length; else multiply what forward returns by weights of your own",
    "dtype": "write output_dtype=torch.bfloat16 for what the module returns, rows_as='bf16' for what the table stores",
    "_weight": "write from_pretrained(matrix, max_keys=...), or init=matrix, float32 [rows, dim]",
    "_freeze": "write optimizer=frugal_embedding.Optimizer(..., frozen=True), or requires_grad_(False) of the module",
    "evict_strategy": "write policy='counted' for CachedEmbedding's LFU, 'lru', or 'static'",
    "pin_weight": "the table lies in host memory, which a device on a GPU pins by itself",
    "buffer_size": "rows go to a GPU one by one, without a buffer of chunks",
}
_AS_NOTHING = {"max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "_weight": None}


def refuse_options(options: Dict[str, Any]) -> Dict[str, Any]:
    """`options` as frugal_embedding.Frugal takes them, without what only torch.nn has."""
    for name, value in list(options.items()):
        if name in _AS_NOTHING and not isinstance(value, torch.Tensor) and value == _AS_NOTHING[name]:
            del options[name]  # what torch.nn does without it is what is done here
        elif name in _INSTEAD:
            raise TypeError(f"{name}: modules of frugal_embedding.torch do not have it: {_INSTEAD[name]}")
    file_sparse = options.pop("file_sparse", None)
    return options if file_sparse is None else dict(options, sparse=file_sparse)


def check_mode(mode: str) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode: 'sum', 'mean' or 'max' is wanted; {mode!r} was given")


def check_names(what: str, given: Any, tables: Mapping[str, Any]) -> None:
    """ValueError, if `given` for tables by name names one that the collection does not have."""
    unknown = [name for name in given if name not in tables] if isinstance(given, Mapping) else []
    if unknown:
        raise ValueError(f"{what}: {{table: ...}} of the tables {list(tables)} is wanted; {unknown} were given")


def has_rows(options: Dict[str, Any]) -> bool:
    """Does a table opened with these options have rows of its own, rather than first values?"""
    file = options.get("file")
    return bool(options.get("saved")) or options.get("weights") is not None or \
        (file is not None and os.path.exists(file))


def check_alone(frequencies: Any, shows_padding: bool) -> None:
    """ValueError, if one process of several, or one machine, is asked for what it cannot do alone."""
    if frequencies is not None:
        raise ValueError("ids_freq_mapping: one process alone sets counts; with `processes` or `machines` rank 0 may "
                         "call set_counts of module.instance before others announce")
    if shows_padding:
        raise ValueError("padding_idx: Embedding shows the row of this key, which with `processes` or `machines` this "
                         "process may not be able to read. EmbeddingBag has it, because it leaves the key out; or mask "
                         "what forward returns: rows * (ids != padding).unsqueeze(-1)")


def refuse_export() -> None:
    """RuntimeError, if a graph is made to be kept: a table is no tensor of it. Where torch.compile traces, the answer
    comes from the operators that it asks for shapes (refuse_traced_export)."""
    if not torch.compiler.is_compiling() and (torch.jit.is_tracing() or torch.onnx.is_in_onnx_export()):
        _refuse_graph()


def refuse_traced_export() -> None:
    """The same where a graph is traced: no version before 2.7 says for what, so its callers are asked."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch.export."):
            _refuse_graph()
        frame = frame.f_back


def _refuse_graph() -> None:
    raise RuntimeError("forward of a module of frugal_embedding.torch: torch.export, ONNX and torch.jit keep a "
                       "graph, and a table is no part of one. Export the rest of the model, with rows as its input; "
                       "serve the rows by frugal_embedding.serve, from a file of save()")


class OnlyRows(str):
    """A missing key of a state that has rows alone. PyTorch formats such keys where they are errors, which no module is
    told: with strict=False they are none."""

    def __format__(self, spec: str) -> str:
        return (f"{self!s} (as in the state of a torch.nn.EmbeddingBag, which has rows alone: load_state_dict(..., "
                "strict=False) takes them, with an optimizer state of zeros)")


class Parameters(Dict[str, Any]):
    """The parameters of a module that has none: it notices who asks for them, because what is then done to all
    parameters of a model leaves its tables out. requires_grad_, of the module or of one around it, reaches `anchor`."""

    def __init__(self, anchor: torch.Tensor):
        super().__init__()
        self.anchor, self.listed = anchor, False

    def items(self) -> Any:
        frame: Any = sys._getframe(1)
        callers: List[Any] = []
        while frame is not None and len(callers) < 8:  # named_parameters, parameters, and what calls it
            callers.append(frame.f_code)
            frame = frame.f_back
        if nn.Module.requires_grad_.__code__ in callers:
            return {"anchor": self.anchor}.items()
        self.listed = self.listed or (nn.Module.named_parameters.__code__ in callers and
                                      nn.Module.zero_grad.__code__ not in callers)
        return super().items()


def check_conversion(module: nn.Module, place: torch.device, dtype: torch.dtype, convert: Any) -> None:
    """What .to(), .half(), .cuda() and the like would do to a tensor of the module, they cannot do to its table.
    `dtype`: of what it returns."""
    probe = torch.zeros(1, dtype=dtype, device=place)
    made = convert(probe)
    if made.dtype != dtype:
        raise TypeError(f"{module}: what it returns is {dtype} and stays so; {made.dtype} was asked for. Make it with "
                        "output_dtype=..., which may be float32, bfloat16 or float16, or convert what it returns, and "
                        "the rest of the model part by part")
    if made.device != place:
        raise ValueError(f"{module}: it stays on {place}; {made.device} was asked for. Make it with device="
                         f"'{made.device}', and move the rest of the model part by part")
    if place.type == "cpu" and made.is_shared():
        raise TypeError(f"{module}: its memory cannot be shared like this. Other processes train the same tables if "
                        "the module is made with processes=frugal_embedding.torch.Processes()")


def _all_of(kind: Any) -> set:
    return {kind}.union(*(_all_of(below) for below in kind.__subclasses__()))


def _alive(kind: Any) -> List[Any]:
    """All objects of `kind`. Nothing else leads from a loss, or from a model, to what scales or lists it."""
    kinds = _all_of(kind)
    return [one for one in gc.get_objects() if type(one) in kinds]


def _is_scaled() -> bool:
    """In a backward: has a GradScaler scaled its loss? It multiplies the loss last, so the tensor whose backward this
    is, and which its caller holds, comes from a product. A PyTorch without the two functions that tell is not asked:
    then the step of the scaler says it, one update later."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    # of this backward, without the node that it begins with
    runs = getattr(torch._C, "_will_engine_execute_node", None)
    if task is None or runs is None or task() < 0 or \
            not any(getattr(one, "_scale", None) is not None for one in _alive(torch.amp.GradScaler)):
        return False
    made = [one.grad_fn for one in _alive(torch.Tensor) if one.dim() == 0 and one.grad_fn is not None]
    return any(node.name().startswith("MulBackward") and not runs(node) and
               any(runs(following) for following, _ in node.next_functions if following is not None) for node in made)


def check_first_update(module: nn.Module, describe: str) -> None:
    """Before the first update of a table. RuntimeError, if a GradScaler has scaled the loss. A warning, if an optimizer
    of the model around the table leaves it at its default, `describe` ("": it has a setting of its own)."""
    if _is_scaled():
        raise RuntimeError(f"backward of {module}: a GradScaler scales the loss, and the table, which is unchanged, "
                           "would be updated with scaled gradients. Write optimizer = "
                           "frugal_embedding.torch.Optimizer(module), and scaler.step(optimizer) beside the step of "
                           "the model's optimizer")
    if describe and any(not type(one).__module__.startswith(__package__) for one in _alive(torch.optim.Optimizer)):
        warnings.warn(f"{module}: model.parameters() does not have its rows, so no optimizer of torch.optim trains "
                      f"them. They train by {describe}. Make the module with optimizer=... and lr=...; "
                      "frugal_embedding.torch.Optimizer(module) lets a scheduler set lr", UserWarning, 2)
