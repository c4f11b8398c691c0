"""Secondaries: what they save, what they cost, and whom HET-GMP's bound between rows would stop."""
from report.page import kept, run, source, table
from report.record import Into, noted

DEALINGS = {"random": "random", "two-level": "two levels"}

DATA = "../shared/data/fb15k-237"
NONE = 4294967295
BOUNDS = f"0 2 5 10 100 {NONE}"
KGE = (f"build/kge --data {DATA} --model distmult --sampled-softmax plain --regularization 0.03 --lr 0.2 --dim 64 "
       "--devices 8 --batch 256 --steps 400 --secondaries 100 --stale $s --seed $seed --eval test --json /dev/stdout")


READS = {"read": 1, "read_stale": 2, "pairs_fail": 3, "pairs_fail_copies": 4, "again": 5}
QUALITY = Into("stale/quality", ("bound",), {"mrr": 1, "hits10": 2, "read": 3, "read_stale": 4}, ("stale-quality",))


def measure():
    run("stale-reads", f"build/bench_stale --json --data {DATA} --steps 2000 --stale {BOUNDS.replace(' ', ',')}")
    run("stale-reads-10", f"build/bench_stale --json --data {DATA} --steps 2000 --secondaries 10 "
        f"--stale {BOUNDS.replace(' ', ',')}")
    run("stale-quality", f"for seed in 1 2; do for s in {BOUNDS}; do {KGE} || exit 1; done; done")


def measure_simulated():
    run("stale-sim", f"build/bench_sim --json --data {DATA} --system frugal,inplace --gpus 8 --keys 768 --dim 128 "
        f"--cache .05 --policy counted --warm-up 100 --steps 40 --secondaries 0,5,50 --stale 0,8,100,{NONE}")


def bound(s):
    return "none" if s == NONE else s


def reads(name):
    rows = [[bound(r["stale"]), f"{r['read']:.0f}", f"{r['stale_share']:.1%}", f"{r['fresh_fail']:.1%}",
             f"{r['copies_fail']:.1%}", f"{r['again']:.0f}", f"{r['clock_fail']:.1%}"]
            for r in kept(name)["records"] if r["stale"] != NONE]
    headings = ["bound", "host rows read", "rows read stale", "pairs that fail, nothing stale",
                "pairs that fail, with the copies", "rows that it would fetch again",
                "pairs that fail, clocks as frequencies"]
    return noted(Into("stale/" + name, (0,), READS, (name,)), headings, rows)


def quality(records):
    found = {}
    for r in records:
        if "mrr" in r:
            found.setdefault(r["stale"], []).append(r)
    rows = []
    for s, runs in found.items():
        each = runs[0]["step"] * 8
        rows.append([bound(s), ", ".join(f"{r['mrr']:.4f}" for r in runs),
                     ", ".join(f"{r['hits10']:.4f}" for r in runs), f"{runs[0]['rows_read'] / each:.0f}",
                     f"{runs[0]['secondary_hits'] / each:.0f}"])
    return noted(QUALITY, ["bound", "MRR", "Hits@10", "host rows read", "read from secondaries"], rows)


def write():
    page = ("`frugal_secondaries` lists rows of which a device may read copies that lack updates. Training is not "
            "exact then. [placement.md](placement.md#secondaries) says what is counted here.\n\n"
            "FB15k-237, 8 devices, samples dealt at random, no cache beside the copies. DistMult trained by `kge`, all "
            "rows listed, which is the worst case: MRR and Hits@10 of the test triples, filtered, for two seeds. Rows "
            "are of a device in a step, of the first seed. Bound 0 is exact training:\n\n")
    page += quality(kept("stale-quality")["records"])
    page += ("\nBatches of 128 triples and 64 negatives for each 32, no training; rows of a device in a step. "
             "HET-GMP's bound between rows is tried on head and tail of each triple, with the frequencies of the data "
             "set. All entities listed:\n\n" + reads("stale-reads"))
    page += "\nThe most frequent 10% of the entities listed:\n\n" + reads("stale-reads-10")
    return page + source("stale-quality", "stale-reads", "stale-reads-10")


def write_simulated():
    found = {}
    for r in kept("stale-sim")["records"]:
        if "system" in r:
            key = r["dealing"], r.get("secondaries", 0), bound(r["stale"]) if "stale" in r else "-"
            found.setdefault(key, {})[r["system"]] = r
    rows = []
    for (dealing, listed, s), by_system in found.items():
        staged, in_place = by_system["frugal"], by_system["inplace"]
        rows.append([DEALINGS[dealing], f"{listed}%" if listed else "none", s, f"{staged['misses']:.1%}",
                     f"{staged['read_bytes'] / 1e6:.3f}", f"{staged['lookup_us']:.1f}", f"{staged['step_us']:.1f}",
                     f"{in_place['step_us']:.1f}"])
    one = next(iter(found.values()))["frugal"]
    page = (f"A simulated step of {one['gpus']} GPUs over PCIe 4.0 ([assumptions](#simulated-links)), without the "
            f"dense part: FB15k-237, {one['keys']} keys a GPU and step, rows of {one['dim']} floats, "
            f"{one['workers']} workers, a counted cache of {one['cache']:.0%} of the rows beside the copies. Each GPU "
            "lists the rows of other homes that it touches most (HET-GMP's replicas), up to a share of all rows. Rows "
            "read are those that the library counts, over the unique rows of a step; records are written as "
            "without copies. Staged, workers update all "
            "rows; in place, a GPU updates those that it alone touches. With bound 0 training is exact.\n\n")
    page += table(["dealing", "listed", "bound", "rows read", "MB read by a GPU", "reading rows, us",
                   "step staged, us", "step in place, us"], rows)
    return page + source("stale-sim")
