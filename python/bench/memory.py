"""The part "memory" of bench_python.py: memory beside a table. And what the machine says of memory in large pages.

Each table is opened in a process of its own, which this file is, too: it notes its resident memory after a small table
has been trained, because that loads the libraries; opens the table, and trains each row once, because memory that was
never written is not resident. What it has then beyond the first figure, less the bytes of rows and optimizer state,
lies beside the table. The buffers of a step, whose size depends on --keys and not on --rows, are part of it.
"""
from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
from typing import Any, Callable, Dict, List

WARM_ROWS, WARM_KEYS, WARM_STEPS = 1000, 64, 3


def of_process(name: str, file: str = "status") -> int:
    """Bytes, from /proc/self/status or another file like it."""
    with open(f"/proc/self/{file}", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


def huge_pages() -> Dict[str, Any]:
    """The machine's setting, and how much of this process's memory lies in huge pages now. Empty where unknown."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            setting = file.read().split("[")[1].split("]")[0]
        return {"transparent_hugepage": setting, "resident_bytes": of_process("Rss", "smaps_rollup"),
                "in_huge_pages_bytes": of_process("AnonHugePages", "smaps_rollup")}
    except (OSError, IndexError, StopIteration):
        return {}


def child(name: str, numbers: Dict[str, Any]) -> None:
    """Prints the figures of one table, as JSON."""
    import torch
    import contenders
    shape = contenders.Shape(**numbers)
    small = dataclasses.replace(shape, rows=WARM_ROWS, keys=WARM_KEYS)
    table = contenders.make(name, small)
    table.train([table.prepare(torch.arange(WARM_KEYS)) for _ in range(WARM_STEPS)])
    table.close()
    del table
    gc.collect()
    before = of_process("VmRSS")
    table = contenders.make(name, shape)
    for first in range(0, shape.rows, shape.keys):
        table.train([table.prepare(torch.arange(first, first + shape.keys) % shape.rows)])
    gc.collect()
    table_bytes = shape.bytes(table.weight_bytes)
    beside = of_process("VmRSS") - before - table_bytes
    print(json.dumps({"table_bytes": table_bytes, "before_bytes": before, "beside_bytes": beside,
                      "beside_bytes_a_row": beside / shape.rows,
                      "most_beside_bytes_a_row": (of_process("VmHWM") - before - table_bytes) / shape.rows,
                      **huge_pages()}))
    table.close()


def run(options: Any, libraries: List[str], say: Callable[[str], None],
        skipped: Callable[[str, str], None]) -> List[Dict[str, Any]]:
    """The figures of all libraries and optimizers, with the first of --keys, bags of one key."""
    try:
        of_process("VmRSS")
    except (OSError, StopIteration):
        skipped("memory", "it is read from /proc/self/status, which is not here")
        return []
    import contenders
    report: List[Dict[str, Any]] = []
    keys = min(options.keys[0], options.rows)
    for optimizer in options.optimizers:
        for name in libraries:
            devices = int(name.partition("/")[2] or 1)
            numbers = dict(rows=options.rows, dim=options.dim, optimizer=optimizer, keys=keys // devices * devices,
                           bag=1)
            try:
                contenders.make(name, dataclasses.replace(contenders.Shape(**numbers), rows=WARM_ROWS)).close()
            except contenders.Skipped as reason:
                what = name if isinstance(reason, contenders.NotInstalled) else f"{name}, {optimizer}"
                skipped(what, str(reason))
                continue
            made = subprocess.run([sys.executable, "-W", "ignore", __file__, name, json.dumps(numbers)],
                                  capture_output=True, text=True, check=False)
            if made.returncode:
                raise RuntimeError(f"memory of {name}, {optimizer}: the process ended with {made.returncode}: "
                                   f"{made.stderr[-2000:]}")
            found = json.loads(made.stdout.splitlines()[-1])
            report.append({"optimizer": optimizer, "contender": name, "keys": numbers["keys"], **found})
            say(f"memory of {name}, {optimizer}: {found['beside_bytes_a_row']:.2f} bytes a row beside the table")
    return report


def table_of(report: List[Dict[str, Any]]) -> List[str]:
    lines = ["| optimizer | contender | keys a step | beside the table, MB | bytes a row | at most |",
             "| --- | --- | --- | --- | --- | --- |"]
    return lines + [f"| {entry['optimizer']} | {entry['contender']} | {entry['keys']:,} | "
                    f"{entry['beside_bytes'] / 1e6:.1f} | {entry['beside_bytes_a_row']:.2f} | "
                    f"{entry['most_beside_bytes_a_row']:.2f} |" for entry in report]


if __name__ == "__main__":
    try:
        child(sys.argv[1], json.loads(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
