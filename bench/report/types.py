"""Weights of 16 bits: their speed on host cores (bench_rows), and what is learnt (bench/place/bench_quality)."""
from report.page import kept, run, source
from report.quality import difference, grouped, mean, seeds, spread
from report.record import Into, noted

ROWS = " --rows-as fp32,bf16,fp16 --dim 32,128 --rounds 25"
GATHERS = Into("types/gather", ("dim", "rows"), {"ns": 2, "times": 3, "halves_times": 5}, ("types",))
UPDATES = Into("types/update", ("optimizer", "dim"), {"fp32": 2, "bf16": 3, "fp16": 5, "times": 6}, ("types-update",))
LEARNT = {"mean": 3, "spread": 5}
MRR = Into("types/mrr", ("graph", "rows"), LEARNT, ("types-mrr",))
AUC = Into("types/auc", ("log", "rows"), LEARNT, ("types-auc",))


def measure():
    run("types", "build/bench_rows --json --op gather --as fp32,bf16 --zipf 0" + ROWS)
    run("types-update", "build/bench_rows --json --op apply --place memory --optimizer sgd,rowwise-adagrad "
                        "--rounding stochastic,nearest" + ROWS)


def measure_quality():
    for name in ("types-mrr", "types-auc"):
        run(name, f"bench/place/bench_quality --json --experiment {name}")


def widest(records):
    """Those of the largest instruction set that was measured."""
    sets = dict.fromkeys(r["set"] for r in records)
    best = next(name for name in ("avx512", "avx2", "baseline") if name in sets)
    return [r for r in records if r["set"] == best]


def gathers(records):
    found = {(r["dim"], r["rows_as"], r["as"]): r["ns"] for r in widest(records)}
    rows = []
    for dim in sorted({dim for dim, _, _ in found}):
        for rows_as in ("fp32", "bf16", "fp16"):
            floats, halves = found[dim, rows_as, "fp32"], found[dim, rows_as, "bf16"]
            base = found[dim, "fp32", "fp32"]
            rows.append([dim, rows_as, f"{floats:.0f}", f"{base / floats:.2f}", f"{halves:.0f}",
                         f"{base / halves:.2f}"])
    return noted(GATHERS, ["dim", "rows", "into floats, ns", "as fast as fp32, times", "into bf16, ns", "times"], rows)


def updates(records):
    found = {(r["optimizer"], r["dim"], r["rows_as"], r["rounding"]): r["ns"] for r in widest(records)}
    rows = []
    for optimizer, dim in dict.fromkeys((o, d) for o, d, _, _ in found):
        one = [found[optimizer, dim, *which] for which in (("fp32", "stochastic"), ("bf16", "stochastic"),
                                                          ("bf16", "nearest"), ("fp16", "stochastic"))]
        rows.append([optimizer, dim, *(f"{ns:.0f}" for ns in one), f"{one[0] / one[1]:.2f}"])
    return noted(UPDATES, ["optimizer", "dim", "fp32, ns", "bf16", "bf16, nearest", "fp16", "bf16 as fast as fp32, "
                           "times"], rows)


def write():
    page = ("Nanoseconds a row on one core, random rows of a table that has 512 MiB with fp32, rounded stochastically "
            "unless it is said. A gather copies rows into an array by position, of floats or of bf16:\n\n")
    page += gathers(kept("types")["records"])
    page += ("\nOne optimizer step on a row, whose gradient is in order in memory. An update draws random bits and "
             "rounds, so with short rows it takes longer than with fp32:\n\n")
    return page + updates(kept("types-update")["records"]) + source("types", "types-update")


def compared(into, field, name, records):
    rows = []
    for (what,), each in grouped(records, field).items():
        types = grouped(each, "rows_as", "rounding")
        base = types["fp32", None]
        for (rows_as, rounding), runs in types.items():
            rows.append([what, rows_as if rounding in (None, "stochastic") else f"{rows_as}, {rounding}",
                         seeds(runs, name), f"{mean(runs, name):.4f}",
                         difference(runs, base, name) if runs is not base else "", f"{spread(runs, name):.4f}"])
    return noted(into, [field, "rows", f"{name.upper()} of three seeds", "mean", "less that of fp32",
                        "spread of seeds"], rows)


def worst(name, field):
    """The largest difference of the means from fp32, of bf16 that is rounded stochastically."""
    differences = []
    for each in grouped(kept(name)["records"], *(["graph"] if field == "mrr" else ["log"])).values():
        types = grouped(each, "rows_as", "rounding")
        differences.append(mean(types["bf16", "stochastic"], field) - mean(types["fp32", None], field))
    return max(differences, key=abs)


def write_quality():
    graphs, logs = kept("types-mrr")["records"], kept("types-auc")["records"]
    page = ("Rows of 16 bits are rounded stochastically unless it is said; everything else is the programs' default. "
            "Seeds differ in first values, negatives, the order of samples, and random bits of the rounding. Test MRR "
            "of TransE:\n\n")
    page += compared(MRR, "graph", "mrr", graphs)
    page += "\nHeld-out AUC of DLRM:\n\n"
    page += compared(AUC, "log", "auc", logs)
    page += (f"\nThe mean of bf16, rounded stochastically, differs from that of fp32 by at most "
             f"{abs(worst('types-mrr', 'mrr')):.4f} in MRR and {abs(worst('types-auc', 'auc')):.4f} in AUC.\n")
    return page + source("types-mrr", "types-auc")
