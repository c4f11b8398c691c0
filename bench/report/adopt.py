"""The trainer of examples/adopt, without and with Frugal: bench_adopt."""
from report.page import kept, run, source
from report.record import Into, noted

RECORD = Into("adopt/trainers", ("words", "threads", 3), {"pairs": "thousand pairs/s", "ratio": "ratio",
                                                          "processor_seconds": "processor time, s"}, ("adopt",))


def measure():
    run("adopt", "bench/adopt/bench_adopt --json")


def cells(r):
    what = "Hogwild (before.c)" if r["what"] == "before" else f"Frugal (after.c), workers: {r['workers']}"
    speed = f"{r['pairs_per_s'] / 1e3:,.0f} ({r['min'] / 1e3:,.0f} to {r['max'] / 1e3:,.0f})"
    return [f"{r['words']:,}", f"{r['words'] * r['word_bytes'] / 1e6:,.0f}", r["threads"], what, speed,
            f"{r['ratio']:.2f}", f"{r['processor_seconds']:.2f}", f"{r['loss']:.3f}"]


def write():
    records = kept("adopt")["records"]
    one = records[0]
    page = (f"[`examples/adopt`](../examples/adopt) trains {one['pairs']:,} pairs, or a few more, because each thread "
            f"trains whole batches. The programs take turns; figures are medians of {one['rounds']} rounds. The ratio "
            f"compares the speed with that of the Hogwild trainer in the same round. Processor time is that of the "
            f"whole program. The loss on held-out pairs is {one['first_loss']:.3f} before training. The large "
            f"vocabulary has too few pairs here to learn from; it is there for the speed. Before the first run, "
            f"{one['load']:.2f} processes per processor were running or waiting to run.\n\n")
    headings = ["words", "table, MB", "threads", "", "thousand pairs/s", "ratio", "processor time, s", "held-out loss"]
    return page + noted(RECORD, headings, [cells(r) for r in records]) + source("adopt")
