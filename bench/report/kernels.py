"""Row kernels: bench_rows."""
from report.page import curves, kept, plot, run, skew, source, table


def measure():
    run("kernels", "build/bench_rows --json")


def updating(found, optimizers, dims, sets):
    def applied(optimizer, dim, place, which):
        return found["apply", optimizer, dim, 0, place, which]

    rows = []
    for optimizer in optimizers:
        for dim in dims:
            row = [optimizer, dim]
            for place in ("cache", "memory"):
                best = applied(optimizer, dim, place, sets[-1])
                row += [f"{applied(optimizer, dim, place, which)['ns']:.0f}" for which in sets]
                row.append(f"{best['saxpy_ns']:.0f}" if best["saxpy_ns"] else "")
                row += [f"{best['stream_share']:.2f}"] if place == "memory" else []
            rows.append(row)
    page = ("Nanoseconds to update one row, by instruction set: rows in a cache, and random rows in memory. For SGD "
            "there is also OpenBLAS's saxpy on the same rows, which is the same arithmetic. The share is the time "
            f"that the row's bytes take as a stream, divided by the time with {sets[-1]} in memory.\n\n")
    data = {f"D{i}": [[dim, applied(optimizer, dim, "cache", sets[-1])["gb_per_s"]] for dim in dims]
            for i, optimizer in enumerate(optimizers)}
    page += plot("kernels", f"Rows in a cache, {sets[-1]}",
                 "set logscale x 2; set yrange [0:*]; " + curves(optimizers), data, ("dim", "GB/s"))
    return page + "\n" + table(["optimizer", "dim", *(f"cached: {which}" for which in sets), "saxpy",
                                *(f"memory: {which}" for which in sets), "saxpy", "share"], rows)


def moving(found, dims, widest):
    columns = [(op, zipf) for op in ("sum", "gather") for zipf in (0, 0.99)]
    rows = []
    for dim in dims:
        moved = [found[op, "-", dim, zipf, "memory", widest] for op, zipf in columns]
        rows.append([dim, *(f"{r['ns']:.0f} ({r['stream_share']:.2f})" for r in moved)])
    return ("\nNanoseconds per key to sum the gradients of equal keys and to gather rows, with the share of a stream "
            f"in parentheses. Keys are uniform, or Zipf 0.99, where rows repeat; with {widest}.\n\n" +
            table(["dim", *(f"{op}, {skew({'zipf': zipf})}" for op, zipf in columns)], rows))


def write():
    records = kept("kernels")["records"]
    found = {(r["op"], r["optimizer"], r["dim"], r["zipf"], r["place"], r["set"]): r for r in records}
    sets = list(dict.fromkeys(r["set"] for r in records if r["op"] == "apply"))
    dims = sorted({r["dim"] for r in records})
    optimizers = list(dict.fromkeys(r["optimizer"] for r in records if r["op"] == "apply"))
    return updating(found, optimizers, dims, sets) + moving(found, dims, sets[-1]) + source("kernels")
