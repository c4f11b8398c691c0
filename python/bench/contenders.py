"""Tables that bench_python.py trains beside one another: each as its own users would make and call it on a CPU.

All have the same face. `Shape` says what is trained. `make(name, shape, values)` opens a table, with the first values
`values` float32 [rows, dim], or else uniform ones. Then:

    table.use(keys, bag)        a step has `keys` keys, in bags of `bag`; 0: rows are not pooled
    table.prepare(keys)         int64 [keys]: what a data loader of this library would yield for them; not timed
    table.train(batches)        for each: lookup, backward with a fixed gradient, and the optimizer; timed
    table.rows()                float32 [rows, dim]
    table.close()

A contender that cannot train a shape raises Skipped, which says why.
"""
from __future__ import annotations

import dataclasses
import threading
import warnings
from typing import Any, Dict, List, Optional

import torch

import frugal_embedding as frugal
from frugal_embedding import torch as ft

LR, EPS, GRADIENT = 0.01, 1e-8, 0.01
# Floats of state: for each float of a row, and for a row.
STATE = {"sgd": (0, 0), "rowwise_adagrad": (0, 1), "adagrad": (1, 0), "adam": (2, 0)}


class Skipped(Exception):
    """This contender cannot train this; the text says why."""


class NotInstalled(Skipped):
    """It can train nothing here."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """`bag`: keys a bag; 0: rows are not pooled. `keys`: of a step, a multiple of `bag`."""

    rows: int
    dim: int
    optimizer: str
    keys: int
    bag: int

    def bytes(self, of_weight: int = 4) -> int:
        """Of rows, whose weights have so many each, and optimizer state."""
        of_each, of_row = STATE[self.optimizer]
        return self.rows * (of_weight * self.dim + 4 * (of_each * self.dim + of_row))


def uniform(rows: int, dim: int) -> torch.Tensor:
    return torch.empty(rows, dim).uniform_(-0.1, 0.1)


class _Contender:
    """`shape`: what it was opened for. `weight_bytes`: of a weight. How far rows may be from PyTorch's: a part of their
    value, and a number."""

    shape: Shape
    weight_bytes, tolerance = 4, (1e-4, 1e-6)

    def serves(self, keys: int) -> bool:
        """Would a table opened for steps of `keys` keys be this one?"""
        return True

    def use(self, keys: int, bag: int) -> None:
        self.bag = bag
        self.gradient = torch.full((keys // max(bag, 1), self.shape.dim), GRADIENT)
        self.offsets = torch.arange(0, keys + 1, max(bag, 1))

    def prepare(self, keys: torch.Tensor) -> Any:
        return keys.view(-1, self.bag) if self.bag else keys

    def close(self) -> None:
        pass


class Frugal(_Contender):
    """A module with its defaults, on one logical device, or on several: a thread each, with its part of the keys.
    Steps with far fewer keys than `max_keys` are measured with another table, because a user would give fewer."""

    rows_as, dtype = "fp32", torch.float32

    def __init__(self, shape: Shape, values: Optional[torch.Tensor], devices: int = 1):
        self.shape, self.devices = shape, devices
        arguments: Dict[str, Any] = dict(
            max_keys=shape.keys // devices, optimizer=frugal.Optimizer(shape.optimizer, eps=EPS), lr=LR,
            device=["cpu"] * devices, init=frugal.Uniform(-0.1, 0.1) if values is None else values.numpy(),
            rows_as=self.rows_as, output_dtype=self.dtype)
        if shape.bag:
            module: Any = ft.EmbeddingBag(shape.rows, shape.dim, mode="sum", **arguments)
        else:
            module = ft.Embedding(shape.rows, shape.dim, **arguments)
        self.modules = [module] + [module.on(device) for device in range(1, devices)]
        self.loader = False

    def serves(self, keys: int) -> bool:
        return 0.9 * self.shape.keys <= keys <= self.shape.keys

    def use(self, keys: int, bag: int) -> None:
        super().use(keys // self.devices, bag)
        self.gradient = self.gradient.to(self.dtype)

    def prepare(self, keys: torch.Tensor) -> List[torch.Tensor]:
        return [super(Frugal, self).prepare(part) for part in keys.view(self.devices, -1)]

    def train(self, batches: list) -> None:
        failed: list = []

        def of_device(device: int) -> None:
            module, gradient = self.modules[device], self.gradient
            own = [batch[device] for batch in batches]
            try:
                for keys in ft.Loader(own, module) if self.loader else own:
                    module(keys).backward(gradient)
            except BaseException as error:  # raised again by the thread that has started this one
                failed.append(error)
                if self.devices > 1:
                    module.instance.stop()  # the other devices would wait for this one

        if self.devices == 1:
            of_device(0)
        else:
            threads = [threading.Thread(target=of_device, args=(device,)) for device in range(self.devices)]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException:  # Ctrl-C: the threads end, too
                self.modules[0].instance.stop()
                for thread in threads:
                    thread.join()
                raise
        if failed:
            raise failed[0]

    def rows(self) -> torch.Tensor:
        self.modules[0].drain()
        return self.modules[0].view_tensor().to(torch.float32, copy=True)

    def close(self) -> None:
        self.modules[0].close()


class Frugal16(Frugal):
    """The same with rows, and what is looked up, and gradients of bfloat16. Its rows, up to about 0.1, are rounded at
    each step: so they may differ by some units of the last place, which a step of SGD here is less than."""

    rows_as, dtype, weight_bytes, tolerance = "bf16", torch.bfloat16, 2, (2**-6, 2**-9)


class Torch(_Contender):
    """torch.nn with sparse gradients, and the optimizer of torch.optim that takes them."""

    def __init__(self, shape: Shape, values: Optional[torch.Tensor]):
        self.shape = shape
        if shape.optimizer == "rowwise_adagrad":
            raise Skipped("torch.optim has no row-wise Adagrad")
        weight = uniform(shape.rows, shape.dim) if values is None else values.clone()
        if shape.bag:
            self.module: Any = torch.nn.EmbeddingBag(shape.rows, shape.dim, mode="sum", sparse=True, _weight=weight)
        else:
            self.module = torch.nn.Embedding(shape.rows, shape.dim, sparse=True, _weight=weight)
        if shape.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(self.module.parameters(), lr=LR)
        elif shape.optimizer == "adagrad":
            self.optimizer = torch.optim.Adagrad(self.module.parameters(), lr=LR, eps=EPS)
        else:
            self.optimizer = torch.optim.SparseAdam(list(self.module.parameters()), lr=LR, eps=EPS)

    def train(self, batches: list) -> None:
        module, optimizer, gradient = self.module, self.optimizer, self.gradient
        for keys in batches:
            optimizer.zero_grad()
            module(keys).backward(gradient)
            optimizer.step()

    def rows(self) -> torch.Tensor:
        return self.module.weight.detach()


class Fbgemm(_Contender):
    """FBGEMM's table-batched embedding on a CPU: one table, whose optimizer runs in its backward."""

    def __init__(self, shape: Shape, values: Optional[torch.Tensor]):
        try:
            from fbgemm_gpu.split_embedding_configs import EmbOptimType
            from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
            from fbgemm_gpu.split_table_batched_embeddings_ops_training import (ComputeDevice,
                                                                                SplitTableBatchedEmbeddingBagsCodegen)
        except (ImportError, OSError) as error:
            raise NotInstalled(f"not installed (pip install fbgemm-gpu-cpu): {error}") from None
        self.shape = shape
        kinds = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
                 "adagrad": EmbOptimType.EXACT_ADAGRAD}
        if shape.optimizer not in kinds:
            raise Skipped(f"its kernels for a CPU have no {shape.optimizer}")
        if shape.dim % 4:
            raise Skipped(f"a dim that is a multiple of 4 is wanted; it is {shape.dim}")
        self.module = SplitTableBatchedEmbeddingBagsCodegen(
            [(shape.rows, shape.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)], optimizer=kinds[shape.optimizer],
            learning_rate=LR, eps=EPS, pooling_mode=PoolingMode.SUM if shape.bag else PoolingMode.NONE)
        if values is None:
            self.module.init_embedding_weights_uniform(-0.1, 0.1)
        else:
            self.module.split_embedding_weights()[0].copy_(values)

    def prepare(self, keys: torch.Tensor) -> torch.Tensor:
        return keys

    def train(self, batches: list) -> None:
        module, offsets, gradient = self.module, self.offsets, self.gradient
        for keys in batches:
            module(keys, offsets).backward(gradient)

    def rows(self) -> torch.Tensor:
        return self.module.split_embedding_weights()[0].detach()


