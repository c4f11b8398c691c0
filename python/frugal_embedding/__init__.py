"""Exact synchronous training of embedding tables that are larger than GPU memory.

    from frugal_embedding import Frugal, Table, Uniform
    with Frugal([Table(1_000_000, Uniform(-0.1, 0.1))], dim=64, max_keys=4096, optimizer="adagrad") as f:
        f.attach_cpu(cache_rows=50_000)
        for step, keys in enumerate(batches):                  # int64 [n]
            f.announce(0, step, keys)
            rows = f.lookup(0, step)                           # float32 [n, 64]
            f.update(0, step, forward_and_backward(rows), lr=0.1)
        f.drain()
        table = f.view()                                       # float32 [1000000, 64], no copy
    print(table.mean())                                        # the memory lives as long as its last view

Several processes: one opens with name="run 7", and the others join it:

    with join("run 7") as f:
        f.attach_cpu(1)

Several machines: machines=Machines(...), over whose memories the tables are dealt.

Tables that are only read are served by frugal_embedding.serve. Modules for PyTorch are in frugal_embedding.torch,
which this package does not import. README.md of the folder `python` has more.
"""
from . import serve
from ._library import has_cuda
from ._library import version as __version__
from .errors import *  # noqa: F401,F403
from .errors import FrugalError
from .instance import Frugal, join, metrics, read_saved, save
from .machines import Machines
from .settings import Normal, Optimizer, Table, Uniform, Workers, Zero

__all__ = ["Frugal", "FrugalError", "Machines", "Normal", "Optimizer", "Table", "Uniform", "Workers", "Zero",
           "has_cuda", "join", "metrics", "read_saved", "save", "serve", "__version__"]
