"""Samples dealt by locality: bench_place, and bench_sim with dealt samples."""
import os
import re

from report.page import ROOT, curves, kept, plot, run, source, table
from report.record import Into, noted

PLACE = "build/bench_place --json "
POLICIES = ",".join(re.findall(r'"([a-z]+)"', re.search(r"bench_policies\[\] = (.*);", open(
    os.path.join(ROOT, "bench", "choices.h")).read()).group(1)))
REAL = "fb15k-237,wn18rr"
RATIOS = ".003,.006,.015,.03,.32,.64" # section 5 of the frequency-aware cache
KEPT = "--devices 1,2,8 --cache .05,.1,.5 --policy counted,lru --alone place,kept"
SIM = (f"build/bench_sim --json --communities samples=200000,rows=200000 --keys 2560 --dim 128 --warm-up 60 "
       f"--policy {POLICIES} ")


def measure():
    run("place-partitions", PLACE + f"--what partitions --trace {REAL},adult --rounds 5")
    run("place-large", PLACE + "--what partitions --trace planted --rounds 1 --method random,bicut,het-gmp,two-level")
    run("place-metis", PLACE + "--what partitions --trace planted --rounds 1 --devices 8 --method metis")
    run("place-skew", PLACE + "--what skew")
    run("place-rounds", PLACE + f"--what partitions --trace {REAL},planted --devices 8 --rounds 1 "
        "--method bicut,het-gmp-1,het-gmp-3,het-gmp,two-level")
    run("place-pairs", PLACE + f"--what pairs --trace {REAL} --devices 8 "
        "--method random,het-gmp,het-gmp-halves,two-level")
    for name, options in PLANTED.items():
        run(f"place-planted-{name}", PLACE + "--what partitions --trace planted --samples 200000 --rows 200000 "
            f"--devices 8 --rounds 1 --method random,bicut,het-gmp,two-level {options}")
    run("place-refining", PLACE + "--what refining --trace fb15k-237 --devices 8 --rounds 11")
    run("place-refining-large", PLACE + "--what refining --trace planted --devices 8 --rounds 3")
    run("place-reads", PLACE + f"--what reads --trace {REAL}")
    run("place-reads-large", PLACE + "--what reads --trace planted --warm-up 60 --steps 30")
    run("place-ratios", PLACE + f"--what reads --trace {REAL} --devices 1,8 --cache {RATIOS}")
    run("place-ratios-large", PLACE + f"--what reads --trace planted --devices 1,8 --cache {RATIOS} --warm-up 60 "
        "--steps 30")
    run("place-kept", PLACE + f"--what reads --trace {REAL} {KEPT}")
    run("place-kept-large", PLACE + f"--what reads --trace planted {KEPT} --warm-up 60 --steps 30")
    run("place-sim", SIM + f"--system frugal,inplace --gpus 1,8 --steps 20 --cache {RATIOS}")


# What is not published of these logs is how their fields depend on each other: this share of the ids is of the sample's
# community, one of 1,000.
LOGS = {f"{samples}-{own}": f"--samples {samples} --own {own}" for samples in (100000, 1000000) for own in ("0", ".5",
                                                                                                         ".9")}


def measure_logs():
    for name, options in LOGS.items():
        run(f"place-logs-{name}", PLACE + "--what partitions --trace criteo,avazu --communities 1000 --devices 2,4,8 "
            f"--rounds 1 --method random,het-gmp,two-level {options}")


PLANTED = {
    "even-8": "--communities 8 --zipf 0",
    "8": "--communities 8 --zipf .95",
    "even-64": "--communities 64 --zipf 0",
    "64": "--communities 64 --zipf .95",
    "even-1000": "--communities 1000 --zipf 0",
    "1000": "--communities 1000 --zipf .95",
}
METHODS = ("random", "bicut", "het-gmp", "two-level", "metis")
NAMES = {"random": "random", "bicut": "BiCut", "het-gmp": "HET-GMP, 5 rounds", "two-level": "two levels",
         "metis": "METIS"}
OTHERS = {"het-gmp-1": "HET-GMP, 1 round", "het-gmp-3": "HET-GMP, 3 rounds",
          "het-gmp-halves": "HET-GMP, weighted pairs"}
# HET-GMP's Table 3: remote reads of an epoch saved, against random parts, %, of Company, Criteo and Avazu; and seconds.
THEIR_TABLE_3 = {"bicut": ("13.5, 16.5, 18.7", "268, 124, 52"), "het-gmp-1": ("37.3, 51.0, 63.1", "358, 202, 115"),
                 "het-gmp-3": ("59.7, 62.6, 67.0", "589, 324, 192"), "het-gmp": ("63.8, 63.5, 67.7", "799, 435, 265")}
