"""The judge: sequential training in NumPy, written from frugal.h and not from the library's code. Bit for bit.

Arithmetic is float32. Each product that is added is a fused multiply-add, computed here in double with rounding to odd.
Weights of 16 bits are float32 here, of values that the type has.
"""
import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

F = np.float32


def fma(a, b, c):
    """a * b + c in float32, rounded once. The product is exact in double; the sum is rounded to odd there, so that the
    second rounding, to float32, gives what one rounding would."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    product, c = np.broadcast_arrays(product, np.asarray(c, np.float64))
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((error != 0) & even & np.isfinite(total), np.nextafter(total, np.where(error > 0, np.inf, -np.inf)),
                   total)
    return odd.astype(F)


def add_up(parts):
    """The sum of gradients of equal keys: blocks of 32 positions, then the blocks, each from its first element."""
    blocks = []
    for first in range(0, len(parts), 32):
        total = parts[first].copy()
        for part in parts[first + 1:first + 32]:
            total = total + part
        blocks.append(total)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


def pool(rows, offsets, weights=None, mean=False):
    """rows[n, dim] by position to [n_bags, dim]."""
    out = np.zeros((len(offsets) - 1, rows.shape[1]), F)
    for bag, (first, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        for at in range(first, end):
            if at == first:
                out[bag] = rows[at] if weights is None else weights[at] * rows[at]
            else:
                out[bag] = out[bag] + rows[at] if weights is None else fma(weights[at], rows[at], out[bag])
        if mean and end - first > 1:
            out[bag] = out[bag] / F(end - first)
    return out


def spread(grads, offsets, weights=None, mean=False):
    """grads[n_bags, dim] by bag to [n, dim] by position."""
    out = np.zeros((offsets[-1], grads.shape[1]), F)
    for bag, (first, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        for at in range(first, end):
            out[at] = grads[bag]
            if weights is not None:
                out[at] = out[at] * weights[at]
            if mean:
                out[at] = out[at] / F(end - first)
    return out


def mix(x):
    """splitmix64's finalizer, of a Python integer."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def noise(seed, step, row, dim):
    """The 16 random bits of each element: of a mix of seed and step, one of that and the row, of which the upper half
    counts, and a hash of 32 bits for each pair of elements."""
    of_row = mix(mix(seed ^ mix(step)) ^ row) >> 32
    x = (of_row + np.arange((dim + 1) // 2, dtype=np.uint64) * 0x9E3779B9) % 2**32
    x = (x ^ x >> 16) * 0x21f0aaad % 2**32
    x = (x ^ x >> 15) * 0x735a2d97 % 2**32
    x = x ^ x >> 15
    return np.stack([x & 0xffff, x >> 16], 1).reshape(-1)[:dim]


def rounded(x, rows_as, bits=None):
    """float32 as weights of `rows_as`, in float32: by `bits`, or to the nearest. In doubles, which are exact."""
    if rows_as == "fp32":
        return x
    fraction, least, limit = {"bf16": (7, -126, 2.0**128), "fp16": (10, -14, 2.0**16)}[rows_as]
    magnitude = np.abs(x.astype(np.float64))
    magnitude[~np.isfinite(x)] = 0
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, least)
    distance = np.ldexp(1.0, exponent - fraction)  # of the neighbours
    below = np.floor(magnitude / distance)
    part = magnitude / distance - below
    if bits is None:
        up = (part > 0.5) | ((part == 0.5) & (below % 2 == 1))
    else:
        up = np.floor(part * 65536) + bits >= 65536
    made = (below + up) * distance
    with np.errstate(over="ignore"):
        made = np.copysign(np.where(made >= limit, np.inf, made), x).astype(F)
    return np.where(np.isfinite(x), made, x)


def array_as(x, kind, numpys_own=False):
    """float32 as an array of a type, rounded to the nearest. `numpys_own`: bf16 as uint16."""
    x = rounded(np.asarray(x, F), kind)
    if kind == "fp16":
        return x.astype(np.float16)
    if kind == "fp32":
        return x
    bits = (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
    return bits if numpys_own or bfloat16 is None else bits.view(bfloat16)


def floats_of(array):
    """An array of 16 bits as float32, which is exact."""
    if array.dtype in (np.dtype(F), np.dtype(np.float16)):
        return array.astype(F)
    return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(F)


class Reference:
    """Tables side by side: rows of all of them are numbered through."""

    def __init__(self, weights, kind, devices=1, mean=False, step=0, rows_as="fp32", rounding="stochastic", seed=0):
        self.weights, self.kind, self.devices = weights.astype(F).copy(), kind, devices
        self.mean, self.step = mean, step
        self.rows_as, self.rounding, self.seed = rows_as, rounding, seed
        rows, dim = weights.shape
        floats = {"sgd": 0, "adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim, "adamw": 2 * dim}[kind]
        self.state = np.zeros((rows, floats), F)
        self.eps = F({"sgd": 0, "adagrad": 1e-10, "rowwise_adagrad": 1e-8, "adam": 1e-8, "adamw": 1e-8}[kind])

    def train(self, batches, lr):
        """batches: of each device, (rows[n], grads[n, dim]), or None without gradients."""
        totals = {}
        for batch in batches:
            if batch is None:
                continue
            rows, grads = batch
            for row in dict.fromkeys(int(row) for row in rows):
                summed = add_up([grads[i] for i in np.flatnonzero(rows == row)])
                totals[row] = totals[row] + summed if row in totals else summed
        for row, total in totals.items():
            self.apply(row, total / F(self.devices) if self.mean else total, F(lr))
        self.step += 1

    def apply(self, row, g, lr):
        w, s = self.weights[row], self.state[row]
        dim = len(w)
        if self.kind == "sgd":
            w[:] = fma(-lr, g, w)
        elif self.kind == "adagrad":
            s[:] = fma(g, g, s)
            w[:] = fma(-lr, g / (np.sqrt(s) + self.eps), w)
        elif self.kind == "rowwise_adagrad":
            lanes = np.zeros(32, F)
            for j in range(dim):
                lanes[j % 32] = fma(g[j], g[j], lanes[j % 32])
            half = 16
            while half:
                lanes[:half] = lanes[:half] + lanes[half:2 * half]
                half //= 2
            s[0] = s[0] + lanes[0] / F(dim)
            w[:] = fma(-(lr / (np.sqrt(s[0]) + self.eps)), g, w)
        else:
            power1 = power2 = 1.0
            for _ in range(self.step + 1):
                power1, power2 = power1 * float(F(0.9)), power2 * float(F(0.999))
            size = F(float(lr) * np.sqrt(1 - power2) / (1 - power1))
            m, v = s[:dim], s[dim:]
            if self.kind == "adamw":
                w[:] = fma(-(lr * F(0.01)), w, w)  # the default of weight_decay
            m[:] = fma(g - m, F(1) - F(0.9), m)
            v[:] = fma(fma(g, g, -v), F(1) - F(0.999), v)
            w[:] = fma(-size, m / (np.sqrt(v) + self.eps), w)
        bits = noise(self.seed, self.step, row, dim) if self.rounding == "stochastic" else None
        w[:] = rounded(w, self.rows_as, bits)
