"""docs/machines-seen.md, made of bench/records/machines/*.json: what python/bench/try_machine.py has printed on
machines, also strangers'. A file is named by its GPU, or processor, and is kept as it came.

Strangers' files are read with care: what has not the form that the program writes, or numbers that cannot be, is
refused with the file's name, and marks that mean something in Markdown or HTML do not come onto the page.

A file with `source`, of those of OURS, is not from that program: a figure of it names one of the record that `source`
begins with, whose machine and date it has.
"""
import glob
import json
import os
import re

from report import record
from report.page import ROOT, table

PAGE = os.path.join(ROOT, "docs", "machines-seen.md")
MOST_FILE, MOST_FILES, MOST_PAGE = 3000, 60000, 4000 # bytes
OURS = ("nvidia-h200.json",)
SHOWN = ("Frugal", "PyTorch, table on the host", "PyTorch, table on the GPU", "FBGEMM, UVM caching")
HEADINGS = ["machine", "date", "bits", "Frugal, by devices", "PyTorch: table on the host", "on the GPU", "FBGEMM",
            "file"]

TEXT = """# Machines that have been seen

Machines on which somebody has run Frugal. To add yours takes ten minutes, and no root:

```sh
python3 python/bench/try_machine.py WHEEL       # or the notebook beside it, on Colab or Kaggle
```

WHEEL is a file or a web address. `tools/wheel` builds one for GPUs, with the nvcc of CUDA Toolkit 12 or 13. Without
WHEEL the program tries the installed package. It compares bits, measures steps, and prints one JSON: attach this to an
issue, also if something fails or is slow. `bench/results -p` makes this page from `bench/records/machines`.

**Bits**: the number of cases that have the bits of sequential training; the file names every other case. **Speeds**:
million keys per second (lowest to highest), with Adagrad and keys by Zipf's law (exponent 0.99). GPUs cache 5% of the
rows, host cores none. Where a figure is missing, the file says why. Do not compare speeds of a **busy** machine:
PyTorch's threads wait for one another, so that PyTorch loses most; [results.md](results.md) has speeds of a quiet one.

{table}
{notes}
**Not seen yet**: {missing}
"""


def files():
    return sorted(glob.glob(os.path.join(record.FOLDER, "machines", "*.json")))


class Wrong(Exception):
    """The text names the file, and says what was wanted."""


def is_number(value, least, most):
    return type(value) in (int, float) and least <= value <= most  # NaN is not


def is_text(value):
    return isinstance(value, str) and 0 < len(value) <= 300


def is_step(row, keys):
    """Name, devices, optimizer, distribution; milliseconds: median, lowest, highest; millions of keys per second, which
    follow from the median."""
    return isinstance(row, list) and len(row) == 8 and all(is_text(row[at]) for at in (0, 2, 3)) and \
        type(row[1]) is int and 1 <= row[1] <= 254 and all(is_number(x, 0.0005, 1e7) for x in row[4:7]) and \
        row[5] <= row[4] <= row[6] and is_number(row[7], 0, 1e5) and \
        abs(row[7] - keys * row[1] / row[4] / 1e3) <= 0.05 * row[7] + 0.002 + 0.0005 * row[7] / row[4]


def fault(one):
    """What a file of the program lacks, in words; or nothing."""
    if not isinstance(one, dict) or one.get("format") != 1 or one.get("made_by") != "try_machine.py":
        return '"format": 1 and "made_by": "try_machine.py"'
    machine, bits, steps = one.get("machine"), one.get("bits"), one.get("steps", [])
    if not isinstance(one.get("date"), str) or not re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", one["date"]):
        return "a `date` such as 2026-11-30"
    if not isinstance(machine, dict) or not is_text(machine.get("cpu")) or \
            not all(is_number(machine.get(name), least, 1e6) for name, least in (("processors", 1), ("load", 0))):
        return "a `machine` with its cpu, processors and load"
    gpus = machine.get("gpus")
    if not isinstance(gpus, list) or not all(isinstance(gpu, dict) and is_text(gpu.get("name")) for gpu in gpus):
        return "a list of `gpus`, each with its name"
    if not all(is_text(one) for one in [gpu.get("link", "-") for gpu in gpus] +
               [machine.get("driver", "-"), machine.get("peer_access", "-" if len(gpus) < 2 else None)]):
        return "texts of at most 300 characters for `link`, `driver` and `peer_access`, which several GPUs have"
    if bits is not None and not (isinstance(bits, dict) and all(
            type(bits.get(name)) is int and 0 <= bits[name] <= 1e6 for name in ("same", "differ", "not_run"))):
        return "`bits` with the numbers same, differ and not_run"
    shape = one.get("shape", {})
    keys = shape.get("keys", 0) if isinstance(shape, dict) else None
    if not is_number(keys, 0, 1 << 24) or not isinstance(steps, list) or not all(is_step(row, keys) for row in steps):
        return "`steps` of eight values each, whose keys per second follow from the milliseconds and `shape`"
    if not isinstance(one.get("failed"), list) or not isinstance(one.get("cut"), str):
        return "a list `failed` and a text `cut`"
    return ""


