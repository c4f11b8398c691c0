"""Rows that one GPU touches, treated in three ways on simulated GPUs: bench_sim."""
from report.page import kept, run, source, table

SIM = "build/bench_sim --json --dim 128 --system frugal,inplace,kept "
FB15K = "--data ../shared/data/fb15k-237 --keys 768 "
PLANTED = "--communities samples=200000,rows=200000 --keys 2560 "
PLAN = "plan-" # before the name of a trace
TRACES = {"ways-planted": "planted", "ways-fb15k-237": "FB15k-237"}
DEALINGS = {"random": "random", "two-level": "two levels"}
SYSTEMS = {"frugal": "staged", "inplace": "in place", "kept": "kept"}
POLICIES = {"counted": "counted", "lru": "LRU", "static": "static"}


def measure():
    caches = "--cache .05,.1,.5 --policy counted,lru --steps 20 "
    run("ways-planted", SIM + PLANTED + caches + "--gpus 1,2,4,8 --warm-up 300")
    run("ways-fb15k-237", SIM + FB15K + caches + "--gpus 1,2,4,8 --warm-up 600")
    run("ways-root", SIM + PLANTED + "--cache .1 --policy counted --steps 20 --gpus 8 --warm-up 300 --switch 8 "
        "--link pcie4,pcie3")
    plan = "--plan --stall 10 --gpus 1,2,8 --policy counted,lru --cache .05,.5 --steps 20 "
    run(PLAN + "ways-planted", SIM + PLANTED + plan + "--warm-up 300")
    run(PLAN + "ways-fb15k-237", SIM + FB15K + plan + "--warm-up 600")


def by_way(name):
    """Of each workload, the results of the three ways."""
    found = {}
    for r in kept(name)["records"]:
        if "system" in r:
            key = tuple(r[f] for f in ("gpus", "dealing", "cache", "policy", "link", "switch"))
            found.setdefault(key, {})[r["system"]] = r
    return found


def without_overlap(r):
    """At most: the step if evicted rows were written before any is read, and recalled ones before any is closed."""
    return r["step_us"] + r["lookup_apart_us"] - r["lookup_us"] + r["recall_us"]


def megabytes(r):
    return f"{r['written_bytes'] / 1e6:.2f}"


def steps(name):
    rows = []
    for (gpus, dealing, cache, policy, *_), ways in by_way(name).items():
        place, keeping = ways["inplace"], ways["kept"]
        if gpus == 1 and dealing != "random": # there is nothing to deal
            continue
        rows.append([gpus, DEALINGS[dealing] if gpus > 1 else "-", f"{cache:.0%}", POLICIES[policy],
                     *(f"{ways[s]['step_us']:.0f}" for s in SYSTEMS), f"{without_overlap(keeping):.0f}",
                     f"{keeping['step_us'] / place['step_us']:.2f}", f"{keeping['read_bytes'] / 1e6:.2f}",
                     megabytes(ways["frugal"]), megabytes(place), megabytes(keeping),
                     f"{keeping['kept_rows'] / gpus:.0f}", f"{keeping['recalled_rows'] / gpus:.0f}",
                     f"{keeping['evicted_rows'] / gpus:.0f}"])
    return table(["GPUs", "dealing", "cache", "policy", "staged, us", "in place, us", "kept, us", "no overlap, us",
                  "kept / in place", "MB read", "MB written, staged", "in place", "kept", "updates kept", "recalled",
                  "evicted"], rows)


def summary():
    """What keeping does to the step, and to what is written, by dealing and number of GPUs."""
    lines = ""
    for name, trace in TRACES.items():
        found = {}
        for (gpus, dealing, *_), ways in by_way(name).items():
            if gpus > 1 or dealing == "random":
                place, keeping = ways["inplace"], ways["kept"]
                found.setdefault((dealing, gpus), []).append(
                    (keeping["step_us"] / place["step_us"], without_overlap(keeping) / place["step_us"],
                     keeping["written_bytes"] / place["written_bytes"]))
        for (dealing, gpus), ratios in found.items():
            time, serial, written = zip(*ratios)
            dealt = f", dealt by {DEALINGS[dealing]}" if gpus > 1 and dealing != "random" else \
                ", dealt at random" if gpus > 1 else ""
            lines += (f"- {trace}, {gpus} GPU{'s' if gpus > 1 else ''}{dealt}: the step is {min(time):.2f} to "
                      f"{max(time):.2f} of that in place, without overlap at most {min(serial):.2f} to "
                      f"{max(serial):.2f}; {min(written):.2f} to {max(written):.2f} of the bytes are written.\n")
    return lines


