"""Saving and restoring: bench_save, and what marking changed rows costs a step."""
from report.page import kept, run, skew, source, speed, table
from report.record import Into, noted

STEP = ("build/bench_step --json --workers 0,1 --mode p2f --optimizer sgd,rowwise-adagrad --rounds 11 "
        "--increments 0,1")


FIGURES = {"seconds": "seconds", "gbs": "GB/s", "bound": "of the bound"}
MARKS = Into("save/marking", ("optimizer", "keys", "workers"), {"ratio": "ratio"}, ("save-step",))


def measure():
    run("save", "build/bench_save --json --path build --rows 39062500 --changed 0.001,0.1")
    run("save-small", "build/bench_save --json --path build --rows 3906250 --dim 16 --optimizer sgd,adam "
        "--changed 0.001,0.01,0.1 --rounds 5")
    run("save-step", STEP)


def spread(r):
    return f"{r['seconds']:.3g} ({r['min']:.3g} to {r['max']:.3g})"


def saved(name, keeps):
    """`keeps`: figures go into the record, too, because pages show them."""
    rows = []
    for r in kept(name)["records"]:
        made, over = r["file_bytes"], r["file_bytes"] / r["bytes"]
        part = f"{r['changed']:.1%}" if r["what"] in ("increment", "resume") else ""
        bound = r["what"] in ("save", "restore", "restore, in memory", "increment", "resume")
        file = [f"{made / 1e6:,.1f}", f"{over:.3f}"] if made else ["", ""]
        rows.append([r["optimizer"], r["what"], part, spread(r), f"{r['gb_per_s']:.2f}",
                     f"{r['share']:.2f}" if bound else "", *file])
    headings = ["optimizer", "", "rows changed", "seconds", "GB/s", "of the bound", "file, MB", "over its rows"]
    if not keeps:
        return table(headings, rows)
    return noted(Into("save/" + name, (0, 1, 2), FIGURES, (name,), lambda row: row[0] == "sgd"), headings, rows)


def marked(records):
    found = {}
    for r in records:
        found.setdefault((r["optimizer"], r["zipf"], r["workers"]), {})[r["increments"]] = r
    rows = [[optimizer, skew(pair[0]), workers, speed(pair[0]), speed(pair[1]),
             f"{pair[1]['keys_per_s'] / pair[0]['keys_per_s']:.2f}"]
            for (optimizer, _, workers), pair in found.items()]
    return noted(MARKS, ["optimizer", "keys", "workers", "M keys/s", "with increments", "ratio"], rows)


def size_of(records):
    r = records[0]
    return (f"{r['rows']:,} rows x {r['dim']} floats, {r['threads']} threads that read or write, medians of "
            f"{r['rounds']}")


def write():
    large, small = kept("save")["records"], kept("save-small")["records"]
    page = ("Saving a table and restoring it, compared with copying the same bytes in memory (memcpy), writing and "
            "syncing them by plain calls (write), and reading them by plain calls (read). Files are read from the "
            "disk, with no part of them in memory before, and again from memory. The bound is the speed of memcpy, or "
            "of write or read if that is lower. An increment has the rows that were trained since the last save. To "
            "resume is to open an instance with the base and one increment, from the disk. Opening an instance takes "
            "new memory, which the system has to clear; plain reading uses the same memory again.\n\n"
            f"{size_of(large)}:\n\n")
    page += saved("save", 1) + f"\n{size_of(small)}:\n\n" + saved("save-small", 0)
    page += ("\nThe cost of marking the rows that change, which `frugal_desc.increments` asks for; runs with and "
             "without it take turns:\n\n" + marked(kept("save-step")["records"]))
    return page + source("save", "save-small", "save-step")
