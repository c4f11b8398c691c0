"""A step by its parts, and what changes it: bench_step."""
import os
import re

from report.page import KEPT, curves, kept, millions, plot, run, skew, source, speed, table
from report.record import Into, noted

STEP = "build/bench_step --json "
SGD = "--workers 0 --mode p2f --optimizer sgd "
ONE = {"devices": "1", "workers": "1", "optimizer": "sgd", "mode": "p2f,sync", "rounds": "5"}
WAYS = {"staged": "staged", "place": "in place"}
MODES = {"p2f": "P2F", "sync": "write-through"}


TIMES = ("announce", "gate", "lookup", "update", "plan", "close")
RATE, SHARE = {"speed": "M keys/s"}, {"share": "share"}
SPEED = Into("step/speed", (0, 1, 2, 3), {"staged": 4, "place": 5, "ratio": 6, "pytorch": 8}, ("step", "pytorch"),
             lambda row: row[2] == "by position")
PARTS = Into("step/parts", (0, 1, 2, 3), {**SHARE, **{time: time for time in TIMES}}, ("step",),
             lambda row: row[0] == "sgd")
PHASES = Into("step/phases", (0, 1, 2, 3, 4), {"sort": 5, "plan": 6, "worth": 7, "close": 8, "apply": 9, "all": 10},
              ("phases",))
STALL = {**RATE, "stall_ms": "stall, ms a step"}
WORKERS = Into("step/workers", (0, 1, 2), {**RATE, "stall_ms": "stall"}, ("step-worker",))
LOOKAHEAD = Into("lookahead/lookahead", (0, 1, 2, 3), STALL, ("lookahead",),
                 lambda row: row[0] in (0, 2, 5, 10) and row[1] == "no")
STAGING = Into("", (), {}, ("staging",)) # no page shows these
CACHE = Into("cache/host-devices", (0, 1, 2), {**RATE, "hits": "hits"}, ("cache",), lambda row: row[1] == "Zipf 0.9")
MOVED = Into("cache/moved", (0, 1, 2), {"holder": 3, "owners": 4, "no_cache": 5}, ("cache-moved",),
             lambda row: row[1] == "Zipf 0.9")
DEVICES = Into("step/devices", (0, 1), {**RATE, "step_ms": "step, ms", "plan_ms": "plan, ms", "close_ms": "close, ms"},
               ("devices",))


def one(options):
    """bench_step with these options, and with those of ONE that they do not say."""
    said = re.findall(r"--([a-z-]+)", options)
    return STEP + " ".join([f"--{name} {value}" for name, value in ONE.items() if name not in said] + [options])


def share(r):
    return f"{r['roofline_share']:.2f}"


# >>step


def measure_step():
    run("step", STEP + "--rounds 7 --workers 0 --mode p2f --optimizer sgd,adagrad,rowwise-adagrad,adam "
        "--devices 1,2 --gradients position,place --alone staged,place")
    run("step-skew", STEP + "--rounds 5 " + SGD + "--zipf 0.9")
    run("step-batch", STEP + "--rounds 5 " + SGD + "--keys 3328,26624,106496,212992")
    run("step-bind", STEP + "--rounds 5 " + SGD + "--keys 832,3328,26624 --bind 0,1")
    run("step-worker", one("--workers 0,1,2,3,4"))
    run("pytorch", "python3 -W ignore bench/pytorch/embedding.py --json")


STEP_INTRODUCTION = """\
10,000,000 rows x 32 floats, 1 or 2 devices with 26,624 keys each per step, no workers: updates are applied when a \
step closes. The gradient is the row itself, so that only Frugal is measured. Speeds are in millions of keys per \
second: median, lowest and highest of the rounds. PyTorch trains the same sizes with sparse gradients; its parentheses \
have the 5th and the 95th percentile of its steps.

*Roofline*: the speeds at which this machine's memory gathers random rows, updates random rows, and copies bytes \
between arrays as large as the step's own. They are measured in the same round, on the same table and keys, with as \
many threads as the run. The *share* is the time that the step's necessary traffic takes at these speeds (keys read, \
rows gathered, gradients read, records written and read, rows updated), divided by the step's time. *Words* is the \
same share for changing the rows' words when announcing (and, if workers flush, when closing and taking), which is \
the traffic that exactness adds. The rest is sorting, merging plans, the words' atomic operations, and waiting for \
other threads. *By position*: rows and gradients are arrays by position of the batch. *In the block*: rows are \
gathered into the staging block, where gradients take their place. *Staged*: all updates are records in the staging \
block, applied when the step is closed, as in the paper. *In place*: a device updates the rows that it alone touches \
itself, which is the library's default on host cores; all other tables on this page are staged. Times are in \
milliseconds per step, of one device. Only plan and close, which are done while threads wait at the gate, are summed \
over threads.

"""