FIGURES = {"random": "random", "bicut": "BiCut", "het_gmp": "HET-GMP, 5 rounds", "two_level": "two levels"}
LOCAL_RUNS = ("place-partitions", "place-large", "place-metis")
LOCAL = Into("placement/local", ("trace", "devices"), {**FIGURES, "metis": "METIS"}, LOCAL_RUNS)
SECONDS = Into("placement/seconds", ("trace",), {**FIGURES, "metis": "METIS"}, LOCAL_RUNS)
SKEW = Into("placement/skew", ("trace",), {"half": 4, "ninety": 5}, ("place-skew",))
SAVED = Into("placement/saved", ("method",), {trace: trace for trace in ("fb15k-237", "wn18rr", "planted")},
             ("place-rounds",))
PAIRS = Into("placement/pairs", (0, 1), {"local": 2, "pair": 3, "halves": 4}, ("place-pairs",))
COMMUNITIES = Into("placement/communities", (0, 1), FIGURES, tuple(f"place-planted-{name}" for name in PLANTED))
LOGS_METHODS = ("het-gmp", "two-level")
LOGS_READ = Into("placement/logs", (0, 1, 3), {"het_gmp": 4, "two_level": 5},
                 tuple(f"place-logs-{name}" for name in LOGS if name > "1000000"), lambda row: row[2] == "1000000")
CROSSING = Into("placement/crossing", (0, 1, 2, 3), {"random_place": 4, "random_kept": 5, "placed_place": 6,
                                                     "placed_kept": 7}, ("place-kept", "place-kept-large"),
                lambda row: row[1] == 8)
INTRODUCTION = """\
Samples are dealt to devices by locality (`frugal_place.h`); [placement.md](placement.md) compares this with the \
papers. Each device gets the samples of its part, in a new random order each time that it is through. The data sets \
are in the folders that `bench_place --help` names. The planted trace has 1,000,000 samples of 10 keys, over 1,000,000 \
rows in 64 communities: with probability .8 a key is one of its sample's community, else any; in both cases its \
popularity is Zipf's, with exponent .95. Adult's rows are the values of its columns.

A touch is *local* if its sample's part is the one that touches the row most. So even random parts have more than \
1 / n local touches: a row that is touched once is local. *Balance* is the largest part over the mean.

"""


def by(records, *fields):
    """Records by the values of these fields, in their order."""
    found = {}
    for r in records:
        found.setdefault(tuple(r[f] for f in fields), []).append(r)
    return found


def both(name):
    """Of the data sets, and of the planted trace, whose runs are shorter."""
    return [r for one in (name, name + "-large") for r in kept(one)["records"] if r["what"] != "skipped"]


def share(r):
    return f"{r['local_share']:.3f}" + (f" ({r['balance']:.2f})" if r["balance"] > 1.06 else "")


def cells(records, wanted, show):
    found = {r["method"]: r for r in records}
    return [show(found[m]) if m in found else "" for m in wanted]


def partitions():
    records = [r for name in LOCAL_RUNS for r in kept(name)["records"]]
    skipped = [r for r in records if r["what"] == "skipped"]
    records = [r for r in records if r["what"] == "partition"]
    page = "### Local touches\n\nThe share of local touches; in parentheses the balance, where it is above 1.06.\n\n"
    page += noted(LOCAL, ["trace", "devices", *NAMES.values()],
                  [[trace, n, *cells(rs, METHODS, share)]
                   for (trace, n), rs in by(records, "trace", "devices").items()])
    page += "".join(f"\n{r['trace']}, {r['method']}: SKIPPED, {r['reason']}.\n" for r in skipped)
    page += ("\nProcessor seconds of one thread (of METIS: of the program, with 8 devices), medians; in parentheses "
             "wall times of the fastest and the slowest round:\n\n")
    page += noted(SECONDS, ["trace", "edges", *NAMES.values()],
                  [[trace, f"{rs[0]['touches']:,}",
                    *cells(rs, METHODS, lambda r: f"{r['cpu_seconds']:.3f} ({r['min']:.3f} to {r['max']:.3f})")]
                   for (trace, n), rs in by(records, "trace", "devices").items() if n == 8])
    return page + source(*LOCAL_RUNS) + skews() + rounds() + pairs() + planted() + refining()


