"""The queue: bench/queues."""
from report.page import kept, plot, run, source, table
from report.record import Into, note, noted

NAMES = {"frugal": "frugal_pq.h", "mutex": "binary heap, one mutex, for 64 operations",
         "mutex-batch": "... for a whole batch", "treeheap": "TreeHeap, a lock a node",
         "paper": "the paper's, over TBB's hash map", "tbb": "TBB's queue, lazy re-push",
         "calendar": "calendar", "multiqueue": "MultiQueue"}
PAGES = {"frugal": 62, "frugal-30": 30, "frugal-126": 126, "frugal-254": 254} # ids in one


INSIDE = ("--json --rows 1000000 --dim 32,400 --keys 2048,26624 --zipf 0.9 --optimizer adagrad --mode p2f --workers 1 "
          "--rounds 5 --threads 2")


MIX = Into("queue/mix", ("ids", "threads", "queue"),
           {"mops": "M ops/s", "take_ns": "ns take", "stall_ms": "gate's stall, ms a step", "ratio": "ratio"},
           ("queue", "queue-large"), lambda row: row[2] not in (NAMES["mutex-batch"], NAMES["tbb"])) # no page has these
BESIDE = Into("queue/beside", ("threads", "queue"), {"ratio": "frugal_pq.h over it"}, ("queue-beside",))
BOTH = ("queue-inside", "queue-inside-treeheap")
OVER = Into("queue/inside-ratios", (0,), {"times": 1}, BOTH)


def measure_beside():
    run("queue-beside", "build/bench_pq --json --rounds 15 --threads 1,2 --queues frugal,calendar,multiqueue")


def measure():
    first = "build/bench_pq --json --rounds 7 --queues frugal,paper,treeheap,tbb,mutex,mutex-batch --threads "
    run("queue", first + "1,2,4")
    run("queue-large", first + "2 --ids 10000000")
    measure_beside()
    run("queue-pages", "build/bench_pq --json --rounds 7 --threads 1,2 --queues frugal-30,frugal,frugal-126,frugal-254")
    run("queue-scan", "build/bench_pq --json --scan")


def compared():
    rows, bars = [], []
    for run_name in ("queue", "queue-large"):
        records = kept(run_name)["records"]
        for threads, ids in sorted({(r["threads"], r["ids"]) for r in records if "op" in r}):
            here = {(r["queue"], r["op"]): r for r in records if r.get("threads") == threads and r.get("ids") == ids}
            ours = here["frugal", "all"]["mops"]
            for queue in NAMES:
                if (queue, "all") not in here:
                    continue
                every = here[queue, "all"]
                rows.append([f"{ids / 1e6:g}M", threads, NAMES[queue], f"{every['mops']:.1f}",
                             *(f"{here[queue, op]['ns']:.0f}" for op in ("enqueue", "adjust", "take")),
                             f"{every['stall_ms']:.3f}", f"{ours / every['mops']:.1f}"])
                if threads == 2 and run_name == "queue":
                    bars.append([f'"{queue}"', every["mops"]])
    page = plot("queue", "The queue: P2F's mix, 2 threads, 1M ids",
                "set logscale y; set yrange [1:1000]; set style fill solid; set boxwidth .6; unset key; "
                "plot $D using 0:2:xtic(1) with boxes lt 1, "
                "'' using 0:2:(sprintf('%.1f', $2)) with labels offset 0,.6",
                {"D": bars}, ("", "million operations a second"))
    return page + "\n" + noted(MIX, ["ids", "threads", "queue", "M ops/s", "ns enqueue", "ns adjust", "ns take",
                                     "gate's stall, ms a step", "ratio"], rows)


def beside():
    records = {(r["threads"], r["queue"]): r["mops"] for r in kept("queue-beside")["records"] if r["op"] == "all"}
    return noted(BESIDE, ["threads", "queue", "frugal_pq.h over it"],
                 [[threads, NAMES[queue], f"{records[threads, 'frugal'] / mops:.2f}"]
                  for (threads, queue), mops in records.items() if queue != "frugal"])


