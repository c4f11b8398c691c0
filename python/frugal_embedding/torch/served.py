"""Frozen modules: rows of a frugal_embedding.serve.Server, for models that only answer. They have no parameters,
no state and no steps; any thread may call them, and the server may be refreshed meanwhile."""
from __future__ import annotations

from typing import Any, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from ..serve import GpuServer, Server
from . import advice, inputs
from .padding import bounds_without, padding_of, without_padding
from .pooling import pool_max
from .session import whole_keys


class _Served(nn.Module):
    """What the frozen modules share. `device`: where inputs and rows are."""

    def __init__(self, server: Union[Server, GpuServer], table: int = 0, *, padding_idx: Optional[int] = None,
                 gpu: int = 0):
        super().__init__()
        if not isinstance(server, (Server, GpuServer)):
            raise TypeError("server: a frugal_embedding.serve.Server, or what its on_gpus returned, is wanted; "
                            f"{inputs.describe(server)} was given. Write frugal_embedding.serve.Server([path])")
        if not 0 <= table < len(server.rows):
            raise IndexError(f"table {table}: the server has {len(server.rows)}, numbered from 0")
        self.server, self.table, self.gpu = server, table, gpu
        self.num_embeddings, self.embedding_dim = server.rows[table], server.dim
        self.padding_idx = padding_of(padding_idx, self.num_embeddings)
        self.device = torch.device("cuda", server._place(gpu)) if isinstance(server, GpuServer) else torch.device("cpu")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        advice.check_conversion(self, self.device, torch.float32, fn)
        return super()._apply(fn, recurse)

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # nothing of it changes

    def _rows(self, keys: Tensor, bounds: Optional[Tensor] = None, weights: Optional[Tensor] = None,
              pooling: str = "sum") -> Tensor:
        """[n, dim] of keys [n] without gaps, or with bounds int32 [n_bags + 1] pooled [n_bags, dim]."""
        advice.refuse_export()
        n = keys.numel() if bounds is None else bounds.numel() - 1
        out = torch.empty(n, self.embedding_dim, dtype=torch.float32, device=self.device)
        given = {self.table: keys.to(self.device)}
        if isinstance(self.server, GpuServer):
            stream = torch.cuda.current_stream(self.device).cuda_stream
            if bounds is None:
                return self.server.lookup(self.gpu, given, out, stream)
            return self.server.lookup_bags(self.gpu, given, bounds, weights, pooling, out=out, stream=stream)
        return self.server.lookup(given, out) if bounds is None else \
            self.server.lookup_bags(given, bounds, weights, pooling, out)


class ServedEmbedding(_Served):
    """As a frozen torch.nn.Embedding: rows by key of a table that is served.

    `server`: a `Server` of frugal_embedding.serve, or what its on_gpus returned. `table`: its number. `padding_idx` has
    no effect, because its row is read as any other. `gpu`: of a server on GPUs, an index into its ordinals.
    """

    @torch.compiler.disable
    def forward(self, input: Tensor) -> Tensor:
        """`input`: int64 or int32 of any shape. Returns float32 [*input.shape, embedding_dim], without gradients."""
        return self._rows(whole_keys(input, "forward").view(-1)).view(*input.shape, self.embedding_dim)


class ServedEmbeddingBag(_Served):
    """As a frozen torch.nn.EmbeddingBag: pooled rows of a table that is served.

    `mode`: "sum", "mean" or "max". `include_last_offset`, `padding_idx`: as of EmbeddingBag. The other arguments are
    those of ServedEmbedding.
    """

    def __init__(self, server: Union[Server, GpuServer], table: int = 0, *, mode: str = "mean",
                 include_last_offset: bool = False, padding_idx: Optional[int] = None, gpu: int = 0):
        advice.check_mode(mode)
        super().__init__(server, table, padding_idx=padding_idx, gpu=gpu)
        self.mode, self.include_last_offset = mode, include_last_offset

    @torch.compiler.disable
    def forward(self, input: Any, offsets: Optional[Tensor] = None,
                per_sample_weights: Optional[Tensor] = None) -> Tensor:
        """An input of EmbeddingBag. Returns float32 [n_bags, embedding_dim], without gradients."""
        bags = inputs.bags_of(input if offsets is None else (input, offsets), self.include_last_offset)
        weights = bags.weights if per_sample_weights is None else per_sample_weights
        if weights is not None:
            inputs.check_weighted(self.mode)
            if weights.requires_grad and torch.is_grad_enabled():
                raise ValueError("per_sample_weights: a module that is served gives no gradients, and these ask for "
                                 "some. Give weights.detach(), or look rows up by ServedEmbedding, and multiply")
            weights = inputs.weights_of(weights, input, bags).to(self.device)
        keys = whole_keys(bags.keys, "forward").view(-1)
        bounds = inputs.bounds_of([bags], self.device)
        if self.mode == "max":
            return pool_max(self._rows(keys), bounds, [keys], [self.padding_idx])
        if self.padding_idx is not None:
            keys, bounds, weights = self._without_padding(keys, bounds, weights)
        return self._rows(keys, bounds, weights, self.mode)

    def _without_padding(self, keys: Tensor, bounds: Tensor,
                         weights: Optional[Tensor]) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        stay, mask = without_padding([keys], [self.padding_idx], self.device)
        return stay[0], bounds_without(bounds, mask), None if weights is None else weights[mask]


__all__: List[str] = ["ServedEmbedding", "ServedEmbeddingBag"]