def roots():
    rows = [[dealing, link, *(f"{ways[s]['step_us']:.0f}" for s in SYSTEMS), *(megabytes(ways[s]) for s in SYSTEMS)]
            for (_, dealing, _, _, link, _), ways in by_way("ways-root").items()]
    rows = [[DEALINGS[r[0]], *r[1:]] for r in rows]
    return ("\nThe same with 8 GPUs behind one x16 link to the host, a counted cache of 10%:\n\n" +
            table(["dealing", "link", "staged, us", "in place, us", "kept, us", "MB written, staged", "in place",
                   "kept"], rows) + source("ways-root"))


def cell(r, system):
    return f"{r[system + '_step_us']:.0f} ({r[system + '_workers']})"


def plans():
    """What --plan says: of each number of GPUs, the plan that it takes, and the best of each way."""
    rows = []
    for name, r in ((name, r) for name in TRACES for r in kept(PLAN + name)["records"]):
        if r.get("workload") == "choice":
            theirs = (f"{DEALINGS[r['baseline_dealing']]}, " if r["gpus"] > 1 else "") + SYSTEMS[r["baseline_system"]]
            dealt = f"{DEALINGS[r['dealing']]}, " if r["gpus"] > 1 else ""
            rows.append([TRACES[name], r["gpus"], f"{dealt}{POLICIES[r['policy']]}, {r['cache']:.0%}, "
                         f"{SYSTEMS[r['system']]}", f"{r['step_us']:.0f}", *(cell(r, s) for s in SYSTEMS),
                         f"{r['kept_gain']:.1%}", "yes" if r["kept_pays"] else "no",
                         f"{r['baseline_step_us']:.0f} ({theirs})"])
    return ("\nWhat `bench_sim --plan` advises, with the dense part of a DLRM: of all dealings, "
            "policies, caches and ways, with the fewest workers that keep the stall within 10% of the step. Of each "
            "way it takes the plan with the shortest step, or with a smaller cache and a step that is at most 1% "
            "longer. In place must be more than 1% shorter than staged, and kept more than 1% shorter than the one "
            "taken before, because a lost GPU then costs more. Beside it the best of each way, with its workers in "
            "parentheses, and the plan of the longest step.\n\n" +
            table(["trace", "GPUs", "taken", "step, us", "staged, us (workers)", "in place", "kept", "kept shortens by",
                   "pays", "longest, us"], rows) + source(*(PLAN + name for name in TRACES)))


def write():
    one = next(r for r in kept("ways-planted")["records"] if "system" in r)
    page = ("A row that one GPU alone touches in a step can be treated in three ways: *staged*, workers update it, as "
            "in the paper; *in place*, its GPU updates it in host memory; *kept* (`FRUGAL_ALONE_KEPT`), its GPU "
            "updates its cached copy, and writes it back when the cache needs the place, or when another GPU announces "
            "the row. "
            "Simulated RTX 3090s over PCIe 4.0 ([assumptions](#simulated-links)), samples dealt at random and by "
            f"locality ([Placement](#placement)): a step in microseconds without the dense part, rows of {one['dim']} "
            f"floats, SGD, {one['workers']} workers. Rows read, written, recalled and evicted are counted by the "
            "library, per GPU and step: the simulated GPUs do what its devices on host cores do.\n\n"
            "What is evicted is written while others are read, in the link's other direction, and what is recalled is "
            "written while workers close the step before. So keeping can shorten a step although as much is written: "
            "that part of the gain is as sure as these overlaps are on a real GPU. *No overlap*: what the kept step "
            "would be, at most, if evicted rows were written before any is read, and recalled rows before anything is "
            "closed. A lookup that may evict takes one "
            "kernel more than the other ways' (`launch-us`), which is why short steps on few rows become longer.\n\n")
    page += summary()
    for name, trace in TRACES.items():
        keys = next(r for r in kept(name)["records"] if "system" in r)["keys"]
        page += f"\n### Three ways: {trace}\n\n{keys} keys a GPU and step.\n\n" + steps(name) + source(name)
    return page + "\n### Three ways: one root, and plans\n" + roots() + plans()