def skews():
    rows = [[r["trace"], f"{r['rows']:,}", f"{r['samples']:,}", f"{r['touched']:,}", f"{r['half'] / r['rows']:.2%}",
             f"{r['most'] / r['rows']:.2%}"] for r in kept("place-skew")["records"] if r["what"] == "skew"]
    page = ("\n### Skew\n\nThe rows that have half of the touches, and 90% of them, over all rows. In the "
            "frequency-aware cache's Figure 2 these 90% are of 0.14% of the rows (Criteo) and of 0.012% (Avazu).\n\n")
    page += noted(SKEW, ["trace", "rows", "samples", "touched", "half of the touches", "90%"], rows)
    return page + source("place-skew")


def rounds():
    """HET-GMP's Table 3."""
    records = kept("place-rounds")["records"]
    traces = list(dict.fromkeys(r["trace"] for r in records))
    rows = []
    for (method,), rs in by(records, "method").items():
        theirs = THEIR_TABLE_3.get(method, ("", ""))
        saved = [1 - (1 - r["local_share"]) / (1 - 1 / r["devices"]) for r in rs]
        rows.append([NAMES.get(method) or OTHERS[method], *(f"{share:.1%}" for share in saved), theirs[0],
                     *(f"{r['cpu_seconds']:.3f}" for r in rs), theirs[1]])
    page = ("\n### HET-GMP's Table 3\n\nRemote touches of an epoch that a method saves, against samples and rows in "
            "random parts, of which 7 in 8 are remote; and processor seconds. Beside them what the paper has for its "
            "three data sets. 8 devices.\n\n")
    page += noted(SAVED, ["method", *traces, "the paper, % (Company, Criteo, Avazu)", *(f"{t}, s" for t in traces),
                          "the paper, s"], rows)
    return page + source("place-rounds")


def pairs():
    """HET-GMP's Figure 9."""
    records = kept("place-pairs")["records"]
    rows = []
    for r in records:
        n, share = r["devices"], r["pairs"]
        apart = [share[i * n + j] + share[j * n + i] for i in range(n) for j in range(i)]
        rows.append([r["trace"], NAMES.get(r["method"]) or OTHERS[r["method"]], f"{sum(share[:: n + 1]):.3f}",
                     f"{min(apart):.2%} to {max(apart):.2%}", f"{r['across_halves']:.3f}"])
    page = ("\n### Pairs of devices (HET-GMP's Figure 9)\n\nTouches by the devices of sample and row, over all "
            "touches: local ones; those of the pairs of devices, least and most; and those between devices 0 to 3 and "
            "4 to 7, as if these were two machines. With weighted pairs a touch between the two costs ten times as "
            "much, as in the paper. All pairs: `build/bench_place --what pairs`.\n\n")
    page += noted(PAIRS, ["trace", "method", "local", "a pair", "between the halves"], rows)
    return page + source("place-pairs")


def planted():
    rows = []
    for name, options in PLANTED.items():
        words = options.split()
        rs = [r for r in kept(f"place-planted-{name}")["records"] if r["what"] == "partition"]
        rows.append([words[1], "even" if words[3] == "0" else f"Zipf {words[3]}", *cells(rs, METHODS[:4], share)])
    page = ("\n### Planted communities\n\nPlanted traces of 200,000 samples over 200,000 rows with 8 devices, by the "
            "number of communities and the popularity of rows. If all rows of a community are touched equally often, "
            "and rows are many, moves from a random start find nothing to hold "
            "on to; where each community has some hot rows, they find these.\n\n")
    page += noted(COMMUNITIES, ["communities", "popularity", *(NAMES[m] for m in METHODS[:4])], rows)
    return page + source(*(f"place-planted-{name}" for name in PLANTED))


def refining():
    rows = []
    for (trace, n), rs in by(both("place-refining"), "trace", "devices").items():
        one = next(r for r in rs if r["threads"] == 1)
        rows += [[trace, n, r["threads"], f"{r['path_seconds']:.3f}", f"{one['path_seconds'] / r['path_seconds']:.2f}",
                  f"{r['seconds']:.3f} ({r['min']:.3f} to {r['max']:.3f})", f"{r['all_cpu_seconds']:.3f}"] for r in rs]
    page = ("\n### Threads\n\nRefining with several threads, which take turns. The program ends with an error "
            "if they find other parts. Counting, streaming and packing have one thread. *Longest path*: processor "
            "seconds of the slowest piece of each block, and of moving; so long does refining take if each thread has "
            "a processor to itself. Wall times are those of a machine that others use, too.\n\n")
    page += table(["trace", "devices", "threads", "longest path, s", "ratio", "refining, wall s",
                   "all, processor s"], rows)
    return page + source("place-refining", "place-refining-large")