class Torchrec(_Contender):
    """TorchRec's FusedEmbeddingBagCollection, unsharded. Its EmbeddingBagCollection, with or without
    apply_optimizer_in_backward, makes a dense gradient of all rows in each step, and is not measured."""

    def __init__(self, shape: Shape, values: Optional[torch.Tensor]):
        try:
            from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
            from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
            from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
        except (ImportError, OSError) as error:
            raise NotInstalled(f"not installed (pip install torchrec fbgemm-gpu-cpu): {error}") from None
        self.shape, self.jagged = shape, KeyedJaggedTensor
        kinds = {"sgd": torch.optim.SGD, "rowwise_adagrad": RowWiseAdagrad, "adagrad": torch.optim.Adagrad}
        if shape.optimizer not in kinds:
            raise Skipped(f"FBGEMM's kernels for a CPU, which it calls, have no {shape.optimizer}")
        if not shape.bag:
            raise Skipped("its FusedEmbeddingCollection is for GPUs alone, and without it gradients are dense")
        if shape.dim % 4:
            raise Skipped(f"a dim that is a multiple of 4 is wanted; it is {shape.dim}")
        table = EmbeddingBagConfig(name="t", embedding_dim=shape.dim, num_embeddings=shape.rows, feature_names=["f"],
                                   weight_init_min=-0.1, weight_init_max=0.1)
        self.module = FusedEmbeddingBagCollection(tables=[table], optimizer_type=kinds[shape.optimizer],
                                                  optimizer_kwargs={"lr": LR, "eps": EPS}, device=torch.device("cpu"))
        if values is not None:
            with torch.no_grad():
                self.rows().copy_(values)

    def prepare(self, keys: torch.Tensor) -> Any:
        return self.jagged(keys=["f"], values=keys, offsets=self.offsets)

    def train(self, batches: list) -> None:
        module, gradient = self.module, self.gradient
        for batch in batches:
            module(batch).values().backward(gradient)

    def rows(self) -> torch.Tensor:
        return self.module.state_dict()["embedding_bags.t.weight"].detach()


