"""The judge: sequential training in NumPy, written from frugal.h and not from the library's code. Bit for bit.

Arithmetic is float32. Each product that is added is a fused multiply-add, computed here in double with rounding to odd.
"""
import numpy as np

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


class Reference:
    """Tables side by side: rows of all of them are numbered through."""

    def __init__(self, weights, kind, devices=1, mean=False, step=0):
        self.weights, self.kind, self.devices = weights.astype(F).copy(), kind, devices
        self.mean, self.step = mean, step
        rows, dim = weights.shape
        floats = {"sgd": 0, "adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim}[kind]
        self.state = np.zeros((rows, floats), F)
        self.eps = F({"sgd": 0, "adagrad": 1e-10, "rowwise_adagrad": 1e-8, "adam": 1e-8}[kind])

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
            m[:] = fma(g - m, F(1) - F(0.9), m)
            v[:] = fma(fma(g, g, -v), F(1) - F(0.999), v)
            w[:] = fma(-size, m / (np.sqrt(v) + self.eps), w)