def parts_plot(name, title, records, label):
    parts = ["announce_ms", "gate_ms", "lookup_ms", "update_ms"]
    rows = [[f'"{label(r)}"', *(r[p] for p in parts)] for r in records]
    bars = ", ".join(f"$D using {i + 2}{':xtic(1)' if i == 0 else ''} lt {i + 1} title \"{p[:-3]}\""
                     for i, p in enumerate(parts))
    return plot(name, title, "set style data histograms; set style histogram rowstacked; set style fill solid; "
                "set boxwidth .6; set xtics rotate by -30; plot " + bars, {"D": rows}, ("", "ms a step"))


def by_optimizer():
    records = kept("step")["records"]
    torch = {(r["optimizer"], r["zipf"]): r for r in kept("pytorch")["records"]}
    rows = []
    for r in records:
        if r["gradients"] == "position":
            rows.append([r["optimizer"], skew(r), r["devices"], WAYS[r["alone"]], speed(r), share(r),
                         f"{r['words_share']:.2f}", *(f"{r[time + '_ms']:.2f}" for time in TIMES)])
    page = parts_plot("step", "A step of a device, by its parts",
                      [r for r in records if r["gradients"] == "position" and r["devices"] == 2],
                      lambda r: f"{r['optimizer']}, {skew(r)}, {WAYS[r['alone']]}")
    page += "\n" + by_way(records, torch)
    if not torch:
        page += "\nPyTorch: SKIPPED, not installed.\n"
    page += source("step", "pytorch") + "\nThe parts of the step, with gradients by position:\n\n"
    page += noted(PARTS, ["optimizer", "keys", "devices", "rows alone", "M keys/s", "share", "words", *TIMES], rows)
    return page + "\n" + by_loop(records) + source("step")


def by_way(records, torch):
    """Staged and in place: runs that took turns, a round each."""
    rows, ways = [], {}
    for r in records:
        ways.setdefault((r["optimizer"], r["zipf"], r["gradients"], r["devices"]), {})[r["alone"]] = r
    for (optimizer, zipf, gradients, devices), way in ways.items():
        staged, place = way["staged"], way["place"]
        other = torch.get((optimizer, zipf)) if gradients == "position" and devices == 2 else None
        rows.append([optimizer, skew(place), "in the block" if gradients == "place" else "by position", devices,
                     speed(staged), speed(place), f"{place['keys_per_s'] / staged['keys_per_s']:.2f}",
                     f"{place['in_place_rows'] / place['updated_rows']:.0%}", speed(other) if other else ""])
    return noted(SPEED, ["optimizer", "keys", "gradients", "devices", "staged, M keys/s", "in place, M keys/s", "ratio",
                         "rows in place", "PyTorch, M keys/s"], rows)


def by_loop(records):
    """Lookup and update of rows in place, beside loops over the same rows whose caches are swept between turns."""
    rows = []
    for r in records:
        if r["alone"] == "staged" or r["gradients"] == "place":
            continue
        updated = r["updated_rows"] / r["devices"]
        ours = [1e6 * r["lookup_ms"] / r["keys"], 1e6 * r["update_ms"] / updated]
        loop = [1e9 * r["devices"] / r[f"swept_{which}_per_s"] for which in ("gather", "row_updates")]
        rows.append([r["optimizer"], skew(r), r["devices"],
                     *(f"{value:.0f}" for pair in zip(ours, loop) for value in pair),
                     *(f"{there / here:.2f}" for here, there in zip(ours, loop))])
    page = ("Lookup and update of the steps in place, in nanoseconds of one thread, beside two plain loops: one that "
            "copies the row of each key to an array, one that adds its gradients to each distinct row, and a constant "
            "to its state. The loops have the same table, the same keys and as many threads. Before each of their "
            "turns, other memory is read until the caches hold nothing of table and gradients, as after a model's own "
            "work. Ours sums the gradients of equal keys in blocks, and takes the optimizer's step.\n\n")
    return page + table(["optimizer", "keys", "devices", "lookup, ns a key", "loop", "update, ns a row", "loop",
                         "share, lookup", "share, update"], rows)


