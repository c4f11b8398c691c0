"""Click logs: bench/step/bench_dlrm."""
from report.page import kept, plot, run, source, table
from report.record import Into, noted
from report.step import MODES


RUNS = ("dlrm",)
QUALITY = Into("clicks/quality", ("log", "model"), {"auc": "AUC", "best": "best possible"}, RUNS,
               lambda row: row[1] == "dlrm")
SPEED = Into("clicks/speed", (0, 1), {"samples": "samples/s", "of_baseline": "of the faster baseline",
                                      "stall_ms": "stall, ms a step"}, ("dlrm-speed",))
SCALE = Into("clicks/scale", (0,), {"file_gib": "file, GiB", "samples": "samples/s"}, RUNS, lambda row: row[1])


def measure():
    run("dlrm", "bench/step/bench_dlrm --experiment quality,read,scale --json")


def measure_speed():
    run("dlrm-speed", "bench/step/bench_dlrm --experiment speed --json")


def samples(r):
    return f"{r['median']:,.0f} ({r['min']:,.0f} to {r['max']:,.0f})"


def predicted(tried):
    page = ("Held-out samples, predicted after one pass over the others, in the order of the log (`--epochs 1 "
            "--shuffle 0`). All other settings are the program's defaults, "
            "except the layers (64, 32) for the generated log (made up). Seconds are of the whole run.\n\n")
    page += noted(QUALITY, ["log", "model", "AUC", "best possible", "log loss", "seconds"],
                  [[r["log"], r["what"], f"{r['auc']:.4f}", f"{r['best_auc']:.4f}" if r["best_auc"] else "",
                    f"{r['logloss']:.4f}", f"{r['total_seconds']:.1f}"] for r in tried])
    made_up = [r for r in tried if r["curve"]]
    learned = {f"model{i}": r["curve"] for i, r in enumerate(made_up)}
    lines = ", ".join(f"${key} using 1:2 with lines title '{r['what']}'" for key, r in zip(learned, made_up))
    return page + plot("dlrm", "AUC of 100,000 held-out samples of a log made up", "set yrange [0.75:0.81]\n"
                       f"plot {lines}, {made_up[0]['best_auc']} with lines dt 2 title 'planted'",
                       learned, ("samples trained on", "AUC"))


def ratio(r):
    found = r.get("of_best_baseline")
    return f"{found['median']:.2f}" if found else ""


def write_speed():
    rows = []
    for r in kept("dlrm-speed")["records"]:
        ours = "stall_ms_a_step" in r
        rows.append([MODES.get(r["what"], r["what"]), r["threads"], samples(r), ratio(r),
                     f"{r['stall_ms_a_step']:.3f}" if ours else "", f"{r['reading_busy']:.1%}" if ours else ""])
    return ("Click logs that are generated while they are read: 26 features, 13 numbers, 10M rows of 32 floats, Zipf "
            "0.99, 1024 samples per step over all devices, layers 13-64-32 and 383-512-512-256-1, Adagrad. Besides the "
            "threads that compute, ours has a loader, which reads and announces, and one worker; PyTorch and FBGEMM "
            "find their samples ready in memory.\n\n" +
            noted(SPEED, ["", "threads that compute", "samples/s", "of the faster baseline", "stall, ms a step",
                          "the loader reads, of the time"], rows) + source("dlrm-speed"))


def scaled(grown):
    page = ("\nLarge tables, row-wise Adagrad, layers 64-32, first values zero; peak memory after a tenth of the "
            "steps and after all. The file is sparse. The peak includes those of its pages that are in memory, which "
            "the system takes back when it needs memory. Each row also has a word of 8 bytes in memory:\n\n")
    rows = []
    for r in grown:
        file = [f"{r['file_gib']:.1f}", f"{r['on_disk_gib']:.1f}"] if "file_gib" in r else ["", ""]
        rows.append([r["what"], *file, r["steps_tenth"], f"{r['peak_rss_mib_tenth']:,.0f}", r["steps_all"],
                     f"{r['peak_rss_mib_all']:,.0f}", f"{1024 * r['steps_all'] / r['seconds_all']:,.0f}"])
    return page + noted(SCALE, ["", "file, GiB", "of it on disk", "steps", "peak MiB", "steps", "peak MiB",
                                "samples/s"], rows)


def write():
    records = kept("dlrm")["records"]

    def of(experiment):
        return [r for r in records if r["experiment"] == experiment]

    page = predicted(of("quality"))
    page += "\nReading a log in Criteo's format, by the loader, which is one thread:\n\n"
    page += table(["", "samples/s", "bytes a sample"],
                  [[r["what"], samples(r), f"{r['bytes_a_sample']:.0f}"] for r in of("read")])
    return page + scaled(of("scale")) + source("dlrm")
