#!/usr/bin/env python3
"""Rows that are only read, from Python: a Server beside a NumPy array that is mapped into memory (numpy.load with
mmap_mode), which a program without a library would use. A request takes keys of one table, at random, or pools them in
bags of 10. Threads look up for a while; the contenders take turns, and the median of the rounds counts.

    python3 python/bench/serving.py [--rows 1000000] [--dim 32] [--keys 3328] [--skew 3] [--threads 1,2]
        [--seconds 0.3] [--rounds 7] [--folder /tmp] [--json]

--skew: of the keys: rank = rows * u ** skew, of uniform u. With "refreshed" another thread takes over an
increment of 10,000 rows and the base in turn; a mapped array has nothing like it.
"""
import argparse
import json
import os
import statistics
import tempfile
import threading
import time

import numpy as np

import frugal_embedding as frugal

CHANGED, BAG, BATCHES = 10_000, 10, 64


def options():
    parser = argparse.ArgumentParser()
    for name, standard in (("rows", 1_000_000), ("dim", 32), ("keys", 3328), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    for name, standard in (("skew", 3.0), ("seconds", 0.3)):
        parser.add_argument(f"--{name}", type=float, default=standard)
    parser.add_argument("--threads", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2])
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def make(of, folder):
    """A save, its increment, and the rows of the save as an .npy file."""
    paths = [os.path.join(folder, name) for name in ("base", "next", "rows.npy")]
    with frugal.Frugal([frugal.Table(of.rows, frugal.Uniform(-1.0, 1.0))], of.dim, max_keys=CHANGED, seed=1,
                       increments=True) as f:
        f.attach_cpu()
        f.save(paths[0])
        np.save(paths[2], f.view())
        keys = np.random.default_rng(2).integers(0, of.rows, min(CHANGED, of.rows))
        f.announce(0, 0, keys)
        f.lookup(0, 0)
        f.update(0, 0, np.ones((len(keys), of.dim), np.float32), lr=0.01)
        f.drain()
        f.save(paths[1], increment=True)
    return paths


def requests_a_second(look, batches, threads, seconds):
    """How often all threads together call look(keys)."""
    counts, running = [0] * threads, threading.Event()
    running.set()

    def run(number):
        while running.is_set():
            look(batches[(number * 7 + counts[number]) % len(batches)])
            counts[number] += 1
    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    since = time.perf_counter()
    for thread in started:
        thread.start()
    time.sleep(seconds)
    running.clear()
    for thread in started:
        thread.join()
    return sum(counts) / (time.perf_counter() - since)


def refreshed(server, paths, measure):
    """measure(), while another thread takes over the two versions in turn; and how often it did."""
    running, turns = threading.Event(), 0
    running.set()

    def refresh():
        nonlocal turns
        while running.is_set():
            server.refresh(paths[:2 - turns % 2])
            turns += 1
    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        return measure()
    finally:
        running.clear()
        thread.join()
        server.refresh(paths[:1])


def measure(of, folder):
    paths = make(of, folder)
    generator = np.random.default_rng(3)
    batches = [(of.rows * generator.random(of.keys) ** of.skew).astype(np.int64) for _ in range(BATCHES)]
    n_bags = of.keys // BAG
    bounds = np.append(np.arange(n_bags) * BAG, of.keys).astype(np.int32)
    mapped = np.load(paths[2], mmap_mode="r")
    with frugal.serve.Server(paths[:1]) as server:
        largest = float(np.abs(np.add.reduceat(mapped[batches[0]], bounds[:-1]) -
                               server.lookup_bags(batches[0], bounds)).max())
        if not np.array_equal(server.lookup(batches[0]), mapped[batches[0]]) or largest > 1e-4:
            raise SystemExit("serving: the rows differ")
        ways = {("rows", "frugal"): server.lookup, ("rows", "mapped"): lambda keys: mapped[keys],
                ("bags", "frugal"): lambda keys: server.lookup_bags(keys, bounds),
                ("bags", "mapped"): lambda keys: np.add.reduceat(mapped[keys], bounds[:-1])}
        found = {}
        for _ in range(of.rounds):
            for threads in of.threads:
                for (what, way), look in ways.items():
                    found.setdefault((what, way, threads), []).append(
                        requests_a_second(look, batches, threads, of.seconds))
                found.setdefault(("rows", "refreshed", threads), []).append(refreshed(
                    server, paths, lambda: requests_a_second(server.lookup, batches, threads, of.seconds)))
    return [{"what": what, "contender": way, "threads": threads, "per_second": round(statistics.median(rates)),
             "least": round(min(rates)), "most": round(max(rates))} for (what, way, threads), rates in found.items()]


def main():
    of = options()
    load = os.getloadavg()[0]  # before it starts
    with tempfile.TemporaryDirectory(dir=of.folder) as folder:
        entries = measure(of, folder)
    if of.json:
        print(json.dumps({"benchmark": "serving", "rows": of.rows, "dim": of.dim, "keys": of.keys, "skew": of.skew,
                          "rounds": of.rounds, "seconds": of.seconds, "numpy": np.__version__, "load_average": load,
                          "requests": entries}))
        return
    print(f"{of.rows} rows of dim {of.dim}, requests of {of.keys} keys; median of {of.rounds} rounds (least to most)")
    for one in entries:
        print(f"{one['what']}  {one['contender']:10} {one['threads']} threads  {one['per_second']:8}/s "
              f"({one['least']} to {one['most']})")


if __name__ == "__main__":
    main()