def read(path):
    name = os.path.basename(path)
    shown = f"bench/records/machines/{name}"
    if not re.fullmatch(r"[a-z0-9-]+\.json", name):
        raise Wrong(f"{shown!r}: small letters, digits and - are wanted in the name")
    if os.path.islink(path) or not os.path.isfile(path):
        raise Wrong(f"{shown}: a plain file is wanted, and no link or folder")
    if os.path.getsize(path) > MOST_FILE:
        raise Wrong(f"{shown} has {os.path.getsize(path)} bytes; at most {MOST_FILE}: keep fewer steps")
    try:
        with open(path, encoding="utf-8") as file:
            one = json.load(file)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{shown} is no JSON: {error}") from None
    wanted = "" if name in OURS else fault(one)
    if wanted:
        raise Wrong(f"{shown}: {wanted} is wanted, as try_machine.py writes it")
    return one


def plain(text):
    """As it may stand in a cell: one line, without marks, links or tags."""
    return re.sub(r"[^\w (),.;/+@%?#=-]|//+|\.(?=[^\W\d])|(?<!\w)_|_(?!\w)", "?", " ".join(text.split()))[:100]


def named(one):
    """The machine in words, and the date."""
    if "source" in one:
        subject = re.match(r"bench/records/(\w+)\.json", one["source"])[1]
        wanted = {row[4].partition(".")[0] for row in one["steps"]}
        found = sorted(made.split("; ", 1) for made, tables in record.load(subject)["measured"].items()
                       if wanted & set(tables))
        return re.sub(", (CUDA Toolkit|gcc)[^;]*", "", found[0][1]), " and ".join(date for date, _ in found)
    machine = one["machine"]
    gpus = [plain(gpu["name"]) + (f" ({plain(gpu['link'])})" if "link" in gpu else "") for gpu in machine["gpus"]]
    words = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)]
    words += [f"driver {plain(machine['driver'])}"] if "driver" in machine else []
    words += [f"peer access: {plain(machine['peer_access'])}"] if len(gpus) > 1 else []
    busy = ""
    if machine["load"] > machine["processors"] / 2:
        busy = f"; **busy**, load {machine['load']:g}"
    return f"{', '.join(words) or 'no GPU'}; {plain(machine['cpu'])}, {machine['processors']} processors{busy}", \
        one["date"]


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
    one, name = read(path), os.path.basename(path)
    said = [f"**{len(one['failed'])} failed**"] if one.get("failed") else []
    said += [f"cut: {plain(one['cut'])}"] if one.get("cut") else []
    machine, date = named(one)
    return [machine, date, bits_of(one), *(cell(one, name) for name in SHOWN),
            "; ".join([f"[{name.removesuffix('.json')}](../bench/records/machines/{name})"] + said)]


def has_run(one):
    """With all devices: all cases of bits, or a step of all GPUs; what was cut before is not seen yet."""
    if "source" in one:
        return True
    bits = one.get("bits")
    return bool(bits and bits["same"] and not bits["not_run"]) or \
        any(row[0] == SHOWN[0] and row[1] >= len(one["machine"]["gpus"]) for row in one.get("steps", []))


def missing(all_of):
    ran = [one for one in all_of if has_run(one)]
    gpus = [one["machine"]["gpus"] for one in ran]
    tried = [one for one in ran if "source" not in one]
    found = ["a GPU"] if not any(gpus) else []
    found += ["several GPUs in one machine"] if all(len(one) < 2 for one in gpus) else []
    found += ["a consumer GPU, such as an RTX 3090 or 4090"] if "GeForce" not in json.dumps(gpus) else []
    found += [] if any(one["machine"]["gpus"] and isinstance(one.get("bits"), dict) and not one["bits"]["not_run"]
                       for one in tried) else ["rows of 16 bits on a GPU"]
    found += [] if any(row[0] == SHOWN[3] for one in tried for row in one.get("steps", [])) else \
        ["FBGEMM beside it in the same run"]
    return "; ".join(found or ["nothing of this list"]) + "."


def page():
    all_of = [read(path) for path in files()]
    notes = "".join(f"\n{one['machine']['gpus'][0]['name']}: this row is not from that program, but from "
                    f"{one['source']} (`bench/cuda/run`). {one['notes']}\n" for one in all_of if "source" in one)
    return TEXT.format(table=table(HEADINGS, [line(path) for path in files()]).rstrip("\n"), notes=notes,
                       missing=missing(all_of))


def check():
    """What is wrong with the page and the files."""
    wrong = []
    try:
        written = page()
    except Wrong as error:
        return [str(error)]
    if not os.path.exists(PAGE) or open(PAGE).read() != written:
        wrong.append("docs/machines-seen.md is not what `bench/results -p` writes from bench/records/machines; run it")
    size = sum(os.path.getsize(path) for path in files())
    if size > MOST_FILES:
        wrong.append(f"bench/records/machines has {size} bytes; at most {MOST_FILES}: keep the newest "
                     "file of each kind of machine")
    if os.path.exists(PAGE) and os.path.getsize(PAGE) > MOST_PAGE:
        wrong.append(f"docs/machines-seen.md has {os.path.getsize(PAGE)} bytes; at most {MOST_PAGE}: show fewer "
                     "columns, or the newest machines")
    return wrong
