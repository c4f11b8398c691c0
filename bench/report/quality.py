"""What is learnt from placed samples, and with secondaries: bench/place/bench_quality."""
from report.page import curves, kept, plot, run, source, table
from report.record import Into, noted
from report.stale import bound


MRR = Into("placement/mrr", ("devices", "dealt", "chunk"), {"difference": 4, "spread": 5, "read": 6}, ("placed-mrr",))
AUC = Into("placement/auc", ("log",), {"difference": 3, "local": "local share"}, ("placed-auc",))
BOUNDS = Into("stale/auc", ("log", "bound"), {"auc": 2, "read": 3, "read_stale": 4}, ("stale-auc",))


def measure_placed():
    for name in ("placed-mrr", "placed-auc"):
        run(name, f"bench/place/bench_quality --json --experiment {name}")


def measure_stale():
    for name in ("stale-auc", "curve"):
        run("auc-curve" if name == "curve" else name, f"bench/place/bench_quality --json --experiment {name}")


def grouped(records, *fields):
    """Runs that differ in their seed alone, by the values of these fields."""
    found = {}
    for r in records:
        found.setdefault(tuple(r[field] for field in fields), []).append(r)
    return found


def seeds(runs, field):
    return " ".join(f"{r[field]:.4f}"[1:] for r in runs)


def mean(runs, field):
    return sum(r[field] for r in runs) / len(runs)


def spread(runs, field):
    values = [r[field] for r in runs]
    return max(values) - min(values)


def difference(runs, base, field):
    return f"{mean(runs, field) - mean(base, field):+.4f}"


def mrr(records):
    runs, rows = grouped(records, "devices", "dealt", "chunk"), []
    for (devices, dealt, chunk), each in runs.items():
        if dealt == "random":
            base = each
        rows.append([devices, dealt, chunk, seeds(each, "mrr"), "" if each is base else difference(each, base, "mrr"),
                     f"{spread(each, 'mrr'):.4f}", f"{mean(each, 'read'):.0f}",
                     f"{mean(each, 'triples_per_s') / 1e3:.0f}"])
    return noted(MRR, ["devices", "dealt", "chunk", "MRR of three seeds", "mean, less random's", "spread of seeds",
                       "host rows read", "1,000 triples/s"], rows)


def auc(records):
    runs, rows, differences = grouped(records, "log", "dealt"), [], []
    for log in dict.fromkeys(r["log"] for r in records):
        turn, parts = runs[log, "in turn"], runs[log, "parts"]
        differences.append(mean(parts, "auc") - mean(turn, "auc"))
        rows.append([log, seeds(turn, "auc"), seeds(parts, "auc"), difference(parts, turn, "auc"),
                     f"{spread(turn, 'auc'):.4f}, {spread(parts, 'auc'):.4f}", f"{parts[0]['local_share']:.2f}"])
    rows.append(["mean", "", "", f"{sum(differences) / len(differences):+.4f}", "", ""])
    return noted(AUC, ["log", "in turn", "by parts", "difference of the means", "spread of seeds", "local share"], rows)


def write_placed():
    graphs, logs = (kept(name)["records"] for name in ("placed-mrr", "placed-auc"))
    page = ("`--place auto` of `kge` and `dlrm` deals samples by locality. Training stays exact, but batches are "
            "others.\n\nFB15k-237, TransE, dim 64, 1,024 triples a step of all devices, 256 negatives a chunk, caches "
            "of 10%, test MRR; with parts as many triples as at random, to 1%. The triples of a chunk share negatives; "
            "with parts, all devices have the same sets. Where `--chunk` is not given, it is half of a batch with "
            "parts, beside a whole batch at random. Rows read are of a device in a step. Speeds "
            "are of host cores that others used, too:\n\n")
    page += mrr(graphs)
    page += ("\nClick logs, DLRM, 4 devices, 256 samples a step of all devices, held-out AUC of three seeds. Seeds "
             "differ in first values alone; the order of the samples is the log's, so one log shows one order. Logs "
             "made up have no communities:\n\n")
    return page + auc(logs) + source("placed-mrr", "placed-auc")


def by_bound(records):
    rows = []
    for (log, s), runs in grouped(records, "log", "stale").items():
        rows.append([log, bound(s), seeds(runs, "auc"), f"{mean(runs, 'read'):.0f}", f"{mean(runs, 'read_stale'):.0f}"])
    return noted(BOUNDS, ["log", "bound", "AUC of two seeds", "host rows read", "read from secondaries"], rows)


def over_time(records):
    ways = grouped(records, "way")
    rows, data = [], {}
    for i, ((way,), runs) in enumerate(ways.items()):
        data[f"D{i}"] = [[samples / 1000, area] for samples, _, area in runs[0]["points"]]
        for points in zip(*(r["points"] for r in runs)):
            rows.append([way, f"{points[0][0] / 1000:.0f}", " ".join(f"{p[1]:.1f}" for p in points),
                         " ".join(f"{p[2]:.4f}"[1:] for p in points), f"{mean(runs, 'read'):.0f}"])
    picture = plot("auc_over_time", f"AUC of Wide & Deep on 8 devices; at best {records[0]['best_auc']:.3f}",
                   "set key inside right bottom\n" + curves([way for way, in ways]), data,
                   ("thousand samples trained on", "AUC"))
    return picture + "\n" + table(["dealt", "thousand samples", "seconds of the two seeds", "AUC of the two seeds",
                                   "host rows read a step and device"], rows)


def write_stale():
    bounds, times = (kept(name)["records"] for name in ("stale-auc", "auc-curve"))
    page = ("HET-GMP's Figures 7 and 8 and Table 2 in kind: Wide & Deep on 8 devices, samples dealt by parts, caches "
            "of 10%, and beside them secondaries of every row that a device's samples have and whose home is another "
            "device. Rows are of a device in a step, in both tables of the model. Bound 0 is exact training, with "
            "copies that lack nothing:\n\n")
    page += by_bound(bounds)
    page += ("\nThe log of communities, AUC over time. Exact is without secondaries. Seconds are of training on "
             "host cores that others used, too, where reading a host row takes little of a step. On GPUs it crosses "
             "the link, so rows read say more about time there:\n")
    return page + over_time(times) + source("stale-auc", "auc-curve")
