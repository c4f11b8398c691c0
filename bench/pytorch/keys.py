"""Keys for the baselines in PyTorch, drawn as bench/keys.c does."""
import numpy


def draw(rows, keys, batches, theta, generator):
    """Zipf-distributed ranks (Gray et al., SIGMOD 1994), spread by a multiplicative permutation; theta 0: uniform."""
    u = generator.random(batches * keys)
    if theta == 0:
        ranks = (u * rows).astype(numpy.int64)
    else:
        zeta = numpy.sum(numpy.arange(1, rows + 1, dtype=numpy.float64) ** -theta)
        eta = (1 - (2.0 / rows) ** (1 - theta)) / (1 - (1 + 0.5**theta) / zeta)
        ranks = (rows * (eta * u - eta + 1) ** (1 / (1 - theta))).astype(numpy.int64)
        ranks[u * zeta < 1 + 0.5**theta] = 1
        ranks[u * zeta < 1] = 0
        ranks = (numpy.minimum(ranks, rows - 1) + 1) * 2654435761 % rows
    return ranks.reshape(batches, keys)