def write_logs():
    """Which partitioner is better for logs of many fields and ids: rows read, over those of random parts."""
    rows = []
    for name in LOGS:
        records = [r for r in kept(f"place-logs-{name}")["records"] if r["what"] == "partition"]
        for (trace, n), rs in by(records, "trace", "devices").items():
            found = {r["method"]: r for r in rs}
            rows.append([trace, name.split("-")[1], f"{rs[0]['samples']}", n,
                         *(f"{found[m]['read'] / found['random']['read']:.3f}" for m in LOGS_METHODS),
                         *(f"{found[m]['local_share']:.3f}" for m in LOGS_METHODS),
                         f"{max(found[m]['balance'] for m in LOGS_METHODS):.3f}"])
    page = ("Generated logs with as many fields, ids and skew as Criteo's and Avazu's, by the share of ids that are of "
            "their sample's community: rows that devices read in a step of 256 samples each if they cache all that "
            "they touch, by the closed form of `frugal_place.h`, over those of random parts; and shares of local "
            "touches.\n\n")
    page += noted(LOGS_READ, ["log", "own", "samples", "devices", "HET-GMP", "two levels", "HET-GMP, local",
                              "two levels, local", "largest part"], rows)
    return page + source(*(f"place-logs-{name}" for name in LOGS))


# >>reads


def columns(records):
    return list(by(records, "dealing", "policy"))


def heading(pair):
    dealing, policy = pair
    return f"{NAMES[dealing]}, {policy.upper() if len(policy) == 3 else policy}"


def reads_table(name, records, shown, predicted):
    """A line for each trace, number of devices and cache: a figure of each dealing and policy."""
    pairs = columns(records)
    rows, far = [], 0
    for (trace, n, cache), rs in by(records, "trace", "devices", "cache").items():
        found = {(r["dealing"], r["policy"]): r for r in rs}
        row = [trace, n, f"{cache:.1%}", *(f"{found[p][shown]:.3f}" if p in found else "" for p in pairs)]
        closed = found.get(("two-level", "static"))
        if predicted:
            placed = next((r for r in rs if r["dealing"] == "two-level"), None)
            row.append(f"{placed['touched'] * placed['share'] / placed['read']:.3f}" if placed else "")
            row.append(f"{closed['predicted']:.3f}" if closed else "")
            far = max(far, abs(closed["predicted"] - closed["share"]) if closed else 0)
        rows.append(row)
    headings = ["trace", "devices", "cache", *(heading(p) for p in pairs)]
    into = Into("placement/" + shown, (0, 1, 2), {f"{d}_{p}".replace("-", "_"): heading((d, p)) for d, p in pairs},
                (name, name + "-large"), lambda row: row[1] in (1, 8))
    page = noted(into, headings + (["two levels, touched", "two levels, static, closed form"] if predicted else []),
                 rows)
    if predicted:
        page += f"\nThe closed form and the count differ by {far:.3f} at most, where samples are placed.\n"
    return page + shortfall(records)


def shortfall(records):
    """How much worse counted caches are than the better of the other two, in points of hits."""
    worst = {}
    for (dealing, *_), rs in by(records, "dealing", "trace", "devices", "cache").items():
        hits = {r["policy"]: r["hits"] for r in rs}
        if {"lru", "counted", "static"} <= hits.keys():
            worst.setdefault(dealing, []).append(max(hits["lru"], hits["static"]) - hits["counted"])
    if not worst:
        return ""
    return "\n" + " ".join(
        f"Dealt by the method \"{NAMES[dealing]}\", counted caches have {100 * max(points):.1f} points of hits less "
        f"than the better of LRU and static at worst, and {max(0, -100 * min(points)):.1f} more at best."
        for dealing, points in worst.items()) + (
            " Here static caches know the whole trace, and each device its part; a counted cache has one count for all "
            "devices, and learns.\n")


def reads_plot(records):
    some = [r for r in records if r["trace"] == "fb15k-237" and r["devices"] == 8]
    pairs = columns(some)
    data = {f"D{i}": [[r["cache"] * 100, r["share"]] for r in some if (r["dealing"], r["policy"]) == pair]
            for i, pair in enumerate(pairs)}
    return plot("placement", "Rows read, over those of random dealing without a cache: FB15k-237, 8 devices",
                "set logscale x; set yrange [0:1.05]; " + curves(f"{NAMES[d]}, {p}" for d, p in pairs), data,
                ("cache, % of the rows", "rows read"))


