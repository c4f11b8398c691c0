"""The part "key" of bench_python.py: what a step of one key of 8 floats costs, in C and from Python."""
from __future__ import annotations

import ctypes
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from typing import Any, Dict, List

import numpy as np

import frugal_embedding as frugal
from frugal_embedding import _library

STEPS = 4000
C_LOOP = """
#include <time.h>
#include "frugal.h"
double steps(frugal *f, uint64_t first, int n, const uint64_t *key, float *row, const float *grad) {
    frugal_keys keys = {.keys = key, .n = 1};
    frugal_batch batch = {.segments = &keys, .n_segments = 1};
    frugal_gradients gradients = {.grads = grad, .lr = 0.01f};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++, first++)
        if (frugal_announce(f, 0, first, &batch) || frugal_lookup(f, 0, first, row) ||
            frugal_update(f, 0, first, &gradients))
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}
"""


def c_loop(folder: str) -> Any:
    """The function `steps` of C_LOOP, or None where it cannot be compiled."""
    headers = pathlib.Path(__file__).resolve().parents[2]
    source = pathlib.Path(folder, "loop.c")
    source.write_text(C_LOOP)
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O3", "-shared", "-fPIC", f"-I{headers}", str(source),
               _library.lib._name, "-o", f"{folder}/loop.so"]
    try:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
    except FileNotFoundError:
        return None
    steps: Any = ctypes.CDLL(f"{folder}/loop.so").steps
    steps.restype = ctypes.c_double
    steps.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int] + 3 * [ctypes.c_void_p]
    return steps


def by_arrays(rounds: int, n: int) -> Dict[str, List[float]]:
    """Microseconds a step of each counted round: the three calls in C, and by frugal.Frugal with NumPy arrays."""
    times: Dict[str, List[float]] = {"c": [], "numpy": []}
    with tempfile.TemporaryDirectory() as folder, frugal.Frugal([1000], 8, max_keys=8, optimizer="adagrad") as f:
        f.attach_cpu()
        key, row, grad = np.array([5]), np.empty((1, 8), np.float32), np.ones((1, 8), np.float32)
        loop, step = c_loop(folder), 0
        for _ in range(rounds + 1):
            if loop:
                seconds = loop(f._handle, step, n, key.ctypes.data, row.ctypes.data, grad.ctypes.data)
                assert seconds > 0, "a call of the C loop has failed"
                times["c"].append(seconds / n * 1e6)
                step += n
                for device in f._devices:  # the calls of the C loop
                    device.announced = device.looked_up = device.updated = step
            since = time.perf_counter()
            for _ in range(n):
                f.announce(0, step, key)
                f.lookup(0, step, row)
                f.update(0, step, grad, 0.01)
                step += 1
            times["numpy"].append((time.perf_counter() - since) / n * 1e6)
    return times


def by_torch(rounds: int, n: int) -> Dict[str, List[float]]:
    """The same of Frugal's EmbeddingBag, of torch.nn's with SGD, and of x * 1: a forward and its backward."""
    import torch
    from frugal_embedding import torch as ft
    bag = ft.EmbeddingBag(1000, 8, max_keys=8, mode="sum", optimizer="sgd", lookahead=0)
    nn_bag = torch.nn.EmbeddingBag(1000, 8, mode="sum", sparse=True)
    sgd = torch.optim.SGD(nn_bag.parameters(), lr=0.01)
    plain = torch.zeros(1, 8, requires_grad=True)
    ids, grad = torch.tensor([[5]]), torch.ones(1, 8)

    def ours() -> None:
        bag(ids).backward(grad)

    def theirs() -> None:
        sgd.zero_grad()
        nn_bag(ids).backward(grad)
        sgd.step()

    def autograd() -> None:
        (plain * 1).backward(grad)

    times: Dict[str, List[float]] = {"torch": [], "nn.EmbeddingBag": [], "autograd": []}
    for _ in range(rounds + 1):
        for name, step in (("torch", ours), ("nn.EmbeddingBag", theirs), ("autograd", autograd)):
            since = time.perf_counter()
            for _ in range(n):
                step()
            times[name].append((time.perf_counter() - since) / n * 1e6)
    bag.close()
    return times


def run(rounds: int, with_torch: bool, n: int) -> Dict[str, float]:
    """Medians of rounds of `n` steps, in microseconds; the first round is not counted."""
    times = by_arrays(rounds, n)
    if with_torch:
        times.update(by_torch(rounds, n // 4 + 1))
    return {name: statistics.median(of[1:]) for name, of in times.items() if of}


def lines_of(found: Dict[str, float]) -> List[str]:
    names = {"c": "three calls in C", "numpy": "the same calls with NumPy arrays", "torch": "Frugal's EmbeddingBag",
             "nn.EmbeddingBag": "torch.nn.EmbeddingBag, SGD", "autograd": "x * 1"}
    text = "a step of one key, us: " + "; ".join(f"{names[name]} {us:.3g}" for name, us in found.items())
    if "torch" in found:
        text += f"; a module takes {found['torch'] / found['autograd']:.2f} times x * 1"
    return [text]