def scanned():
    records = kept("queue-scan")["records"]
    worst = max(max(r["ns"], r["disturbed_ns"]) for r in records if r["distance"] < 64) # something is taken
    page = ("\nThe paper's scan range compression keeps bounds on the priorities in use, so that a search looks at "
            "fewer slots. Here a search begins at the first step that is not closed. The table has its cost by the "
            "number of slots that it looks at, in a quiet queue and in one that another thread changes. A take "
            f"returns up to 62 ids: if pages are full, the slowest search that finds a slot costs {worst / 62:.1f} ns "
            "per id. So `frugal_pq.h` keeps no bounds.\n\n")
    return page + table(["slots looked at", "ns", "ns, disturbed"],
                        [["all 64, none occupied" if r["distance"] == 64 else r["distance"] + 1,
                          f"{r['ns']:.1f}", f"{r['disturbed_ns']:.1f}"] for r in records])


def write():
    page = ("P2F's mix of operations: announcing moves queued ids, closing enqueues 20,000 ids, and all threads take; "
            "priorities lie in the window. The queues take turns with the same operations. ns: one thread's time per "
            "operation. Ratio: operations per second of `frugal_pq.h`, divided by those of the queue in the "
            "line.\n\n")
    page += compared() + source("queue", "queue-large")
    page += "\nTBB's FIFO queues, of pages, in a calendar, and a MultiQueue:\n\n"
    page += beside() + source("queue-beside") + "\nPage size, in ids (62 fill four cache lines):\n\n"
    page += table(["ids a page", "threads", "M ops/s", "spread"],
                  [[PAGES[r["queue"]], r["threads"], f"{r['mops']:.1f}", f"{r['spread']:.0%}"]
                   for r in kept("queue-pages")["records"] if r["op"] == "all"])
    return page + scanned() + source("queue-pages", "queue-scan")


def measure_inside():
    run("queue-inside", f"build/bench_step {INSIDE}")
    run("queue-inside-treeheap", f"build/bench_step_treeheap {INSIDE}")


def write_inside():
    rows, ratios = [], {"updating": [], "stall": [], "throughput": []}
    for ours, tree in zip(kept("queue-inside")["records"], kept("queue-inside-treeheap")["records"]):
        updating = [sum(r[f"{part}_ms"] for part in ("announce", "plan", "close")) for r in (ours, tree)]
        for name, r, ms in (("frugal_pq.h", ours, updating[0]), ("TreeHeap", tree, updating[1])):
            rows.append([r["dim"], r["keys"], name, f"{ms:.2f}", f"{r['stall_ms']:.3f}",
                         f"{r['keys_per_s'] / 1e6:.2f}"])
        ratios["updating"].append(updating[1] / updating[0])
        ratios["stall"].append(tree["stall_ms"] / ours["stall_ms"])
        ratios["throughput"].append(ours["keys_per_s"] / tree["keys_per_s"])
    said = {name: f"{min(all):.1f} to {max(all):.1f}" for name, all in ratios.items()}
    note(OVER, ("what", "times"), said.items())
    page = ("The paper's Exp #4 on host cores: the same runtime, once with `frugal_pq.h` and once with TreeHeap "
            "([`bench/step/flush_treeheap.c`](../bench/step/flush_treeheap.c)). 1M rows, 2 devices, 1 worker, Zipf "
            "0.9. The time to update a batch's g-entries is the time to announce, plan and close a step. With TreeHeap "
            f"it is {said['updating']} times as long (the paper: 1.2 to 1.4), the stall is {said['stall']} times as "
            f"long (the paper: 74.0 to 106.8), and our throughput is {said['throughput']} times TreeHeap's (the paper: "
            "2.1 to 3.3).\n\n")
    return page + table(["floats a row", "keys a device", "queue", "g-entries, ms a step", "stall, ms a step",
                         "M keys/s"], rows) + source("queue-inside", "queue-inside-treeheap")
