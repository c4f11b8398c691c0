"""The part "steps" of bench_python.py: time of a training step of one large table, in alternating rounds."""
from __future__ import annotations

import itertools
import statistics
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import torch

import contenders
import memory
from contenders import Shape

ROUND_SECONDS = 0.4  # that the slowest contender takes at most in a round, where LEAST_STEPS take less
FIRST_STEPS, MOST_STEPS, LEAST_STEPS = 6, 400, 4
CHECKED_STEPS = 3


class Draws:
    """Keys of a distribution over `rows` rows. The frequent rows of a Zipf distribution lie anywhere in the table."""

    def __init__(self, distribution: str, rows: int):
        self.rows, self.sums = rows, None
        self.generator = np.random.default_rng(1)
        if distribution != "uniform":
            weights = np.arange(1, rows + 1, dtype=np.float64) ** -float(distribution[len("zipf"):])
            self.sums = np.cumsum(weights)
            self.places = self.generator.permutation(rows)

    def draw(self, n: int) -> torch.Tensor:
        """int64 [n]"""
        if self.sums is None:
            return torch.from_numpy(self.generator.integers(0, self.rows, n))
        ranks = np.searchsorted(self.sums, self.generator.random(n) * self.sums[-1])
        return torch.from_numpy(self.places[np.minimum(ranks, self.rows - 1)])


class Different(Exception):
    """A contender has trained other rows than PyTorch."""


def check(names: List[str], shape: Shape) -> None:
    """Trains a small table of each contender some steps, and compares all rows with those that PyTorch has."""
    small = Shape(min(shape.rows, 2 * shape.keys + 100), shape.dim, shape.optimizer, shape.keys, shape.bag)
    values = contenders.uniform(small.rows, small.dim)
    drawn = [Draws("uniform", small.rows).draw(small.keys) for _ in range(CHECKED_STEPS)]
    expected = contenders.reference(small, values)
    expected.train([expected.prepare(keys) for keys in drawn])
    for name in names:
        library, _, with_loader = name.partition("+")
        table = contenders.make(library, small, values)
        table.loader = bool(with_loader)
        table.train([table.prepare(keys) for keys in drawn])
        found = table.rows()
        part, least = table.tolerance
        if not torch.allclose(found, expected.rows(), rtol=part, atol=least):
            worst = int((found - expected.rows()).abs().amax(1).argmax())
            raise Different(f"{name}, {small}: rows that differ from PyTorch's by at most {part:g} of their value are "
                            f"wanted; after {CHECKED_STEPS} steps row {worst} begins with {found[worst, 0]:.8g}, and "
                            f"PyTorch's with {expected.rows()[worst, 0]:.8g}")
        table.close()


class Tables:
    """The open tables: those of one optimizer, pooled or not, which serve all configurations that they can."""

    def __init__(self, say: Callable[[str], None], skipped: Callable[[str, str], None]):
        self.say, self.skipped = say, skipped
        self.open: Dict[str, Any] = {}
        self.kind: Any = None
        self.pages: Dict[str, Any] = {}  # of this process, while the tables of one optimizer were open

    def get(self, names: List[str], shape: Shape) -> Dict[str, Any]:
        """The table of each library of `names` that can train this shape."""
        kind = (shape.optimizer, shape.bag > 0)
        if kind != self.kind:
            self.close()
            self.kind = kind
        found = {}
        for name in names:
            table = self.open.get(name)
            if table is not None and not table.serves(shape.keys):
                self.open.pop(name).close()
                table = None
            if table is None:
                self._ask_memory(name, shape)
                since = time.perf_counter()
                try:
                    table = self.open[name] = contenders.make(name, shape)
                except contenders.NotInstalled as reason:
                    self.skipped(name, str(reason))
                    continue
                except contenders.Skipped as reason:
                    self.skipped(f"{name}, {shape.optimizer}{'' if shape.bag else ', not pooled'}", str(reason))
                    continue
                self.say(f"{name}: opened {shape.rows:,} rows for {shape.optimizer} in "
                         f"{time.perf_counter() - since:.1f} s")
            table.use(shape.keys, shape.bag)
            found[name] = table
        return found

    def _ask_memory(self, name: str, shape: Shape) -> None:
        try:
            with open("/proc/meminfo", encoding="ascii") as file:
                free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
        except (OSError, StopIteration):
            return
        wanted = shape.bytes(contenders.LIBRARIES[name.partition("/")[0]].weight_bytes)
        if wanted > free * 0.95:
            raise MemoryError(f"{name}: {wanted / 1e9:.1f} GB are wanted for {shape.rows:,} rows with "
                              f"{shape.optimizer}; {free / 1e9:.1f} GB are available. Give fewer --rows or fewer "
                              "--contenders")

    def close(self) -> None:
        if self.open and not self.pages:
            self.pages = memory.huge_pages()
        while self.open:
            self.open.popitem()[1].close()


