"""What anybody may send to bench/records/machines: refused with the file's name, or harmless on docs/machines-seen.md.
tests/compile/figures runs this with a folder of its own."""
import copy
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "bench")
from report import seen  # noqa: E402

FOLDER = sys.argv[1]
GOOD = {"format": 1, "made_by": "try_machine.py", "date": "2026-11-30", "cut": "", "failed": [],
        "machine": {"cpu": "a (R) CPU @ 3.20GHz", "processors": 2, "load": 0.5, "driver": "580.1",
                    "peer_access": "0 of 2 pairs",
                    "gpus": [{"name": "NVIDIA GeForce RTX 4090", "link": "PCIe 4 x16"} for _ in range(2)]},
        "bits": {"same": 3, "differ": 0, "not_run": 0}, "shape": {"keys": 1000},
        "steps": [["Frugal", 2, "adagrad", "Zipf 0.99", 2.0, 1.0, 4.0, 1.0]]}
GPUS, STEP = ("machine", "gpus"), ("steps", 0)
REFUSED = [
    (None, "made_by"), (2, "format"), (None, "cut"), (None, "failed"), (None, "date"), ("soon", "date"),
    ({}, "machine"), (7, "machine", "cpu"), ("x" * 301, "machine", "cpu"), (10**400, "machine", "load"),
    (float("nan"), "machine", "load"), (None, "machine", "peer_access"), ([], *GPUS, 0),
    ([], "bits"), (-1, "bits", "same"), (True, "bits", "same"), ("3", "bits", "differ"),
    ("1", "shape", "keys"), ({}, "steps"), ([[]], "steps"), (0, *STEP, 1), ("step.p2f.speed", *STEP, 4),
    (0, *STEP, 5), (3.0, *STEP, 5), (float("inf"), *STEP, 6), (9.0, *STEP, 7)]
NO_JSON = ["", "[]", "null", "{", '{"format": 1', "[" * 2900, "\ufeff{}", json.dumps(GOOD) + " " * 3000]
MARKS = ["a | b", "a\nb", "<img src=x>", "[x](http://a.b)", "**x**", "`x`", "www.evil.com", "&lt;", "a\\|b", "_x_",
         "\u202eb"]


def page_of(text, name="a.json"):
    """The page of this file; nothing if it is refused."""
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text if isinstance(text, str) else json.dumps(text))
    seen.files = lambda: [path]
    try:
        return seen.page()
    except seen.Wrong as error:
        assert name in str(error) and "\n" not in str(error), error
        return None
    finally:
        os.unlink(path)


def changed(value, *path):
    """The good file with another value, or without it."""
    made = one = copy.deepcopy(GOOD)
    for key in path[:-1]:
        one = one[key]
    if value is None:
        del one[path[-1]]
    else:
        one[path[-1]] = value
    return page_of(made)


def row(page):
    return page.split("| --- |")[-1].split("\n")[1]


def not_seen(page):
    return page.split("Not seen yet")[1]


good = page_of(GOOD)
for words in ("| 2 x NVIDIA GeForce RTX 4090 (PCIe 4 x16), driver 580.1, peer access: 0 of 2 pairs; ",
              "; a (R) CPU @ 3.20GHz, 2 processors |", "| 3 of 3 |", "| 1.0 (0.50 to 2.0) |"):
    assert words in row(good), (words, row(good))

for case in REFUSED:
    assert changed(*case) is None, case
for text in NO_JSON:
    assert page_of(text) is None, text[:20]
assert page_of(GOOD, "a|b.json") is None
assert page_of({"source": "bench/records/cuda.json", "machine": GOOD["machine"], "steps": []}) is None

link = os.path.join(FOLDER, "link.json")
for target in ("/etc/passwd", "/none", FOLDER):
    os.symlink(target, link)
    seen.files = lambda: [link]
    assert len(seen.check()) == 1 and "link.json: a plain file is wanted" in seen.check()[0], seen.check()
    os.unlink(link)

for text in MARKS:
    for path in (("machine", "cpu"), ("machine", "driver"), ("machine", "peer_access"), (*GPUS, 0, "name"),
                 (*GPUS, 1, "link"), ("cut",)):
        line = row(changed(text, *path))
        own = line.replace("[a](../bench/records/machines/a.json)", "")
        assert own.count("|") == row(good).count("|"), (text, path, line)
        assert not any(mark in own for mark in ("<", ">", "&", "`", "\\", "[", "*", "www.", " _", "\u202e")), line

assert "several" not in not_seen(good) and "16 bits" not in not_seen(good) and "consumer" not in not_seen(good)
assert "consumer" in not_seen(changed([{"name": "NVIDIA RTX 6000 Ada"}] * 2, *GPUS))
assert "16 bits" in not_seen(changed(1, "bits", "not_run")) and "16 bits" in not_seen(changed(None, "bits"))
nothing = {**GOOD, "steps": [], "bits": {"same": 0, "differ": 3, "not_run": 0}}
assert "several" in not_seen(page_of(nothing)) and "a GPU" in not_seen(page_of(nothing))
