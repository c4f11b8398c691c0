"""What the four programs of this folder share: a click log that is generated, options, first values, and what is
printed. A click depends on hidden weights of the keys, so there is something to learn."""
import argparse
import resource
import sys
import time

import torch

NUMBERS = 13
FEATURES = {"item": "item", "history": "item", "user": "user", "place": "place", "page": "page"}  # and their tables
TABLES = ["item", "user", "place", "page"]
MOST = 6  # keys of a history; other features have one
KEYS = len(FEATURES) - 1 + MOST  # the most of a sample


class Batch:
    """numbers float32 [batch, NUMBERS], clicks float32 [batch]; keys int64 [n], those of the features one behind the
    other, and lengths int64 [features * batch]."""

    def __init__(self, rows, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.ones(len(FEATURES), size, dtype=torch.int64)
        self.lengths[list(FEATURES).index("history")] = torch.randint(0, MOST + 1, (size,), generator=generator)
        n = int(self.lengths.sum())
        self.keys = (torch.rand(n, generator=generator) ** 4 * rows).long().clamp_(max=rows - 1)
        self.numbers = torch.randn(size, NUMBERS, generator=generator)
        sample = torch.arange(size).repeat(len(FEATURES)).repeat_interleave(self.lengths.view(-1))
        table = torch.tensor([TABLES.index(used) for used in FEATURES.values()])
        of_key = table.repeat_interleave(self.lengths.sum(1))
        hidden = torch.sin(self.keys.double() * 12.9898 + of_key * 78.233).float()
        chance = torch.sigmoid(torch.zeros(size).index_add_(0, sample, hidden) + 0.3 * self.numbers.sum(1))
        self.clicks = (torch.rand(size, generator=generator) < chance).float()
        self.lengths = self.lengths.view(-1)

    def features(self):
        """{feature: (keys [n], offsets [batch])}."""
        lengths = self.lengths.view(len(FEATURES), -1)
        keys = self.keys.split(lengths.sum(1).tolist())
        return {name: (keys[at], lengths[at].cumsum(0) - lengths[at]) for at, name in enumerate(FEATURES)}


def read_options(about):
    parser = argparse.ArgumentParser(description=about)
    for name, default in (("rows", 100000), ("dim", 16), ("batch", 1024), ("steps", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.05)
    return parser.parse_args()


def log(options):
    """Batches for training, and those held out."""
    batches = [Batch(options.rows, options.batch, seed) for seed in range(options.steps * 10 // 9)]
    return batches[:options.steps], batches[options.steps:]


def first_rows(table, options):
    """float32 [rows, dim]: the first values of a table, the same in all programs."""
    generator = torch.Generator().manual_seed(TABLES.index(table))
    return torch.rand(options.rows, options.dim, generator=generator) * 0.1 - 0.05


def layers(*sizes):
    made = []
    for before, after in zip(sizes, sizes[1:]):
        made += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*made[:-1])


def auc(scores, clicks):
    """The share of pairs of a click and a non-click that the scores order rightly."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positive = clicks.sum().item()
    return (ranks[clicks > 0].sum().item() - positive * (positive + 1) / 2) / (positive * (len(clicks) - positive))


class Report:
    """Prints a loss now and then, and at the end AUC, peak memory and time."""

    def __init__(self):
        self.step, self.since = 0, time.perf_counter()

    def trained(self, loss):
        if self.step % 50 == 0:
            print(f"step {self.step:4}  loss {loss.item():.6f}")
        self.step += 1

    def print(self, score, held_out):
        """`score`: from a batch, logits [batch]."""
        seconds = time.perf_counter() - self.since
        with torch.no_grad():
            of = auc(torch.cat([score(batch) for batch in held_out]), torch.cat([one.clicks for one in held_out]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(f"AUC {of:.5f}; {peak / 1e6:.0f} MB at most; {seconds / max(self.step, 1) * 1000:.2f} ms a step")