def by_binding():
    bound = {(r["keys"], r["zipf"], r["bind"]): r for r in kept("step-bind")["records"]}
    rows = []
    for (keys, zipf, bind), r in bound.items():
        if bind:
            free = bound[keys, zipf, 0]
            rows.append([keys, skew(r), speed(r), speed(free), f"{r['keys_per_s'] / free['keys_per_s']:.2f}"])
    return table(["keys a device", "skew", "bound, M keys/s", "not bound", "ratio"], rows) + source("step-bind")


def write_step():
    page = STEP_INTRODUCTION + by_optimizer() + "\nOther skews and batches, SGD:\n\n"
    page += table(["keys a device", "skew", "M keys/s", "share", "words"],
                  [[r["keys"], skew(r), speed(r), share(r), f"{r['words_share']:.2f}"]
                   for name in ("step-skew", "step-batch") for r in kept(name)["records"]])
    page += source("step-skew", "step-batch")
    page += ("\nExcept in the column \"not bound\", each trainer's thread is bound to a processor in all runs of "
             "`bench_step` on this page, and so are PyTorch's threads. If the kernel chooses, it may put two threads "
             "that often wait for each other on one processor:\n\n")
    page += by_binding()
    page += ("\nP2F against write-through (the paper's Exp #2), by the number of flushing threads (Exp #10): one "
             "device; gate, stall, close and flush in ms per step.\n\n")
    page += noted(WORKERS, ["workers", "mode", "keys", "M keys/s", "share", "gate", "stall", "close", "flush"],
                  [[r["workers"], MODES[r["mode"]], skew(r), speed(r), share(r),
                    *(f"{r[time + '_ms']:.3f}" for time in ("gate", "stall", "close", "flush"))]
                   for r in kept("step-worker")["records"]])
    return page + source("step-worker")


# >>phases: what the host does for all devices together


def measure_phases():
    run("phases", "for options in '--devices 1' '--devices 8' '--devices 1 --zipf 0.99 --small-pages' '--devices 1 "
        "--keys 1048576 --zipf 1.05'; do build/bench_host --json --counting 1 $options || exit 1; done")


def write_phases():
    phases = ["read", "sort", "list", "give", "plan", "worth", "close", "apply"]
    rows = []
    for r in kept("phases")["records"]:
        ns = {phase: 1e3 * r[phase + "_us"] / (r["devices"] * r["keys"]) for phase in phases}
        sorting = sum(ns.pop(phase) for phase in ("read", "sort", "list", "give"))
        rows.append([r["devices"], r["keys"], skew(r), WAYS[r["alone"]], "huge" if r["huge"] > 0.5 else "small",
                     *(f"{each:.1f}" for each in (sorting, *ns.values(), sorting + sum(ns.values()))),
                     f"{r['of_staged']:.2f}"])
    return ("What the host does for a key, in nanoseconds of one thread's processor time. *Sort*: keys are checked, "
            "sorted and deduplicated; *plan*: the rows of all devices are merged, and their words changed; *worth*: "
            "touches are counted, for counted caches alone; *apply*: what closing has queued. Gathers and updates by "
            "the devices are left out, because on GPUs the host does not do them.\n\n" +
            noted(PHASES, ["devices", "keys a device", "keys", "rows alone", "pages", "sort", "plan", "worth", "close",
                           "apply", "all", "over staged"], rows) + source("phases"))


# >>sweeps: one device, one worker, by one setting


def sweep_page(into, heading, introduction, logscale=False):
    name = key = into.runs[0]
    records = kept(name)["records"]
    lines = {}
    for r in records:
        if not r["loader"]:
            title = f"{MODES[r['mode']]}, {skew(r)}"
            lines.setdefault(title, []).append([r[key], r["stall_ms"], r["keys_per_s"] / 1e6])
    data = {f"D{i}": rows for i, rows in enumerate(lines.values())}
    axes = ("set logscale x; " if logscale else "") + "set yrange [0:*]; "
    page = introduction + "\n"
    for column, what, suffix in ((2, "stall, ms a step", "stall"), (3, "million keys a second", "speed")):
        page += plot(f"{name}-{suffix}", f"{heading}: {what}", axes + curves(lines, column), data,
                     (heading.lower(), what))
    loaders = len({r["loader"] for r in records}) > 1
    made = noted if into.path else lambda _, headings, rows: table(headings, rows)
    page += "\n" + made(into, [heading.lower(), *(["loader's thread"] if loaders else []), "mode", "keys", "M keys/s",
                               "share", "stall, ms a step", "stall, % of it"],
                        [[r[key], *([("no", "yes")[r["loader"]]] if loaders else []), MODES[r["mode"]], skew(r),
                          speed(r), share(r), f"{r['stall_ms']:.3f}", f"{100 * r['stall_ms'] / r['step_ms']:.1f}"]
                         for r in records])
    return page + source(name)


