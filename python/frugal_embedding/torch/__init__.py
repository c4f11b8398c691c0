"""Modules for PyTorch whose tables lie in Frugal instances: larger than the GPU's memory, trained exactly.

    from frugal_embedding.torch import EmbeddingBag, Loader
    bag = EmbeddingBag(100_000_000, 64, max_keys=65536, mode="sum", lr=0.05, file="table")
    for ids, label in Loader(loader, bag, lambda batch: batch[0]):                  # ids: int64 [n_bags, keys a bag]
        loss = criterion(model(bag(ids)), label)
        optimizer.zero_grad()
        loss.backward()                                                             # updates the table
        optimizer.step()                                                            # the rest of the model

Needs PyTorch 2.4 or later. Where there is a C++ compiler, the first import compiles the operators for it (compiled.py);
else they are in Python, with the same bits. `build` says which.
"""
try:
    import torch as _torch
except ImportError as error:
    raise ImportError("frugal_embedding.torch needs PyTorch 2.4 or later: pip install torch") from error

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 4):
    raise ImportError(f"frugal_embedding.torch needs PyTorch 2.4 or later; {_torch.__version__} is installed: "
                      "pip install -U torch")

from .compiled import build  # noqa: E402
from .inputs import Jagged, KeyedTensor  # noqa: E402
from .loader import Loader  # noqa: E402
from .machines import Machines  # noqa: E402
from .modules import Embedding, EmbeddingBag, EmbeddingBagCollection  # noqa: E402
from .optimizer import Optimizer  # noqa: E402
from .processes import Processes  # noqa: E402
from .served import ServedEmbedding, ServedEmbeddingBag  # noqa: E402

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection", "Jagged", "KeyedTensor", "Loader", "Machines",
           "Optimizer", "Processes", "ServedEmbedding", "ServedEmbeddingBag", "build"]
