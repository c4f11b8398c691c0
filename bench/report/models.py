"""What kge's models reach by graph, beside what was published: bench/models/bench_mrr."""
import hashlib
import os
import subprocess

from report.page import ROOT, NotMeasured, keep, kept, run, source, table
from report.record import Into, note
from report.quality import grouped, mean

GRAPHS = {"fb15k-237": "FB15k-237", "wn18rr": "WN18RR"}
LIBKGE, ROTATE = "LibKGE", "RotatE's paper"
# Filtered test MRR and Hits@10. LibKGE: the table of its README (github.com/uma-pi1/kge). RotatE: Sun et al. 2019,
# Table 5.
PUBLISHED = {
    ("fb15k-237", "transe"): ((.313, .497, LIBKGE), (.294, .465, ROTATE)),
    ("fb15k-237", "distmult"): ((.343, .531, LIBKGE),),
    ("fb15k-237", "complex"): ((.348, .536, LIBKGE),),
    ("fb15k-237", "rotate"): ((.338, .533, ROTATE),),
    ("wn18rr", "transe"): ((.228, .520, LIBKGE),),
    ("wn18rr", "distmult"): ((.452, .530, LIBKGE),),
    ("wn18rr", "complex"): ((.475, .547, LIBKGE),),
    ("wn18rr", "rotate"): ((.476, .571, ROTATE),),
}


BENCH = "bench/models/bench_mrr"


def names():
    """Each graph and model, with the name under which its results are kept."""
    listed = subprocess.run([os.path.join(ROOT, BENCH), "--list"], stdout=subprocess.PIPE, text=True, check=True)
    return [(*line.split(), "models-" + line.replace(" ", "-")) for line in listed.stdout.splitlines()]


def has_records(name, program=None):
    """Are there results, and were they measured with this build of the program?"""
    try:
        found = kept(name)
    except NotMeasured:
        return False
    return bool(found["records"]) and program in (None, found.get("program"))


def measure():
    """All takes hours. What this build of the program has measured is kept, so a run that is interrupted goes on."""
    program = hashlib.sha256(open(os.path.join(ROOT, "build", "kge"), "rb").read()).hexdigest()
    for graph, model, name in names():
        if not has_records(name, program):
            run(name, f"{BENCH} --json --graph {graph} --model {model}")
            keep(name, {**kept(name), "program": program})


def decimals(x):
    return f"{x:.3f}".lstrip("0")


HEADINGS = ["choice", "MRR", "Hits@1", "Hits@3", "Hits@10", "N3", "published MRR, Hits@10", "s to 95%", "training s",
            "all s"]
FIGURES = {"mrr": "MRR", "hits1": "Hits@1", "hits3": "Hits@3", "hits10": "Hits@10", "soon_s": "s to 95%",
           "training_s": "training s", "all_s": "all s"}


def keep_figures(tables, runs):
    """The lines of all graphs, with graph and model before them, and what was published."""
    note(Into("models/models", (0, 1), FIGURES, runs), ["graph", "model", *HEADINGS],
         [[graph, model, *row] for graph, rows in tables.items() for model, row in rows.items()])
    said = [[graph, model, by, mrr, hits] for (graph, model), all_of in PUBLISHED.items() for mrr, hits, by in all_of]
    note(Into("models/published", (0, 1, 2), {"mrr": 3, "hits10": 4}, ()), (), said,
         ("LibKGE: README of github.com/uma-pi1/kge; RotatE: Sun et al. 2019, Table 5", []))


def chosen(record):
    return f"{record['regularization']:g}" + (f", damped {record['damping']:g}" if record["damping"] else "")


def by_graph(records, graph):
    rows = {}
    for (model,), runs in grouped([r for r in records if r["graph"] == graph], "model").items():
        low, high = (decimals(f(r["mrr"] for r in runs)) for f in (min, max))
        published = PUBLISHED.get((graph, runs[0]["options"][1]), ())
        rows[model] = [f"`{' '.join(runs[0]['options'])}`", f"**{decimals(mean(runs, 'mrr'))}** ({low} to {high})",
                       *(decimals(mean(runs, field)) for field in ("hits1", "hits3", "hits10")),
                       "; ".join(sorted({chosen(r) for r in runs if r["regularization"]})),
                       "; ".join(f"{decimals(mrr)}, {decimals(hits)} ({by})" for mrr, hits, by in published),
                       *(f"{mean(runs, field):.0f}" for field in ("soon", "seconds", "total_seconds"))]
    return rows


def write():
    listed = names()
    measured = [name for _, _, name in listed if has_records(name)]
    if not measured: # the graphs were not there
        raise NotMeasured("models")
    records = [record for name in measured for record in kept(name)["records"]]
    page = ("`build/kge --data DIR` and the choice in the first column; all other settings are the program's "
            "defaults, the same for both graphs. All test triples, both ends, filtered; the mean of the seeds, the "
            "lowest and the highest in parentheses. N3: what pilots chose. Seconds: of training, pilots "
            "included; to 95%, until the MRR of a sample of the validation triples first was 95% of what it was at the "
            "end; all, with reading and ranking, and with the evaluations in between, which these runs have.\n")
    tables = {graph: by_graph(records, graph) for graph in GRAPHS}
    keep_figures(tables, measured)
    for graph, rows in tables.items():
        page += f"\n### {GRAPHS[graph]}\n\n" + table(HEADINGS, rows.values())
    missing = [f"{GRAPHS[graph]} {model}" for graph, model, name in listed if name not in measured]
    if missing:
        page += f"\nNot measured: {', '.join(missing)}.\n"
    return page + source(*measured)
