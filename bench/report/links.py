"""Simulated links: bench_sim."""
from report.page import curves, kept, millions, plot, run, source, table
from report.record import Into, note, noted

SIM = "build/bench_sim --json"
SYSTEMS = {"frugal": "Frugal", "sync": "Frugal, write-through", "inplace": "Frugal, written in place",
           "kept": "Frugal, kept", "sharded": "owners' caches, all to all", "nocache": "no cache",
           "uvm": "unified memory (PyTorch-UVM)"}
AXES = ("gpus", "rows", "link", "shared_root", "keys", "zipf", "cache", "lookahead", "workers")


SWEEP = SIM + " --system frugal,sync,inplace,sharded,nocache --gpus 8 --keys 3328"
COMPONENTS = ("gate", "lookup", "exchange", "dense", "update")

RATIOS = Into("sim/ratios", (0, 1), {"ratio": 2}, ("links",))
SLOW_LINK = Into("sim/pcie3", (0, 1), {"ratio": 2}, ("links-slow",))
UNBATCHED = Into("sim/faults-alone", (0,), {"ratio": 1}, ("links-uvm",))
RECORDED = (5, 10) # the experiments whose runs the record has
SCALING = Into("sim/scaling", ("workload", "system"), {"times": "throughput, times"}, ("links",))
CONSTANTS = Into("sim/constants", (0,), {"value": "value"}, ("links",))
GATHERS = Into("sim/better-gather", (0, 1, 2), {"no_cache": 3, "sharded": 4}, ("links", "links-gather",
                                                                              "links-gather-copy"))


def measure():
    run("links", SIM)
    run("links-pcie", SWEEP + " --link pcie3,pcie4")
    run("links-slow", SIM + " --experiment 6 --system frugal,nocache --link pcie3")
    run("links-root", SWEEP + " --link pcie3,pcie4 --shared-root")
    better = SIM + " --experiment 1,7 --system frugal,sharded,nocache --gather-ns 20"
    run("links-gather", better)
    run("links-gather-copy", better + " --copy-us 8")
    run("links-uvm", SIM + " --experiment 1 --system frugal,uvm --fault-batch 1")


def between(record):
    return f"{record['least']:.2f} to {record['most']:.2f}"


def runs_table(runs, axes, parts, into=None):
    """A line per run: the settings that differ between runs, and the times."""
    columns = [*axes, "step, us", *(f"{part}, us" for part in parts), "M keys/s"]
    rows = [[SYSTEMS[r["system"]] + (" *" if r["behind"] else ""), *(r[a] for a in axes), f"{r['step_us']:.0f}",
             *(f"{r[part + '_us']:.1f}" for part in parts), millions(r["keys_per_s"])] for r in runs]
    if runs and "keys_per_s_per_dollar" in runs[0]:
        columns.append("keys/s per dollar")
        rows = [[*row, f"{r['keys_per_s_per_dollar']:.0f}"] for row, r in zip(rows, runs)]
    return noted(into, ["system", *columns], rows) if into else table(["system", *columns], rows)


def differing(runs):
    return [a for a in AXES if len({str(r[a]) for r in runs if r["workers"] or a != "workers"}) > 1]


def panel_page(number, index, runs):
    """The runs of one workload; with a plot if one number differs between them."""
    axes = differing(runs)
    page = f"\n{runs[0]['workload']}; {runs[0]['rows']:,} rows of {runs[0]['dim']} floats:\n\n"
    into = Into(f"sim/exp{number}-{index}", ("system", *axes), {"step_us": "step, us", "gate_us": "gate, us",
                                                                "speed": "M keys/s"}, ("links",))
    page += runs_table(runs, axes, COMPONENTS if number == 5 else ("gate", "lookup") if number == 3 else ("gate",),
                       into if number in RECORDED else None)
    if len(axes) != 1 or len({r[axes[0]] for r in runs}) < 3:
        return page
    systems = [s for s in SYSTEMS if any(r["system"] == s for r in runs)]
    data = {f"D{i}": [[r[axes[0]], r["keys_per_s"] / 1e6] for r in runs if r["system"] == s]
            for i, s in enumerate(systems)}
    return page + plot(f"experiment-{number}-{index}",
                       f"Exp #{number}, simulated: {runs[0]['workload']}: million keys a second by {axes[0]}",
                       "set yrange [0:*]; " + curves(SYSTEMS[s] for s in systems), data, (axes[0], "M keys/s"))


