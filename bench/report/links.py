"""Simulated links: bench_sim."""
import os
import re

from report.page import ROOT, curves, kept, millions, plot, run, source, table
from report.record import Into, flat, name_of, note, noted

SIM = "build/bench_sim --json"
SYSTEMS = {"frugal": "Frugal", "sync": "Frugal, write-through", "inplace": "Frugal, written in place",
           "kept": "Frugal, kept", "sharded": "owners' caches, all to all", "nocache": "no cache",
           "uvm": "unified memory (PyTorch-UVM)"}
AXES = ("gpus", "rows", "link", "switch", "sockets", "root_lanes", "keys", "zipf", "cache", "lookahead", "workers")


SWEEP = SIM + " --system frugal,sync,inplace,sharded,nocache --gpus 8 --keys 3328"
COMPONENTS = ("gate", "lookup", "exchange", "dense", "update")

def is_recorded(row):
    """Of an experiment's ratios, those that pages show."""
    number, ratio = row[:2]
    if ratio.startswith(("in place", "kept")):
        return number in (1, 6, 7, 10)
    return ratio.endswith("step over Frugal's") or number == 2 or \
        (number, ratio) in ((3, "no cache's reading of rows over Frugal's"), (5, "sharded's step over write-through's"))


RATIOS = Into("sim/ratios", (0, 1), {"ratio": 2}, ("links",), is_recorded)
UNBATCHED = Into("sim/faults-alone", (0,), {"ratio": 1}, ("links-uvm",))
RECORDED = (5, 10) # the experiments whose runs the record has
SCALING = Into("sim/scaling", ("workload", "system"), {"times": "throughput, times"}, ("links",),
               lambda row: row[1] in (SYSTEMS["frugal"], SYSTEMS["sharded"], SYSTEMS["nocache"]))
CONSTANTS = Into("sim/constants", (0,), {"value": "value"}, ("links",))
# Where the paper's eight GPUs may have been, and what its text says of the ratios.
TOPOLOGIES = {
    "a link each, PCIe 4.0": "", # the default
    "two switches, PCIe 4.0": "--link pcie4 --sockets 2 --switch 4",
    "48 lanes a socket, PCIe 3.0": "--link pcie3 --sockets 2 --root-lanes 48",
    "two switches, PCIe 3.0": "--link pcie3 --sockets 2 --switch 4",
    "one switch, PCIe 3.0": "--link pcie3 --switch 8"}
PAPER = {(1, "no cache"): "1.5 to 10.2", (1, "sharded"): "4.3 to 11.3", (1, "write-through"): "3.3 to 5.1",
         (6, "no cache"): "1.2 to 1.5", (6, "sharded"): "4.1 to 7.1",
         (7, "no cache"): "4.9 to 7.4", (7, "sharded"): "6.1 to 8.7"}
CLAIMS = [f"#{number}, {system}" for number, system in PAPER]
PLACES = Into("sim/topologies", ("machine",), {name_of(claim): claim for claim in CLAIMS},
              ("links-place-1",)) # the others differ in TOPOLOGIES
PLACE_RUNS = tuple(f"links-place-{i}{part}" for i in range(1, len(TOPOLOGIES)) for part in ("", "-7"))
H200_RUNS = ("links-h200-0", "links-h200-1")
H200 = Into("sim/h200", ("rows alone", "loader", "devices"),
            {"predicted": "predicted", "pool": "any idle thread announces"},
            H200_RUNS[:1]) # the other has another --fit
GATHERS = Into("sim/better-gather", (0, 1, 2), {"no_cache": 3, "sharded": 4}, ("links", "links-gather",
                                                                              "links-gather-copy"))


def measure():
    run("links", SIM)
    run("links-pcie", SWEEP + " --link pcie3,pcie4")
    run("links-root", SWEEP + " --link pcie3,pcie4 --switch 8")
    for i, options in list(enumerate(TOPOLOGIES.values()))[1:]:
        run(f"links-place-{i}", f"{SIM} --experiment 1,6 --system frugal,sync,sharded,nocache {options}")
        run(f"links-place-{i}-7", f"{SIM} --experiment 7 --system frugal,sharded,nocache {options}")
    for loader in (0, 1):
        run(f"links-h200-{loader}", as_h200(loader))
    better = SIM + " --experiment 1,7 --system frugal,sharded,nocache --gather-ns 20"
    run("links-gather", better)
    run("links-gather-copy", better + " --copy-us 8")
    run("links-uvm", SIM + " --experiment 1 --system frugal,uvm --fault-batch 1")


