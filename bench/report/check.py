"""Are the figures of pages those of their records? `bench/results --check`, which `ninja lint` calls.

A paragraph or a table whose figures come from a benchmark ends with a comment, or is followed by one:

    <!-- from: bench/records/NAME.json: KEY KEY ... -->

KEY is TABLE.ROW.FIGURE of that record, or one of its ends (.lowest, .highest). Its value must be among the numbers of
the paragraph, rounded as there: 14,688 is found in "14,688", "14,700" and "14.7 thousand", 30288204 in "30.3 million"
and "30.3M", 0.421 in "42%". A comment without keys only says where the figures are from.
"""
import glob
import os
import re

from report import answers, seen
from report.page import ROOT
from report.record import flat

PAGES = ("*.md", "docs/*.md", "docs/papers/*.md", "python/*.md", "examples/*/*.md", "trainers/*/*.md", "tests/*/*.md")
COMMENT = re.compile(r"<!--\s*from:\s*(.*?)-->", re.S)
WRITTEN = re.compile(r"(?<![\w.])[-+\u2212]?((?:\d[\d,]*)?\.?\d+)(?:\s*(million|thousand|M\b|K\b|%))?")
UNITS = {"million": 1e6, "M": 1e6, "thousand": 1e3, "K": 1e3, "%": .01}
MOST_BYTES = 64000 # of all records


def numbers(text):
    """The numbers of a text: value, and half a unit of its last digit; with a unit, also as the unit says."""
    found = []
    for digits, unit in WRITTEN.findall(text):
        digits = digits.replace(",", "")
        value, fraction = float(digits), digits.partition(".")[2]
        zeros = 0 if fraction or "." in digits else len(digits) - len(digits.rstrip("0"))
        half = .5 * 10 ** (zeros - len(fraction))
        for scale in {1, UNITS.get(unit, 1)}:
            found.append((value * scale, half * scale))
    return found


def is_among(value, found):
    """Rounded as a number is written; and a number of few digits is not taken for what is far from it."""
    value = abs(value)
    return any(abs(value - one) <= half * (1 + 1e-9) and abs(value - one) <= .06 * value + 1e-12 for one, half in found)


def paragraphs(text):
    """The paragraph or table that each comment belongs to, the line of the comment, and what the comment says."""
    for comment in COMMENT.finditer(text):
        before = COMMENT.sub("", text[:comment.start()]).rstrip()
        yield before[before.rfind("\n\n") + 1:], text[:comment.start()].count("\n") + 1, " ".join(comment[1].split())


def stale(page, text):
    """What is wrong with the figures of a page."""
    for paragraph, line, said in paragraphs(text):
        path, _, keys = said.partition(": ")
        path = path.rstrip(":")
        name = re.fullmatch(r"bench/records/([a-z_]+)\.json", path)
        if not name or not os.path.exists(os.path.join(ROOT, path)):
            yield f"{page}:{line}: {path} is no record; wanted bench/records/NAME.json"
            continue
        figures, found = flat(name[1]), numbers(paragraph)
        for key in keys.split():
            if key not in figures:
                yield f"{page}:{line}: {path} has no figure {key}"
            elif not is_among(figures[key], found):
                yield f"{page}:{line}: {key} is {figures[key]} in {path}, and no number of the paragraph"


def check(pages=()):
    """Complaints about these pages; about all, the pages that are written, and the records, if there are none."""
    wrong = []
    for page in pages or sorted(page for pattern in PAGES for page in glob.glob(pattern, root_dir=ROOT)):
        wrong += stale(page, open(os.path.join(ROOT, page)).read())
    if not pages:
        for page, written in answers.PAGES.items():
            if open(os.path.join(ROOT, page)).read() != written():
                wrong.append(f"{page} is not what `bench/results -p` writes from bench/records; run it")
        size = sum(os.path.getsize(one) for one in glob.glob(os.path.join(ROOT, "bench", "records", "*.json")))
        if size > MOST_BYTES:
            wrong.append(f"bench/records has {size} bytes; at most {MOST_BYTES}: keep fewer rows (report/record.py)")
        wrong += seen.check()
    return wrong