def scaling_page(here):
    """A table of the throughput by the number of GPUs, and whether straightforward caching scales negatively."""
    rows = [r for r in here if "scaling" in r]
    if not rows:
        return ""
    page = "\n" + noted(SCALING, ["workload", "system", "GPUs", "throughput, times", "falls somewhere"],
                        [[r["workload"], SYSTEMS[r["scaling"]], f"{r['from_gpus']} to {r['to_gpus']}",
                          f"{r['times']:.2f}", "yes" if r["falls"] else "no"] for r in rows])
    if any(r["falls"] for r in rows if r["scaling"] == "sharded"):
        return page
    return page + ("\nStraightforward caching (all to all) does **not** scale negatively in this simulation. In "
                   "the paper it does, as the paper's reviewers read its Figure 15. The model lets every "
                   "exchange run at the full rate of the links, charges a small cost per GPU for it, and has no "
                   "framework, which may be what the authors' reimplementation pays for. More is not known.\n")


def experiment_page(number, here):
    about = next(r for r in here if "title" in r)
    page = f"\n### Exp #{number}: {about['title']}\n\n- The paper: {about['claim']}.\n"
    page += "".join(f"- Simulated: {r['ratio']}: {between(r)}\n" for r in here if "ratio" in r)
    page += f"- {about['note']}.\n"
    if number == 1:
        single = next(r for r in kept("links-uvm")["records"] if "ratio" in r)
        page += (f"- With `--fault-batch 1`, where each fault is served by itself: {single['ratio']}: "
                 f"{between(single)}\n")
    for r in here:
        if "price_ratio" in r:
            page += (f"- A data-centre GPU costs {r['price_ratio']:.2f} times as much (${r['datacenter_price']:g} "
                     f"against ${r['gpu_price']:g}). So a GPU here gives as much per dollar if it has "
                     f"{r['break_even']:.0%} of that GPU's throughput.\n")
    runs = [r for r in here if "system" in r]
    for index, workload in enumerate(dict.fromkeys(r["workload"] for r in runs)):
        page += panel_page(number, index + 1, [r for r in runs if r["workload"] == workload])
    return page + scaling_page(here)


QUEUE = """
### Exp #4: TreeHeap in place of the two-level queue (Figure 11)

- The paper: updating g-entries is 1.2 to 1.4 times faster than with TreeHeap, the stall is 74.0 to 106.8 times \
shorter, and throughput is 2.1 to 3.3 times as high.
- Not simulated, because the model has no cost for threads that contend. [The queue inside a \
step](#the-queue-inside-a-step) measures it on host cores, and [The queue](#the-queue) measures both queues alone.
"""


def better_gathers():
    rows = []
    for name in ("links", "links-gather", "links-gather-copy"):
        records = kept(name)["records"]
        constant = {r["constant"]: r["value"] for r in records if "constant" in r}
        ratio = {(r["experiment"], r["ratio"]): between(r) for r in records if "ratio" in r}
        rows += [[constant["gather-ns"], constant["copy-us"], f"#{number}",
                  ratio[number, "no cache's step over Frugal's"], ratio[number, "sharded's step over Frugal's"]]
                 for number in (1, 7)]
    return ("\n### Against a better gather\n\nAbove, and in the first lines here, the rivals' gather and copy cost "
            "what the authors' micro-benchmark took. Then the gather is about as fast as this library's own ([Row "
            "kernels](#row-kernels)), and in the last lines the copy call is cheaper, too. A ratio below 1 means that "
            "Frugal is slower.\n\n" +
            noted(GATHERS, ["gather, ns per row", "copy call, us", "Exp", "no cache's step over Frugal's",
                            "sharded's step over Frugal's"], rows) + source("links-gather", "links-gather-copy"))


def links_page():
    runs = [r for name in ("links-pcie", "links-root") for r in kept(name)["records"] if "system" in r]
    return ("\n### Links and shared roots\n\nThis is not an experiment of the paper: the embedding alone, 3328 keys "
            "per GPU, Zipf 0.9.\n\n" +
            runs_table(runs, differing(runs), ("gate",)) + source("links-pcie", "links-root"))


def write():
    records = kept("links")["records"]
    page = ("**Simulated**: none of these GPUs was available. Keys, hits, misses, pending rows and gates come from the "
            "library, which runs on these keys; times are computed. The assumptions:\n\n" +
            "\n".join(r["assumption"] for r in records if "assumption" in r) + "\n\n")
    page += noted(CONSTANTS, ["constant", "value", "unit", "what; source"],
                  [[f"`{r['constant']}`", r["value"], r["unit"], f"{r['what']}; {r['source']}"]
                   for r in records if "constant" in r])
    for into in (RATIOS, SLOW_LINK):
        note(into, (), [[r["experiment"], r["ratio"], between(r)] for r in kept(into.runs[0])["records"]
                        if "ratio" in r])
    note(UNBATCHED, (), [[r["ratio"], between(r)] for r in kept("links-uvm")["records"] if "ratio" in r])
    for number in dict.fromkeys(r["experiment"] for r in records if "experiment" in r):
        page += QUEUE if number == 5 else ""
        page += experiment_page(number, [r for r in records if r.get("experiment") == number])
    return page + source("links") + better_gathers() + links_page()
