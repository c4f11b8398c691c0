"""Simulated links: bench_sim."""
from report.page import curves, kept, millions, plot, run, source, table

SIM = "build/bench_sim --json"
SYSTEMS = {"frugal": "Frugal", "sync": "Frugal, write-through", "inplace": "Frugal, written in place",
           "sharded": "owners' caches, all to all", "nocache": "no cache"}
AXES = ("gpus", "link", "shared_root", "keys", "zipf", "cache", "lookahead", "workers")


def measure():
    run("links", SIM)
    better = SIM + " --figure 8,14 --system frugal,sharded,nocache --gather-ns 20"
    run("links-gather", better)
    run("links-gather-copy", better + " --copy-us 8")


def experiment_page(experiment, here):
    """A table of its runs, by all that differs between them; a plot, where that is one thing."""
    runs = [r for r in here if "system" in r]
    about = next((r for r in here if "title" in r), {})
    axes = [a for a in AXES if len({str(r[a]) for r in runs if r["workers"] or a != "workers"}) > 1]
    figure = "For Figure " + experiment if experiment.isdigit() else experiment
    page = f"\n### {figure}: {about.get('title', '')}\n\n"
    if "claim" in about:
        page += f"The paper: {about['claim']}.\n\n"
    page += table(["system", *axes, "step, us", "gate, us", "M keys/s"],
                  [[SYSTEMS[r["system"]], *(r[a] for a in axes), f"{r['step_us']:.0f}", f"{r['gate_us']:.1f}",
                    millions(r["keys_per_s"])] for r in runs])
    page += "\n" + "".join(f"- {r['ratio']}: {r['least']:.2f} to {r['most']:.2f}\n" for r in here if "ratio" in r)
    if len(axes) != 1 or axes[0] == "link":
        return page
    systems = [s for s in SYSTEMS if any(r["system"] == s for r in runs)]
    data = {f"D{i}": [[r[axes[0]], r["keys_per_s"] / 1e6] for r in runs if r["system"] == s]
            for i, s in enumerate(systems)}
    return page + plot(f"links-{experiment}", f"Simulated: million keys a second by {axes[0]}",
                       "set yrange [0:*]; " + curves(SYSTEMS[s] for s in systems), data, (axes[0], "M keys/s"))


def better_gathers():
    rows = []
    for name in ("links", "links-gather", "links-gather-copy"):
        records = kept(name)["records"]
        constant = {r["constant"]: r["value"] for r in records if "constant" in r}
        ratio = {(r["experiment"], r["ratio"].split("'")[0]): f"{r['least']:.2f} to {r['most']:.2f}"
                 for r in records if "ratio" in r}
        rows += [[constant["gather-ns"], constant["copy-us"], figure, ratio[figure, "no cache"],
                  ratio[figure, "sharded"]] for figure in ("8", "14")]
    return ("\n### Against a better gather\n\nThe rivals' gather and copy above are the authors' micro-benchmark. Here "
            "they have a gather about as fast as this library's own ([Row kernels](#row-kernels)), and then a cheaper "
            "copy call too: Frugal's lead shrinks, and below 1 it is lost.\n\n" +
            table(["gather, ns a row", "copy call, us", "for Figure", "no cache's step over Frugal's",
                   "sharded's step over Frugal's"], rows) + source("links-gather", "links-gather-copy"))


def write():
    records = kept("links")["records"]
    page = ("**Simulated**: none of these GPUs is here. Keys, hits, misses, pending rows and gates are the library's "
            "own, run on these keys; times are computed. What is assumed:\n\n" +
            "\n".join(r["assumption"] for r in records if "assumption" in r) + "\n\n")
    page += table(["constant", "value", "unit", "what; source"],
                  [[f"`{r['constant']}`", r["value"], r["unit"], f"{r['what']}; {r['source']}"]
                   for r in records if "constant" in r])
    for experiment in dict.fromkeys(r["experiment"] for r in records if "experiment" in r):
        page += experiment_page(experiment, [r for r in records if r.get("experiment") == experiment])
    return page + source("links") + better_gathers()
