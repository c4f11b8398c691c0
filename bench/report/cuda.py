"""On a GPU: bench/cuda/registers counts on this machine; bench/cuda/run measures on another and returns an archive."""
import json
import os
import re
import sys
import tarfile
import zlib

from report.page import ROOT, NotMeasured, keep, kept, run, source, table
from report.record import Into, note

# The parts of bench/cuda/run and their subjects. bench/cuda/run measures; the archive that it returns is read here.
PARTS = {"steps": "Steps", "dynamicemb": "Steps as NVIDIA's dynamicemb times them",
         "gather": "Host rows: read in place, or gathered and copied", "hits": "Lookup and update by hit rate",
         "serve": "Serving", "bags": "Bags", "graph": "A step by calls, and as a graph",
         "steps_threads": "Steps by workers and loader", "steps_keys": "Steps by where keys lie",
         "pytorch": "PyTorch on the same sizes", "litmus": "Litmus for caches",
         "lookup_ladder": "Lookup, kernel by kernel", "update_ladder": "Update, kernel by kernel",
         "ncu_lookup": "Counters of lookups", "ncu_update": "Counters of updates",
         "dmon": "Steps while the link's load was read", "timeline": "Timeline of a step",
         "translation": "Rows in place, by how memory was made",
         "halves_gather": "Rows of 16 bits, read in place", "halves_steps": "Steps with rows of 16 bits",
         "kept_link": "Kept or in place, where the link is the bottleneck",
         "larger": "A table larger than the GPU's memory",
         "machines": "Devices of several machines, beside as many of one",
         "litmus_gpus": "Litmus for caches, each GPU as reader and as writer",
         "links_gb": "Links of several GPUs, by size of host memory", "attach": "Attaching, by size of the table",
         "steps_one": "Steps on one GPU", "steps_two": "Steps on two GPUs",
         "steps_same": "Steps, two devices on one GPU"}
CALLS = {"correctness": ["litmus"], # what is not named: measurement
         "next": ["translation", "halves_gather", "halves_steps", "kept_link", "larger", "steps_keys", "machines"],
         "profiles": ["ncu_lookup", "ncu_update", "dmon", "timeline"],
         "two": ["litmus_gpus", "links_gb", "attach", "steps_one", "steps_two", "steps_same"]}

# >>archives


def objects(text):
    """JSON objects, a line each; the last line of a run that was killed may be incomplete."""
    found = []
    for line in text.splitlines():
        try:
            found += [json.loads(line)] if line.startswith("{") else []
        except ValueError:
            pass
    return found


def files_of(archive):
    """Name to text of what bench/cuda/run left, in a folder or an archive."""
    wanted = (".json", ".err")
    if os.path.isdir(archive):
        return {name: open(os.path.join(archive, name), errors="replace").read() for name in os.listdir(archive)
                if name.endswith(wanted)}
    with tarfile.open(archive) as tar:
        return {os.path.basename(member.name): tar.extractfile(member).read().decode(errors="replace")
                for member in tar if member.isfile() and member.name.endswith(wanted)}


def import_archive(archive):
    """Keeps what one call of bench/cuda/run measured, each part with its command and the GPU it was measured on."""
    try:
        files = files_of(archive)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        sys.exit(f"results: {archive}: wanted an archive of bench/cuda/run; it cannot be read whole: "
                 f"{str(error).splitlines()[0]}; bring it home again")
    gpu = next(iter(objects(files.get("machine.json", ""))), {})
    parts = [part for part in objects(files.get("parts.json", ""))
             if {"part", "command", "date", "status"} <= set(part)]
    missing = [field for field in ("gpu", "driver", "toolkit", "processor", "compiler") if field not in gpu]
    if missing or not parts:
        lacks = f" (machine.json lacks {', '.join(missing)})" if gpu and missing else ""
        sys.exit(f"results: {archive}: wanted an archive or a folder of bench/cuda/run; "
                 f"found no machine.json and parts.json in it{lacks}")
    if not gpu["gpu"]:
        sys.exit(f"results: {archive}: nothing was measured, there was no GPU; run bench/cuda/run where there is one")
    where = (f"{gpu['gpu']}, driver {gpu['driver']}, CUDA Toolkit {gpu['toolkit']}; "
             f"{gpu['processor']}, {gpu['compiler']}")
    for part in parts:
        name = part["part"].removesuffix(".json")
        records = objects(files.get(name + ".json", ""))
        if name in PARTS and records:
            keep_part(name, part, where, records, files[name + ".json"] + files.get(name + ".json.err", ""))
            print(f"results: {archive}: {name}, {len(records)} records", file=sys.stderr)


