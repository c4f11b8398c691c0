"""Figures that pages need, in bench/records/SUBJECT.json: small, and kept with the sources.

A report takes them from its tables by `noted`. Pages are written from them (answers.py), or compared with them
(check.py).
"""
import json
import os
import re
from typing import Callable, NamedTuple

from report.page import ROOT, kept, table

FOLDER = os.path.join(ROOT, "bench", "records")
FORM = "TABLE.ROW.FIGURE is a value, or [median, lowest, highest]; of a range, [null, lowest, highest]"


class Into(NamedTuple):
    """Where the figures of a table go. Columns are named by their headings, or counted from 0."""
    path: str # SUBJECT/TABLE
    by: tuple # the columns whose cells name a row
    keep: dict # the name of a figure: its column, or the columns of median, lowest and highest
    runs: tuple # the kept outputs that it is made of
    only: Callable = lambda row: True # which rows are kept


NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"


def number(text):
    value = float(text)
    return int(value) if value == int(value) and ("." not in text or "e" in text) else value


def figure(cell):
    """A cell as a number; [median, lowest, highest] of "2 (1 to 3)"; the ends of "1 to 3", "1, 2, 3" and "1 2 3"."""
    text = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", str(cell)).replace("*", "").strip()
    spread = re.match(rf"({NUMBER})%? \(({NUMBER})%? to ({NUMBER})%?\)", text)
    if spread:
        return [number(part) for part in spread.groups()]
    if re.match(rf"{NUMBER}( to |, | ){NUMBER}", text):
        found = [number(part) for part in re.findall(NUMBER, text)]
        return [None, min(found), max(found)]
    one = re.match(NUMBER, text)
    return number(one.group()) if one else None


def name_of(cell):
    return re.sub(r"[^a-z0-9.%+_]+", "-", str(cell).lower()).strip("-.") or "-"


NOTED = {} # SUBJECT: TABLE: ((when and where, commands), names of the figures, rows)


def about(runs):
    """When and where these outputs were measured, and by which commands."""
    outputs = [kept(name) for name in runs]
    return " and ".join(sorted({f"{one['date']}; {one['machine']}" for one in outputs})), \
        [one["command"] for one in outputs]


def note(into, headings, rows, measured=None):
    """Keeps figures of a table. `measured`: as `about`, if it is not from outputs that are kept."""
    def column(row, which):
        return row[which if isinstance(which, int) else list(headings).index(which)]

    def figures(row):
        for which in into.keep.values():
            cells = which if isinstance(which, tuple) else (which,)
            found = [figure(column(row, one)) for one in cells]
            yield found[0] if len(found) == 1 else found

    subject, name = into.path.split("/")
    found = {".".join(name_of(column(row, one)) for one in into.by): list(figures(row))
             for row in rows if into.only(row)}
    NOTED.setdefault(subject, {})[name] = (measured or about(into.runs), list(into.keep), found)


def noted(into, headings, rows):
    """A table for readers, of which the record keeps figures."""
    note(into, headings, rows)
    return table(headings, rows)


def path_of(subject):
    return os.path.join(FOLDER, subject + ".json")


def load(subject):
    return json.load(open(path_of(subject)))


def lines_of(items):
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in items.items())


def save():
    """Writes what was noted, a row a line; tables that were not measured now stay as they are."""
    os.makedirs(FOLDER, exist_ok=True)
    for subject, noted_tables in NOTED.items():
        there = load(subject) if os.path.exists(path_of(subject)) else {"measured": {}, "tables": {}}
        for name, ((made, commands), columns, rows) in noted_tables.items():
            for tables in there["measured"].values():
                tables.pop(name, None)
            there["measured"].setdefault(made, {})[name] = commands
            there["tables"][name] = {"figures": columns, "rows": rows}
        measured = lines_of({made: tables for made, tables in there["measured"].items() if tables})
        tables = ",\n".join(f'{json.dumps(name)}: {{"figures": {json.dumps(one["figures"])}, "rows": {{\n'
                            f'{lines_of(one["rows"])}}}}}' for name, one in there["tables"].items())
        with open(path_of(subject), "w") as file:
            file.write(f'{{"form": {json.dumps(FORM)},\n"measured": {{\n{measured}}},\n"tables": {{\n{tables}}}}}\n')
    NOTED.clear()


def flat(subject):
    """All figures of a record by their paths; TABLE.ROW.FIGURE.lowest and .highest, too."""
    found = {}
    for name, one in load(subject)["tables"].items():
        for row, values in one["rows"].items():
            for column, value in zip(one["figures"], values):
                parts = zip(("", ".lowest", ".highest"), value if isinstance(value, list) else [value])
                found.update({f"{name}.{row}.{column}{part}": part_value for part, part_value in parts
                              if part_value is not None})
    return found
