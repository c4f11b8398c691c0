"""The trainer of examples/adopt without Frugal and with it: bench_adopt."""
from report.page import kept, run, source, table


def measure():
    run("adopt", "bench/adopt/bench_adopt --json")


def write():
    records = kept("adopt")["records"]
    one = records[0]
    page = (f"[`examples/adopt`](../examples/adopt): {one['pairs']:,} pairs or a few more, so that each thread has whole "
            f"batches. The programs take turns, medians of {one['rounds']} rounds; the ratio is to the Hogwild trainer "
            f"in the same round. The loss on held-out pairs is {one['first_loss']:.3f} before training. When this began, "
            f"{one['load']:.1f} processes a processor ran already or waited to, so compare only within the table.\n\n")
    rows = []
    for r in records:
        what = "Hogwild (before.c)" if r["what"] == "before" else f"Frugal (after.c), workers: {r['workers']}"
        speed = f"{r['pairs_per_s'] / 1e3:,.0f} ({r['min'] / 1e3:,.0f} to {r['max'] / 1e3:,.0f})"
        rows.append([r["threads"], what, speed, f"{r['ratio']:.2f}", f"{r['processor_seconds']:.2f}", f"{r['loss']:.3f}"])
    headings = ["threads", "", "thousand pairs/s", "ratio", "processor time, s", "held-out loss"]
    return page + table(headings, rows) + source("adopt")