def measure_lookahead():
    run("lookahead", one("--loader 0,1 --lookahead 0,1,2,5,10,15"))


def write_lookahead():
    return sweep_page(LOOKAHEAD, "Lookahead",
                      "One device, one worker. With L = 0 a batch is announced just before it is read, so the updates "
                      "of its rows are flushed on demand. Either the trainer announces (plots), or a loader's thread "
                      "does. The loader saves the trainer this work, but needs a processor: here three threads then "
                      "share two, and flushing comes late.")


def measure_staging():
    run("staging", one("--mode p2f --staging 1,2,3,4,6,8,12,24,40"))


def write_staging():
    return sweep_page(STAGING, "Staging depth",
                      "One device, one worker, lookahead 10. A deeper ring lets updates wait longer, but its records "
                      "pass through more memory.", True)


def measure_processor():
    run("processor", one("--mode p2f --loader 0,1 --workers 0,1,2,4"))


def write_processor():
    return ("Processor time per step in ms, one device: of each call, and of the workers. A thread that waits in a "
            "call helps with planning, closing and flushing.\n\n" +
            table(["keys", "workers", "loader's thread", "M keys/s", "announce", "gate and lookup", "update",
                   "workers"],
                  [[skew(r), r["workers"], "yes" if r["loader"] else "no", speed(r),
                    *(f"{r['cpu_' + who + '_ms']:.2f}" for who in ("loader", "lookup", "update", "workers"))]
                   for r in kept("processor")["records"]]) + source("processor"))


# >>caches, devices, rows


def measure_cache():
    run("cache", STEP + "--mode p2f --workers 0 --optimizer sgd --devices 1,2 --zipf 0.9,0.99 "
        "--cache 0,0.01,0.05,0.2,1 --rounds 3 --rows 2000000")
    run("cache-moved", "build/bench_sim --json --system frugal,sharded,nocache --gpus 1,2,4,8 --zipf 0.9,0.99 "
        "--cache 0.01,0.05,0.2,1 --keys 26624")


def bytes_moved():
    systems = {"holder rule": "frugal", "owners": "sharded", "no cache": "nocache"}
    moved = {}
    for r in kept("cache-moved")["records"]:
        if "system" in r:
            moved[r["gpus"], r["zipf"], r["cache"], r["system"]] = (r["read_bytes"] + r["written_bytes"]) / 1e6
    places = sorted({key[:3] for key in moved})
    page = noted(MOVED, ["GPUs", "skew", "cache", "holder rule, MB", "owners' caches, MB", "no cache, MB"],
                 [[g, f"Zipf {z:g}", f"{c:.0%}", *(f"{moved[g, z, c, s]:.2f}" for s in systems.values())]
                  for g, z, c in places])
    data = {f"D{i}": [[g, moved[g, 0.9, 0.05, s]] for g in (1, 2, 4, 8)] for i, s in enumerate(systems.values())}
    return page + plot("cache-moved", "Over each link a step: 5% cached, Zipf 0.9",
                       "set yrange [0:*]; " + curves(systems), data, ("GPUs", "MB"))


def write_cache():
    page = ("A host device's cache lies in the same memory as the table, so here it only costs time; it exists so that "
            "caches can be tested. On a GPU, a cache saves traffic over the link. Caches are counted ones.\n\n")
    page += noted(CACHE, ["devices", "keys", "cache", "M keys/s", "hits"],
                  [[r["devices"], skew(r), f"{r['cache']:.0%}", speed(r), f"{r['hits']:.1%}"]
                   for r in kept("cache")["records"]]) + source("cache")
    page += ("\nBytes over each GPU's link per step, in both directions, counted while the library ran (not timed): "
             "with caches by the holder rule, with owners' caches that exchange all to all, and without caches. "
             "Batches go to the GPUs at random.\n\n")
    return page + bytes_moved() + source("cache-moved")


def measure_devices():
    run("devices", STEP + "--mode p2f --workers 0 --optimizer sgd --devices 1,2,4,8 --rounds 5")


def write_devices():
    return ("Each device looks up 26,624 keys per step; no workers. If there are more devices than processors, devices "
            "share a processor.\n\n" +
            noted(DEVICES, ["devices", "keys", "M keys/s", "share", "step, ms", "plan, ms", "close, ms"],
                  [[r["devices"], skew(r), speed(r), share(r), f"{r['step_ms']:.2f}", f"{r['plan_ms']:.2f}",
                    f"{r['close_ms']:.2f}"] for r in kept("devices")["records"]]) + source("devices"))