def reads():
    records = both("place-reads")
    one = records[0]
    page = ("\n### Host rows read\n\nRows that all devices read from host memory in a step, over those of samples that "
            f"are dealt at random without a cache. {one['batch']} samples a device and step; steps are counted by "
            "`frugal_cpu_get_traffic`, after others that are not (below). Counts are exact: each run gives the "
            "same. Whatever the policy, the cache begins with the rows of most gain (`frugal_place_rank`), and one "
            "that counts with what these rows would have counted in an epoch (`frugal_set_counts`). The closed "
            "form is that of `frugal_place.h`, section 4. *Touched*: the rows that placed samples touch, which is also "
            "what they read without a cache, and how many records and rows in place they write. With one device "
            "there is nothing to deal.\n\n")
    page += reads_table("place-reads", records, "share", True) + reads_plot(records)
    return page + source("place-reads", "place-reads-large")


def ratios():
    records = both("place-ratios")
    page = ("\n### Cache ratios of the frequency-aware cache\n\nThe ratios of its section 5: hits, over the rows that "
            "the devices touch in a step.\n\n")
    return page + reads_table("place-ratios", records, "hits", False) + source("place-ratios", "place-ratios-large")


def crossing():
    """Rows that cross the link both ways, in place and kept."""
    columns = [(d, a) for d in ("random", "two-level") for a in ("place", "kept")]
    rows = []
    for (trace, devices, cache, policy), rs in by(both("place-kept"), "trace", "devices", "cache", "policy").items():
        found = {(r["dealing"], r["alone"]): f"{r['crossing']:.3f}" for r in rs}
        rows.append([trace, devices, f"{cache:.1%}", policy.upper() if policy == "lru" else policy,
                     *(found.get(c, "") for c in columns)])
    page = ("\n### Rows that cross both ways\n\nHost rows read, records and rows written in place, and rows written "
            "back, over those of samples that are dealt at random without a cache, which are twice the rows touched. "
            "*In place*: each device updates the rows that it alone touches in host memory. *Kept* "
            "(`FRUGAL_ALONE_KEPT`): in its cached copies, and host memory has them when another device announces the "
            "row or the cache needs the place. With random dealing on many devices little is gained, because a row is "
            "soon touched by another one. Rows that are still kept when the counting ends are not in the figures: "
            "those of the planted trace, whose runs are short, are therefore too low for LRU caches, which are not "
            "full yet.\n\n")
    page += noted(CROSSING, ["trace", "devices", "cache", "policy", "random, in place", "random, kept",
                             "two levels, in place", "two levels, kept"], rows)
    return page + source("place-kept", "place-kept-large")


def simulated():
    records = [r for r in kept("place-sim")["records"] if "system" in r]
    pairs = columns(records)
    rows = []
    for (gpus, cache, system), rs in by(records, "gpus", "cache", "system").items():
        found = {(r["dealing"], r["policy"]): f"{r['step_us']:.0f} ({r['lookup_us']:.0f})" for r in rs}
        rows.append([gpus, f"{cache:.1%}", "staged" if system == "frugal" else "in place", *(found[p] for p in pairs)])
    one = records[0]
    page = (f"\n### Dealt samples on simulated GPUs\n\nA smaller planted trace, of 200,000 samples over 200,000 "
            f"rows, on simulated GPUs ([assumptions](#simulated-links)): a step in microseconds, in "
            f"parentheses reading rows. {one['keys']} keys a GPU and step, rows of {one['dim']} floats, PCIe 4.0, "
            f"{one['workers']} workers, no dense part. Staged, the workers update all rows, and a step takes as long "
            "as they need: what is saved at reading is waited for at the gate. In place, a GPU updates the rows that "
            "it alone touches, which are most rows of placed samples.\n\n")
    into = Into("placement/simulated", (0, 1, 2), {f"{d}_{p}".replace("-", "_"): heading((d, p)) for d, p in pairs},
                ("place-sim",), lambda row: row[0] != 1)
    page += noted(into, ["GPUs", "cache", "rows alone", *(heading(p) for p in pairs)], rows)
    return page + source("place-sim")


def write():
    return INTRODUCTION + partitions() + reads() + ratios() + crossing() + simulated()
