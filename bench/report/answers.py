"""docs/results.md, made of answers.md: that page, with a field where a figure of bench/records stands; and the table of
figures in README.md, made of readme.md.

    {SUBJECT/TABLE.ROW.FIGURE}        the figure
    {PATH:FORM}                       with a form of Python, such as .2f; or
                                      spread   median (lowest to highest)      a form may follow: spread,
                                      ends     lowest to highest
                                      mrr      three digits after the point, and none before it
    {1 - PATH / PATH:.0%}             arithmetic
    {@PATH}                           nothing; paths that begin with a point go on from there
    {SUBJECT/TABLE:made}              the machine, and the date; where: in few words
    {for A/B; C/D}LINE                the line for each of these, with $1 and $2 for their parts
"""
import os
import re
import sys
import textwrap

from report.page import ROOT
from report.record import FOLDER, flat, load

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- figures: `bench/results -p` writes this table -->\n", "<!-- end of figures -->\n"
SUBJECTS = sorted(name.removesuffix(".json") for name in os.listdir(FOLDER) if name.endswith(".json")) \
    if os.path.isdir(FOLDER) else []
PATH = r"(?:[a-z_]+/|\.(?=[a-z0-9]))[^\s:]+"


def made(path):
    subject, table = path.split("/")
    one = next(made for made, tables in load(subject)["measured"].items() if table in tables)
    date, machine = one.split("; ", 1)
    return f"{re.sub(', (gcc|driver).*', '', machine)}; {date}"


def where(path):
    return re.sub(r"\(R\)| Processor|, [^;]*", "", made(path))


class Filled:
    """The template with its fields filled in."""

    def __init__(self):
        self.figures = {f"{subject}/{path}": value for subject in SUBJECTS for path, value in flat(subject).items()}
        self.begin = ""

    def whole(self, path):
        return self.begin + path if path.startswith(".") else path

    def at(self, path):
        if self.whole(path) not in self.figures:
            sys.exit(f"results: bench/records lacks {self.whole(path)}, which a page shows")
        return self.figures[self.whole(path)]

    def shown(self, path, form):
        value = self.at(path)
        return f"{value:.3f}".lstrip("0") if form == "mrr" else f"{value:{form}}"

    def field(self, found):
        text, _, form = found[1].partition(":")
        if text.startswith("@"):
            self.begin = text[1:]
            return ""
        if form in ("made", "where"):
            return {"made": made, "where": where}[form](text)
        word = re.match("spread|ends", form)
        if word:
            form = form.removeprefix(word[0])
            ends = " to ".join(self.shown(f"{text}.{end}", form) for end in ("lowest", "highest"))
            return ends if word[0] == "ends" else f"{self.shown(text, form)} ({ends})"
        if re.fullmatch(PATH, text):
            return self.shown(text, form)
        value = re.sub(PATH, lambda path: repr(self.at(path[0])), text)
        return f"{eval(value, {'__builtins__': {}}):{form}}" # of our own template


def repeated(found):
    lines = []
    for item in found[1].split("; "):
        parts = item.split("/")
        lines.append(re.sub(r"\$(\d)", lambda which: parts[int(which[1]) - 1], found[2]))
    return "\n".join(lines)


def filled(name):
    template = re.sub(r"(\{@[^}]*\})\n", r"\1", open(os.path.join(HERE, name)).read())
    template = re.sub(r"^\{for ([^}]*)\}(.*)$", repeated, template, flags=re.M)
    return re.sub(r"\{([^{}]+)\}", Filled().field, template)


def page():
    text = filled("answers.md")
    blocks = [block if re.match(r"[#|!]", block) else
              textwrap.fill(block.strip(), 120, break_long_words=False, break_on_hyphens=False)
              for block in text.rstrip("\n").split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def readme():
    text = open(os.path.join(ROOT, "README.md")).read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"results: README.md wants one line {BEGIN.strip()}, and one {END.strip()}")
    before, rest = text.split(BEGIN)
    return before + BEGIN + filled("readme.md") + END + rest.split(END)[1]


PAGES = {"docs/results.md": page, "README.md": readme} # each page that is written, in whole or in part
