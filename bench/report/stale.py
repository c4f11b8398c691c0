"""Declared stale copies: what they save, what they cost, and whom HET-GMP's bound between rows would stop."""
from report.page import kept, run, source, table

DATA = "../shared/data/fb15k-237"
NONE = 4294967295
BOUNDS = f"0 2 5 10 100 {NONE}"
KGE = (f"build/kge --data {DATA} --model distmult --dim 64 --devices 8 --batch 256 --steps 400 --secondaries 100 "
       "--stale $s --seed $seed --eval test --json /dev/stdout")


def measure():
    run("stale-reads", f"build/bench_stale --json --data {DATA} --steps 2000 --stale {BOUNDS.replace(' ', ',')}")
    run("stale-reads-10", f"build/bench_stale --json --data {DATA} --steps 2000 --secondaries 10 "
        f"--stale {BOUNDS.replace(' ', ',')}")
    run("stale-quality", f"for seed in 1 2; do for s in {BOUNDS}; do {KGE} || exit 1; done; done")


def bound(s):
    return "none" if s == NONE else s


def reads(records):
    rows = [[bound(r["stale"]), f"{r['read']:.0f}", f"{r['stale_share']:.1%}", f"{r['fresh_fail']:.1%}",
             f"{r['copies_fail']:.1%}", f"{r['again']:.0f}", f"{r['clock_fail']:.1%}"]
            for r in records if r["stale"] != NONE]
    return table(["bound", "host rows read", "rows read stale", "pairs that fail, nothing stale",
                  "pairs that fail, with the copies", "rows that it would fetch again",
                  "pairs that fail, clocks as frequencies"], rows)


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
                     f"{runs[0]['stale_hits'] / each:.0f}"])
    return table(["bound", "MRR", "Hits@10", "host rows read", "read from stale copies"], rows)


def write():
    all_rows, hot, trained = (kept(name)["records"] for name in ("stale-reads", "stale-reads-10", "stale-quality"))
    page = ("`frugal_secondaries` lists rows of which a device may read copies that lack updates. Training is not "
            "exact then. [placement.md](placement.md#declared-stale-copies) says what is counted here.\n\n"
            "FB15k-237, 8 devices, samples dealt at random, no cache beside the copies. DistMult trained by `kge`, all "
            "rows listed, which is the worst case: MRR and Hits@10 of the test triples, filtered, for two seeds. Rows "
            "are of a device in a step, of the first seed. Bound 0 is exact training:\n\n")
    page += quality(trained)
    page += ("\nBatches of 128 triples and 64 negatives for each 32, no training; rows of a device in a step. "
             "HET-GMP's bound between rows is tried on head and tail of each triple, with the frequencies of the data "
             "set. All entities listed:\n\n" + reads(all_rows))
    page += "\nThe most frequent 10% of the entities listed:\n\n" + reads(hot)
    return page + source("stale-quality", "stale-reads", "stale-reads-10")
