"""docs/machines-seen.md, made of bench/records/machines/*.json: what python/bench/try_machine.py has printed on
machines, also strangers'. A file is named by its GPU, or processor, and is kept as it came.

A file with `source` is not from that program: a figure of it names one of the record that `source` begins with, whose
machine and date it has.
"""
import glob
import json
import os
import re

from report import record
from report.page import ROOT, table

PAGE = os.path.join(ROOT, "docs", "machines-seen.md")
MOST_FILE, MOST_FILES, MOST_PAGE = 3000, 60000, 4000 # bytes
SHOWN = ("Frugal", "PyTorch, table on the host", "PyTorch, table on the GPU", "FBGEMM, UVM caching")
HEADINGS = ["machine", "date", "bits", "Frugal, by devices", "PyTorch: table on the host", "on the GPU", "FBGEMM",
            "file"]

TEXT = """# Machines that have been seen

Where Frugal has run, by those who have run it. Yours is missing? In ten minutes, without root:

```sh
python3 python/bench/try_machine.py WHEEL       # or the notebook beside it, on Colab or Kaggle
```

WHEEL is a file or an address: `tools/wheel` builds it with GPUs, where nvcc is. Without it the installed package is
tried. The program checks bits, measures steps, and prints one JSON: attach it to an issue, also if something fails or
is slow. `bench/results -p` makes this page of `bench/records/machines`.

**Bits**: cases with the bits of sequential training; each other case is named in the file. **Speeds**: million keys per
second, Adagrad, Zipf 0.99, with the lowest and the highest; caches of 5% on GPUs, none on host cores. Where FBGEMM has
no figure, it was not installed, or there was no GPU. On a **busy** machine speeds are not to be compared: PyTorch's
threads wait for one another, and lose most; [results.md](results.md) has those of a quiet one.

{table}
{notes}
**Not seen yet**: {missing}
"""


def files():
    return sorted(glob.glob(os.path.join(record.FOLDER, "machines", "*.json")))


def named(one):
    """The machine in words, and the date."""
    if "source" in one:
        subject = re.match(r"bench/records/(\w+)\.json", one["source"])[1]
        wanted = {row[4].partition(".")[0] for row in one["steps"]}
        found = sorted(made.split("; ", 1) for made, tables in record.load(subject)["measured"].items()
                       if wanted & set(tables))
        return re.sub(", (CUDA Toolkit|gcc)[^;]*", "", found[0][1]), " and ".join(date for date, _ in found)
    machine = one["machine"]
    gpus = [f"{gpu['name']}{' (' + gpu['link'] + ')' if 'link' in gpu else ''}" for gpu in machine["gpus"]]
    words = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)]
    words += [f"driver {machine['driver']}"] if "driver" in machine else []
    words += [f"peer access: {machine['peer_access']}"] if len(gpus) > 1 else []
    busy = ""
    if machine["load"] > machine["processors"] / 2:
        busy = f"; **busy**, load {machine['load']:g}"
    return f"{', '.join(words) or 'no GPU'}; {machine['cpu']}, {machine['processors']} processors{busy}", one["date"]


def bits_of(one):
    bits = one.get("bits")
    if not isinstance(bits, dict):
        return bits or "not tried"
    all_of = bits["same"] + bits["differ"] + bits["not_run"]
    return f"{bits['same']} of {all_of}" + (f", **{bits['differ']} differ**" if bits["differ"] else "") + \
        (f", {bits['not_run']} not run" if bits["not_run"] else "")


def speed(one, row):
    """Million keys per second, and their lowest and highest, of a row of steps."""
    if isinstance(row[4], str):
        subject = re.match(r"bench/records/(\w+)\.json", one["source"])[1]
        figures = record.flat(subject)
        value = [figures[row[4] + end] for end in ("", ".lowest", ".highest")]
    else:
        middle, least, most, millions = row[4:8]
        value = [millions, millions * middle / most, millions * middle / least]
    return "{} ({} to {})".format(*(f"{x:.1f}" if x >= 1 else f"{x:.2f}" for x in value))


def cell(one, name):
    rows = [row for row in one.get("steps", []) if row[0] == name and row[2:4] == ["adagrad", "Zipf 0.99"]]
    several = name == "Frugal" and len(rows) > 1
    return "; ".join((f"{row[1]}: " if several else "") + speed(one, row) for row in rows) or "-"


def line(path):
    one, name = json.load(open(path)), os.path.basename(path)
    said = [f"**{len(one['failed'])} failed**"] if one.get("failed") else []
    said += [f"cut: {one['cut']}"] if one.get("cut") else []
    machine, date = named(one)
    return [machine, date, bits_of(one), *(cell(one, name) for name in SHOWN),
            "; ".join([f"[{name.removesuffix('.json')}](../bench/records/machines/{name})"] + said)]


def missing(all_of):
    gpus = [one["machine"]["gpus"] for one in all_of]
    tried = [one for one in all_of if "source" not in one]
    found = ["a GPU"] if not any(gpus) else []
    found += ["several GPUs in one machine"] if all(len(one) < 2 for one in gpus) else []
    found += ["a consumer GPU, such as an RTX 3090 or 4090"] if "RTX" not in json.dumps(gpus) else []
    found += [] if any(one["machine"]["gpus"] for one in tried) else ["rows of 16 bits on a GPU"]
    found += [] if any(row[0] == SHOWN[3] for one in tried for row in one.get("steps", [])) else \
        ["FBGEMM beside it in the same run"]
    return "; ".join(found or ["nothing of this list"]) + "."


def page():
    all_of = [json.load(open(path)) for path in files()]
    notes = "".join(f"\n{one['machine']['gpus'][0]['name']}: not from that program, but from {one['source']} "
                    f"(`bench/cuda/run`). {one['notes']}\n" for one in all_of if "source" in one)
    return TEXT.format(table=table(HEADINGS, [line(path) for path in files()]).rstrip("\n"), notes=notes,
                       missing=missing(all_of))


def check():
    """What is wrong with the page and the files."""
    wrong = []
    if not os.path.exists(PAGE) or open(PAGE).read() != page():
        wrong.append("docs/machines-seen.md is not what `bench/results -p` writes from bench/records/machines; run it")
    sizes = {os.path.relpath(path, ROOT): os.path.getsize(path) for path in files()}
    wrong += [f"{path} has {size} bytes; at most {MOST_FILE}: keep fewer steps" for path, size in sizes.items()
              if size > MOST_FILE]
    if sum(sizes.values()) > MOST_FILES:
        wrong.append(f"bench/records/machines has {sum(sizes.values())} bytes; at most {MOST_FILES}: keep the newest "
                     "file of each kind of machine")
    if os.path.exists(PAGE) and os.path.getsize(PAGE) > MOST_PAGE:
        wrong.append(f"docs/machines-seen.md has {os.path.getsize(PAGE)} bytes; at most {MOST_PAGE}: show fewer "
                     "columns, or the newest machines")
    return wrong