def measure(tables: Dict[str, Any], names: List[str], shape: Shape, draws: Draws, options: Any) -> Dict[str, Any]:
    """Milliseconds a step of each of `names`, over rounds in which each trains the same batches. The first round is not
    counted; the steps of the others depend on the slowest contender in it. A name with "+loader" is the table before
    it, with a Loader."""
    steps, slowest = options.steps or FIRST_STEPS, 0.0
    times: Dict[str, List[float]] = {name: [] for name in names}
    for turn in range(options.rounds + 1):
        drawn = [draws.draw(shape.keys) for _ in range(steps)]
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            library, _, with_loader = name.partition("+")
            table = tables[library]
            table.loader = bool(with_loader)
            batches = [table.prepare(keys) for keys in drawn]
            since = time.perf_counter()
            table.train(batches)
            seconds = (time.perf_counter() - since) / steps
            if turn:
                times[name].append(seconds * 1e3)
            slowest = max(slowest, seconds)
        if turn == 0 and not options.steps:
            steps = max(LEAST_STEPS, min(MOST_STEPS, int(ROUND_SECONDS / slowest)))
    return {"steps_a_round": steps, "ms": {name: statistics.median(of) for name, of in times.items()},
            "least_ms": {name: min(of) for name, of in times.items()},
            "most_ms": {name: max(of) for name, of in times.items()}}


def libraries_of(options: Any) -> List[str]:
    """The names of tables that the options ask for: Frugal for each number of devices, then the others."""
    ours = ["frugal" if n == 1 else f"frugal/{n}" for n in options.devices] if "frugal" in options.contenders else []
    return ours + [name for name in options.contenders if name != "frugal"]


def run(options: Any, say: Callable[[str], None],
        skipped: Callable[[str, str], None]) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """All configurations that the options ask for; and memory.huge_pages() while tables were open."""
    report: List[Dict[str, Any]] = []
    tables = Tables(say, skipped)
    drawers: Dict[str, Draws] = {}
    libraries = libraries_of(options)
    try:
        # In this order, so that few tables are opened: by optimizer, pooled or not, and number of keys.
        for optimizer, pooled, wanted in itertools.product(options.optimizers, (True, False), options.keys):
            for bag in [bag for bag in options.bags if bool(bag) == pooled]:
                each = max(bag, 1) * int(np.lcm.reduce(options.devices))  # whole bags for each device
                shape = Shape(options.rows, options.dim, optimizer, wanted // each * each, bag)
                if shape.keys == 0:
                    skipped(f"{wanted} keys, bag {bag}", f"{each} keys are one bag for each device")
                    continue
                open_ones = tables.get(libraries, shape)
                names = list(open_ones)
                if wanted in options.loader:
                    names += [f"{name}+loader" for name in names if name.startswith("frugal")]
                check(names, shape)
                for distribution in options.distributions:
                    if distribution not in drawers:
                        drawers[distribution] = Draws(distribution, options.rows)
                    found = measure(open_ones, names, shape, drawers[distribution], options)
                    report.append({"optimizer": optimizer, "keys": shape.keys, "bag": bag,
                                   "distribution": distribution, **found})
                    say(line_of(report[-1]))
    finally:
        tables.close()
    return report, tables.pages


def line_of(entry: Dict[str, Any]) -> str:
    what = f"bag {entry['bag']}" if entry["bag"] else "not pooled"
    return (f"{entry['optimizer']}, {entry['keys']:,} keys, {what}, {entry['distribution']}: "
            + ", ".join(f"{name} {ms:.3g}" for name, ms in entry["ms"].items()) + " ms a step")


def table_of(report: List[Dict[str, Any]]) -> List[str]:
    """Lines of a table in Markdown: milliseconds a step; in parentheses, how many times that of the first column."""
    names = list(dict.fromkeys(name for entry in report for name in entry["ms"]))
    names.sort(key=lambda name: (not name.startswith("frugal"), "+" in name))
    lines = [f"| optimizer | keys | bag | drawn | {' | '.join(names)} |", "|" + " --- |" * (4 + len(names))]
    for entry in report:
        base = entry["ms"].get(names[0])
        cells = []
        for name in names:
            ms = entry["ms"].get(name)
            ratio = "" if ms is None or base is None or name == names[0] else f" ({ms / base:.2f})"
            cells.append("-" if ms is None else f"{ms:.3g}{ratio}")
        lines.append(f"| {entry['optimizer']} | {entry['keys']:,} | {entry['bag'] or 'none'} | "
                     f"{entry['distribution']} | {' | '.join(cells)} |")
    return lines