def keep_part(name, part, where, records, said):
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    if part["status"] != "0":
        skipped.append(f"ended early, exit status {part['status']}")
    keep("cuda-" + name,
         {"command": part["command"], "date": part["date"], "machine": where, "skipped": skipped,
          "allows": [r for r in records if r.get("experiment") == "machine"],
          "records": [r for r in records if r.get("experiment") not in ("machine", "table", "end")]})


def measure(archives=()):
    """Reads archives, or counts registers: not both, because counting takes minutes and needs nvcc, and the archive's
    machine may have had another nvcc."""
    for archive in archives:
        import_archive(archive)
    if not archives:
        run("cuda-registers", "bench/cuda/registers")


def cell(value):
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else value


# >>records

SPEED = {"speed": ("keys_per_s", "min", "max")} # in millions


def part_into(path, by, keep, name, only=lambda row: True):
    return Into(path, by, keep, ("cuda-" + name,), only)


RECORDS = {
    "steps": part_into("cuda/steps", ("system", "gate", "alone", "loader", "devices"), SPEED, "steps",
                       lambda row: row[1] == "host"),
    "steps_threads": part_into("cuda/threads", ("system", "gate", "alone", "loader", "workers"), SPEED, "steps_threads",
                               lambda row: row[:3] == ["p2f", "host", "staged"]),
    "steps_keys": part_into("cuda/keys", ("devices", "loader", "keys_in", "sorted_by"),
                            {**SPEED, "announce_ms": "announce_ms"}, "steps_keys"),
    "dynamicemb": part_into("cuda/dynamicemb", ("devices", "optimizer", "footprint"),
                            {f: f for f in ("step_ms", "forward_ms", "backward_ms", "announce_ms", "hits")},
                            "dynamicemb"),
    "gather": part_into("host_rows/gather", ("rows", "dim", "batch", "how", "threads"), {"us": "us", "ratio": "ratio"},
                        "gather", lambda row: row[0] > 1000000 and row[1] in (32, 128) and row[4] != 1),
    "hits": part_into("host_rows/hits", ("what", "dim", "keys", "wanted"), {"us": "us", "link_share": "link_share"},
                      "hits", lambda row: row[1] == 32 and row[2] in (26624, 1048576)),
    "translation": part_into("cuda/translation", ("kind", "row_bytes", "gib"),
                             {"ns_per_row": ("ns_per_row", "min_ns", "max_ns"), "gb_per_s": "gb_per_s"}, "translation"),
    "kept_link": part_into("cuda/kept_link", ("gate", "alone", "devices"), SPEED, "kept_link"),
    "larger": part_into("cuda/larger", ("rows", "alone", "zipf"), SPEED, "larger"),
    "pytorch": part_into("cuda/pytorch", ("where", "optimizer", "zipf"), SPEED, "pytorch"),
    "timeline": part_into("cuda/timeline", ("lane", "what", "gate"), {"step_us": "step_us", "length_us": "length_us"},
                          "timeline"),
}
PUBLISHED = part_into("cuda/published", ("optimizer", "footprint"), {"fbgemm_ms": 2, "dynamicemb_ms": 3}, "dynamicemb")
SLOWER = part_into("host_rows/slower", (0,), {"cases": 1, "slower": 2, "slower_8": 3, "ratio": 4}, "gather")
SERVED = part_into("cuda/serving-slower", (0,), {"cases": 1, "slower": 2}, "serve")
LITMUS = part_into("cuda/litmus", (0,), {"rows_compared": 1, "wrong": 2}, "litmus")


def published():
    """NVIDIA's own times, from the table of bench_dynamicemb.h."""
    header = open(os.path.join(ROOT, "bench", "cuda", "bench_dynamicemb.h")).read()
    found = re.findall(r"\{FRUGAL_(\w+), ([\d.]+), ([\d.]+), ([\d.]+)\}", header)
    return [(name.lower(), share, *(f"{float(ms):.1f}" for ms in times)) for name, share, *times in found]


def slower_in_place(records):
    """Of each number of rows: the cases; those in which the better gather is faster, or that of most threads; and the
    better gather over in place."""
    ratios = {} # of each case, by threads
    for r in records:
        if r["how"] == "cpu":
            ratios.setdefault(r["rows"], {}).setdefault((r["dim"], r["batch"]), {})[r["threads"]] = r["ratio"]
    found = []
    for rows, cases in ratios.items():
        best, most = ([pick(one) for one in cases.values()] for pick in (lambda one: min(one.values()),
                                                                        lambda one: one[max(one)]))
        found.append([rows, len(cases), *(sum(ratio < 1 for ratio in each) for each in (best, most)),
                      f"{min(best)} to {max(best)}"])
    return found