ROWS = (1000000, 10000000, 50000000, 200000000)


def measure_rows():
    for rows in ROWS:
        run(f"rows-{rows}", STEP + f"--mode p2f --workers 0 --optimizer sgd --zipf 0 --dim 16 --rounds 5 --rows {rows}")


def write_rows():
    names = [f"rows-{rows}" for rows in ROWS]
    page = ("Uniform keys, dim 16. Only the memory system (caches and pages) makes a step depend on the number of "
            "rows. So the table also has the time per key at the roofline, from the same run.\n\n")
    rows = []
    for r in (r for name in names for r in kept(name)["records"]):
        ns = 1e9 / r["keys_per_s"]
        rows.append([f"{r['rows'] / 1e6:g}M", f"{r['rows'] * 64 / 1e9:.1f}", speed(r), f"{ns:.1f}",
                     f"{ns * r['roofline_share']:.1f}", share(r)])
    page += table(["rows", "table, GB", "M keys/s", "ns a key", "at the roofline", "share"], rows)
    return page + source(*names)


# >>disk

# A table over the memory that it has, and the share of its pages that memory then holds. Keys are uniform, so whatever
# the system replaces, each lookup finds its page with this probability.
OVER = [(0.5, 1), (1, 1), (1.5, 0.667), (2, 0.5), (4, 0.25), (8, 0.125)]


def measure_disk():
    for over, resident in OVER[:1] + OVER: # the first makes the file, which the system then writes to the disk
        run(f"disk-{over}", STEP + "--devices 1 --workers 1 --optimizer sgd --mode p2f --zipf 0 --rounds 5 "
            f"--file build/results/table --rows 10000000 --keys 1664 --steps 20 --cold --resident {resident}")
    os.remove(os.path.join(KEPT, "table"))


def write_disk():
    names = [f"disk-{over}" for over, _ in OVER]
    found = [(over, kept(f"disk-{over}")["records"][0]) for over, _ in OVER]
    rows = [[over, f"{r['step_ms']:.1f}", f"{r['lookup_ms']:.1f}", f"{r['gate_ms']:.1f}"] for over, r in found]
    picture = plot("disk", "A table in a file: step time by its size", "plot $D0 using 1:2 with linespoints notitle",
                   {"D0": [(over, r["step_ms"]) for over, r in found]}, ("table over memory", "ms a step"))
    return ("Pages are asked for as rows are announced; when a round begins, the share of them that memory would hold "
            "is there.\n\n" +
            table(["table over memory", "step, ms", "lookup, ms", "gate, ms"], rows) + picture + source(*names))


# >>stalls

FILE = "--file build/results/table --rows 20000000 --keys 1664 --steps 30"
STALLS = [("stalls-plenty", "a worker that keeps up", ""),
          ("stalls-slow", "workers too slow: Adam at dim 128, 4 devices, 1 worker",
           "--devices 4 --optimizer adam --dim 128 --rows 1000000 --keys 6656"),
          ("stalls-hot", "hot rows: Zipf 1.5", "--zipf 1.5"),
          ("stalls-blind", "no lookahead", "--lookahead 0"),
          ("stalls-file", "the table is a mapped file, in the page cache", FILE),
          ("stalls-cold", "the same file, put out of memory before each round", FILE + " --cold")]


def measure_stalls():
    for name, _, options in STALLS:
        run(name, one(("" if "--zipf" in options else "--zipf 0.9 ") + options))
    os.remove(os.path.join(KEPT, "table"))


def write_stalls():
    rows = []
    for name, what, _ in STALLS:
        for r in kept(name)["records"]:
            rows.append([what, MODES[r["mode"]], millions(r["keys_per_s"]), f"{r['stall_ms']:.3f}",
                         f"{100 * r['stall_ms'] / r['step_ms']:.1f}", f"{r['lookup_ms']:.3f}", f"{r['close_ms']:.3f}",
                         f"{r['flush_ms']:.3f}"])
    into = Into("lookahead/stalls", (0, 1), {**STALL, "stall_percent": 4, "lookup_ms": 5}, tuple(
        name for name, _, _ in STALLS))
    return ("The gate always waits for closing. It also waits for rows that are read now and were not flushed in time. "
            "If the table lies on a disk, lookups are slow, because they read it in place; flushing then finds the "
            "rows in memory.\n\n" +
            noted(into, ["", "mode", "M keys/s", "stall, ms a step", "stall, % of it", "lookup, ms", "close, ms",
                         "flush, ms"], rows) + source(*(name for name, _, _ in STALLS)))