def as_h200(loader):
    """The steps of bench_cuda on an H200, of which only those of one device are told: the host's costs are fitted to
    the first, staged; and by how much loaders slow each other is what four took on that machine in another benchmark.
    The costs are those of the code that was measured, which announced on one thread per device, words included, also
    for one device in place."""
    measured, rows = flat("cuda"), flat("host_rows")
    one, four = (measured[f"dynamicemb.{n}.sgd.0.announce_ms"] for n in (1, 4))
    slow = 100 * (4 * four / one - 1) / 3
    row = 1000 * (rows["gather.10000000.32.1048576.uva.0.us"] - rows["gather.10000000.32.128.uva.0.us"]) / 1048448
    costs = dict(re.findall(r"CALIBRATED_(\w+) +([0-9.]+)\n",
                            open(os.path.join(ROOT, "bench", "sim", "calibrated_h200.h")).read()))
    costs.update(WHOLE_NS=costs["ANNOUNCE_NS"], LOADERS_SLOW=f"{slow:.1f}")
    costs = " ".join(f"--{name.lower().replace('_', '-')} {value}" for name, value in costs.items())
    return (f"{SIM} --system frugal,inplace,kept --gpus 1,2,4 --keys 26624 --rows 10000000 --zipf .99 --workers 6 "
            f"--optimizer rowwise-adagrad --link pcie5 --switch 4 --gpu-gbs 4800 --zero-copy-ns {row:.2f} "
            f"{costs} --announce loader,pool "
            f"--fit {measured[f'steps.p2f.host.staged.{loader}.1.speed']}")


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
                                                                "speed": "M keys/s"}, ("links",),
                lambda row: number != 5 or row[1] == 2048)
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


def h200_page():
    """Predicted and measured."""
    ways, measured = {"frugal": "staged", "inplace": "place", "kept": "kept"}, flat("cuda")
    rows = []
    for loader in (0, 1):
        found = {(r["system"], r["gpus"], r["announce"]): r["keys_per_s"] / 1e6
                 for r in kept(f"links-h200-{loader}")["records"] if "system" in r}
        for (system, way), gpus in ((pair, gpus) for pair in ways.items() for gpus in (1, 2, 4)):
            here = f"steps.p2f.host.{way}.{loader}.{gpus}.speed"
            speed, predicted = measured[here], found[system, gpus, "loader"]
            spread = f"{speed} ({measured[here + '.lowest']} to {measured[here + '.highest']})"
            rows.append([way, "a thread" if loader else "the trainer", gpus, spread, f"{predicted:.1f}",
                         f"{predicted / speed:.2f}", f"{found[system, gpus, 'pool']:.1f}"])
    return ("\n### Against an H200\n\nThe steps that `bench_cuda --experiment steps` measured on one H200 with 1, 2 "
            "and 4 devices, whose announcements the trainer or a loader's thread made. The host's costs are multiplied "
            "by what gives the first figure (staged, one device); how much further loaders slow each other is taken "
            "from what announcing took one and four devices in NVIDIA's benchmark on that machine. All others are "
            "predicted. The last column is for announcing by any thread that has nothing else to do. There one device "
            "in place, and kept, is as then, with words.\n\n" +
            noted(H200, ["rows alone", "loader", "devices", "measured, M keys/s", "predicted", "over measured",
                         "any idle thread announces"], rows) + source(*H200_RUNS))


def topologies_page():
    """By machine: the ranges of other systems' steps over Frugal's."""
    short = {"no cache's step over Frugal's": "no cache", "sharded's step over Frugal's": "sharded",
             "write-through's step over Frugal's": "write-through"}
    rows = []
    for i, name in enumerate(TOPOLOGIES):
        records = [r for run in ([f"links-place-{i}", f"links-place-{i}-7"] if i else ["links"])
                   for r in kept(run)["records"]]
        found = {(r["experiment"], short[r["ratio"]]): between(r) for r in records if r.get("ratio") in short}
        rows.append([name, *(found[claim] for claim in PAPER)])
    return ("\n### Which machine explains which figure\n\nAnother system's step over Frugal's, staged, with the eight "
            "GPUs of the experiments in other places; first what the paper says.\n\n" +
            noted(PLACES, ["machine", *CLAIMS], [*rows, ["the paper", *PAPER.values()]]) +
            source("links", *PLACE_RUNS))


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
    note(RATIOS, (), [[r["experiment"], r["ratio"], between(r)] for r in records if "ratio" in r])
    note(UNBATCHED, (), [[r["ratio"], between(r)] for r in kept("links-uvm")["records"] if "ratio" in r])
    for number in dict.fromkeys(r["experiment"] for r in records if "experiment" in r):
        page += QUEUE if number == 5 else ""
        page += experiment_page(number, [r for r in records if r.get("experiment") == number])
    return page + source("links") + better_gathers() + links_page() + topologies_page() + h200_page()