def millions(r, field):
    return f"{r[field] / 1e6:.1f}" if r.get(field) else ""


def note_part(name, records):
    into = RECORDS.get(name)
    if into:
        used = list(dict.fromkeys([*into.by, *(f for each in into.keep.values() for f in
                                               ((each,) if isinstance(each, str) else each))]))
        complete = [r for r in records if set(into.by) <= set(r)]
        if complete:
            note(into, used, [[millions(r, f) if f in SPEED["speed"] else cell(r.get(f)) for f in used]
                              for r in complete])
    if name == "dynamicemb":
        note(PUBLISHED, ("optimizer", "footprint", "fbgemm", "dynamicemb"), published(),
             ("H100 80GB; github.com/NVIDIA/recsys-examples, corelib/dynamicemb/benchmark", []))
    elif name == "gather" and all("ratio" in r for r in records):
        note(SLOWER, (), slower_in_place(records))
    elif name == "serve" and all("link_blocks" in r for r in records): # archives of before 0.2
        others = [r["of_first"] < 1 for r in records if r["link_blocks"]]
        note(SERVED, (), [["all", len(others), sum(others)]])
    elif name == "litmus" and all("rows_compared" in r for r in records):
        note(LITMUS, (), [["all", *(sum(r[f] for r in records) for f in ("rows_compared", "wrong"))]])


# >>writing


def write_registers():
    records = kept("cuda-registers")["records"]
    found = {(r["kernel"], r["arch"]): r for r in records if r.get("source") == "frugal_cuda.cu"}
    archs = list(dict.fromkeys(arch for _, arch in found))
    spilled = sum(r["spill_bytes"] + r["stack_bytes"] for r in found.values())
    narrow = sum(r["narrow_rows"] for r in found.values())
    page = (f"Registers per thread, by {records[0]['compiler']}; blocks have 256 threads. Bytes of spills and of local "
            f"memory: {spilled}. Loads and stores that move a row by single floats, in kernels for rows of whole 16 "
            f"bytes (template argument 4): {narrow}.\n\n")
    kernels = dict.fromkeys(kernel for kernel, _ in found)
    return page + table(["kernel", *archs], [[f"`{kernel}`", *(found[kernel, arch]["registers"] for arch in archs)]
                                             for kernel in kernels]) + source("cuda-registers")


def in_words(record):
    return ", ".join(f"{field} {cell(value)}" for field, value in record.items() if field != "experiment") + "\n\n"


def write_part(name):
    """Where it was measured and how, what it left out, and a table for each set of fields."""
    one = kept("cuda-" + name)
    note_part(name, one["records"])
    page = f"Measured on {one['machine']}; {one['date']}:\n\n```sh\n{one['command']}\n```\n\n"
    for allows in one["allows"]: # the speeds of link and memory, with which the rest is compared
        page += in_words(allows)
    page += "".join(f"- {line}\n" for line in one["skipped"]) + ("\n" if one["skipped"] else "")
    for fields in dict.fromkeys(tuple(r) for r in one["records"]):
        rows = [r for r in one["records"] if tuple(r) == fields]
        same = {f: rows[0][f] for f in fields if len(rows) > 1 and len({str(r[f]) for r in rows}) == 1}
        if len(same) > 1:
            page += in_words(same)
        shown = [f for f in fields if f not in same]
        page += table(shown, [[cell(r[f]) for f in shown] for r in rows]) + "\n"
    return page.rstrip("\n") + "\n"


def write():
    """A part that has no outputs here keeps its record, because there is not always a GPU."""
    try:
        page = write_registers()
    except NotMeasured:
        page = "SKIPPED: `bench/results cuda` counts registers, without a GPU.\n"
    for name, heading in PARTS.items():
        call = next((call for call, parts in CALLS.items() if name in parts), "measurement")
        part = {"lookup_ladder": "ladders", "update_ladder": "ladders"}.get(name, name)
        page += f"\n### {heading}\n\n"
        try:
            page += write_part(name)
        except NotMeasured:
            page += (f"SKIPPED: no GPU was at hand. `bench/cuda/run {call}` measures it, "
                     f"`bench/cuda/run machine build {part}` measures only this.\n")
    return page
