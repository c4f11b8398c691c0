"""Which copies a cache keeps, by policy and by what it knows before; and what counting touches costs."""
from report.page import kept, run, source
from report.record import Into, noted

POLICIES = {"lru": "LRU", "counted": "counted", "scan": "static, scan", "sample": "static, sample",
            "earlier": "static, earlier run", "counted-scan": "counted, from the scan on"}
RECORDS = {"hits-zipf": ("keys", "devices"), "hits-graph": ("devices",), "hits-drift": ("keys", "devices")}
COUNTING = Into("cache/counting", ("devices", "keys", "rows alone"),
                {"counting_us": "counting, us", "share": "share of the step without"}, ("counting",))
WAYS = {"staged": "staged", "place": "in place"}


def measure():
    run("hits-zipf", "build/bench_cache --json")
    run("hits-graph", "build/bench_cache --json --graph ../shared/data/fb15k-237 --keys 768")
    run("hits-drift", "build/bench_cache --json --zipf 0.99 --devices 1 --policy lru,counted,scan --drift 250")
    run("counting", "for n in 1 2 8; do build/bench_host --json --devices $n --counting 0,1 || exit 1; done")


def hits(name):
    found = {}
    for r in kept(name)["records"]:
        found.setdefault((r.get("zipf"), r["devices"]), {})[r["policy"]] = r["hits"]
    policies = [p for p in POLICIES if p in next(iter(found.values()))]
    skewed = next(iter(found))[0] is not None
    rows = [[*([f"Zipf {zipf:g}"] if skewed else []), devices, *(f"{of[p]:.1%}" for p in policies)]
            for (zipf, devices), of in found.items()]
    into = Into("cache/" + name, RECORDS[name], {p: POLICIES[p] for p in policies}, (name,),
                lambda row: not skewed or row[0] == "Zipf 0.99") # no page has the others
    return noted(into, [*(["keys"] if skewed else []), "devices", *(POLICIES[p] for p in policies)], rows)


def counting():
    steps = {(r["devices"], r["zipf"], r["alone"], r["counting"]): r for r in kept("counting")["records"]}
    rows = []
    for (devices, zipf, alone, counts), r in steps.items():
        if counts:
            plain = steps[devices, zipf, alone, 0]
            rows.append([devices, f"Zipf {zipf:g}" if zipf else "uniform", WAYS[alone],
                         f"{plain['announce_us']:.0f} to {r['announce_us']:.0f}",
                         f"{plain['step_us']:.0f} to {r['step_us']:.0f}",
                         f"{r['announce_us'] - plain['announce_us']:.0f}",
                         f"{(r['announce_us'] - plain['announce_us']) / plain['step_us']:.1%}"])
    return noted(COUNTING, ["devices", "keys", "rows alone", "announcing, us", "step, us", "counting, us",
                            "share of the step without"], rows)


def write():
    page = ("Hits of host devices, each with a cache of 5% of the rows; 2048 keys a device and step, from 100,000 "
            "rows. Nothing is timed, and each run gives the same hits. *Counted* and *LRU* begin with an empty "
            "cache; the last half of 1,000 steps counts. *Static* caches are filled before: from a scan of the whole "
            "trace, from a sample of 25 keys for each cached row, or by what an earlier run of the same steps has "
            "counted:\n\n")
    page += hits("hits-zipf") + source("hits-zipf")
    page += "\nThe triples of FB15k-237, dealt to the devices at random, 256 for each in a step:\n\n"
    page += hits("hits-graph") + source("hits-graph")
    page += "\nOther rows become hot every 250 steps:\n\n" + hits("hits-drift")
    page += source("hits-drift")
    page += ("\nWhat counting costs (`worth.c`), where an instance counts, which it does only for counted caches: "
             "26,624 keys a device and step, 10,000,000 rows x 32 floats, all work of a step on one thread, gathers "
             "and updates by the devices included; instances that count and that do not take turns. Medians "
             "in microseconds; counting is what announcing takes longer:\n\n")
    return page + counting() + source("counting")