class Reference(_Contender):
    """Row-wise Adagrad, which torch.optim does not have, in PyTorch's operations; to compare rows with, not timed."""

    def __init__(self, shape: Shape, values: torch.Tensor):
        self.shape, self.weight, self.state = shape, values.clone(), torch.zeros(shape.rows, 1)

    def train(self, batches: list) -> None:
        for keys in batches:
            rows, place = keys.reshape(-1).unique(return_inverse=True)
            given = self.gradient.repeat_interleave(max(self.bag, 1), 0)
            summed = torch.zeros(len(rows), self.shape.dim).index_add_(0, place, given)
            self.state[rows] += summed.square().mean(1, keepdim=True)
            self.weight[rows] -= LR * summed / (self.state[rows].sqrt() + EPS)

    def rows(self) -> torch.Tensor:
        return self.weight


LIBRARIES = {"frugal": Frugal, "frugal_bf16": Frugal16, "torch": Torch, "fbgemm": Fbgemm, "torchrec": Torchrec}


def make(name: str, shape: Shape, values: Optional[torch.Tensor] = None) -> Any:
    """`name`: one of LIBRARIES, or "frugal/2" for two devices. The table is ready for steps of the shape's keys."""
    library, _, devices = name.partition("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = LIBRARIES[library](shape, values, *([int(devices)] if devices else []))
    table.use(shape.keys, shape.bag)
    return table


def reference(shape: Shape, values: torch.Tensor) -> Any:
    made = Reference(shape, values) if shape.optimizer == "rowwise_adagrad" else Torch(shape, values)
    made.use(shape.keys, shape.bag)
    return made
