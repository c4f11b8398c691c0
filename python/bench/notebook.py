#!/usr/bin/env python3
"""Writes try_machine.ipynb, which is try_machine.py in cells: `python3 python/bench/notebook.py`, after each change of
that file. A cell of the script begins with "# %%"; its last one, which runs it, is replaced by RUN. Standard library
alone."""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT, NOTEBOOK = HERE / "try_machine.py", HERE / "try_machine.ipynb"

OPENING = """# Frugal on this machine

Say below which wheel to install, then run all cells. On Colab or Kaggle, first choose a runtime with a GPU. It takes
ten minutes at most. The last cell prints one JSON: please attach it to an issue of Frugal's repository, also if
something fails or is slow. It has no host name, user name or path.

This notebook is made of `python/bench/try_machine.py`, whose text is the cells between the first and the last."""

WHEEL = """WHEEL = ""        # a file or an address of a wheel, whose name ends in .whl; "": the installed package
MINUTES = 10
MORE = []         # such as ["--rows", "1000000"], or ["--parts", "bits"]; main(["--help"]) lists them"""

RUN = """if os.path.exists("try_machine.json"):  # of an earlier run
    os.remove("try_machine.json")
status = main([WHEEL, "--minutes", str(MINUTES), "--output", "try_machine.json", *MORE])
if os.path.exists("try_machine.json"):
    with open("try_machine.json") as made:
        print(made.read())"""


def cell(kind, text, number):
    made = {"cell_type": kind, "id": f"cell-{number}", "metadata": {},
            "source": text.strip("\n").splitlines(keepends=True)}
    if kind == "code":
        made.update(execution_count=None, outputs=[])
    return made


def made():
    """The text of the notebook, of nbformat 4.5."""
    opening, *cells = SCRIPT.read_text(encoding="utf-8").split("\n# %% ")
    assert opening.startswith("#!/usr/bin/env python3\n\"\"\"") and cells[-1].startswith("Run\n"), SCRIPT
    texts = [("markdown", OPENING), ("code", WHEEL)] + [("code", "# " + text) for text in cells[:-1]] + [("code", RUN)]
    notebook = {"cells": [cell(kind, text, number) for number, (kind, text) in enumerate(texts)],
                "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                             "language_info": {"name": "python"}},
                "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(made(), encoding="utf-8")
