"""Several machines and their network, simulated: bench_sim. docs/machines.md shows its figures."""
from report.page import kept, run, source, table
from report.record import Into, noted

SIM = "build/bench_sim --json --system frugal --gpus 4 "
DRAWN = SIM + "--machines 1,2,4 --network "
FB15K = SIM + "--data ../shared/data/fb15k-237 --keys 768 --warm-up 60 --machines 2,4 --network 25 "
COMPUTE = " --gflops 3.47 --dense-us 200" # of a DLRM with 1,024 samples: what bench_sim --plan takes
DEALINGS = {"random": "random", "two-level": "two levels"}
HOMES = {"turn": "in turn", "placed": "placed"}
KINDS = ("keys", "early", "late", "records")

SENT = Into("machines/sent", (0,), {**{kind: kind for kind in KINDS}, "all": "all", "messages": "messages"},
            ("machines",))
STEPS = Into("machines/steps", (0, 1), {"step_us": "step, us", "rows_us": "late rows", "records_us": "records",
                                        "early_us": "early rows", "keys": "M keys/s"}, ("machines",))
COMPUTING = Into("machines/computing", (0, 1), {"step_us": "step, us", "keys": "M keys/s"},
                 ("machines-computing",))
DEALT = Into("machines/dealt", (0, 1, 2), {"guests": "guests", "fullest": "fullest link, MB", "step_us": "step, us"},
             ("machines-fb15k-237",))


def measure():
    run("machines", DRAWN + "10,25,100,200")
    run("machines-computing", DRAWN + "25,100" + COMPUTE)
    run("machines-fb15k-237", FB15K + "--homes turn,placed")


def results(name):
    return [r for r in kept(name)["records"] if "system" in r]


def sent():
    rows = []
    for r in results("machines"):
        if r.get("network_gbs") == 100:
            kinds = [r[kind + "_sent"] / 1e6 for kind in KINDS]
            rows.append([r["machines"], *(f"{one:.2f}" for one in kinds), f"{sum(kinds):.2f}", f"{r['messages']:.0f}",
                         f"{r['guest_rows']:.0f}", f"{r['late_rows'] / r['guest_rows']:.0%}"])
    return noted(SENT, ["machines", *KINDS, "all", "messages", "guests a GPU", "of these late"], rows)


def steps(name, into):
    rows = []
    for r in results(name):
        waits = [f"{r[field]:.0f}" for field in ("rows_wait_us", "records_wait_us", "early_wait_us")] \
            if "machines" in r else ["0", "0", "0"]
        rows.append([r.get("machines", 1), r.get("network_gbs", "none"), f"{r['step_us']:.0f}", *waits,
                     f"{r['keys_per_s'] / 1e6:.0f}"])
    return noted(into, ["machines", "Gb/s", "step, us", "late rows", "records", "early rows", "M keys/s"], rows)


def dealt():
    rows = [[r["machines"], DEALINGS[r["dealing"]], HOMES[r["homes"]], f"{r['guest_rows']:.0f}",
             f"{r['guest_rows'] / r['unique_rows']:.0%}", f"{r['most_bytes'] / 1e6:.3f}", f"{r['step_us']:.0f}"]
            for r in results("machines-fb15k-237")]
    return noted(DEALT, ["machines", "samples dealt", "homes", "guests", "of a GPU's rows", "fullest link, MB",
                         "step, us"], rows)


def write():
    return ("Machines with 4 GPUs each. MB that a machine sends in a step, by kind; it receives as much. Keys and "
            "early rows are sent while GPUs compute:\n\n" + sent() +
            "\nThe same by the speed of the network: the step, and what of it GPUs wait for. Nothing is computed "
            "between lookup and update:\n\n" + steps("machines", STEPS) +
            "\nWith the dense part of a DLRM, without the exchange of its gradients:\n\n" +
            steps("machines-computing", COMPUTING) + source("machines", "machines-computing") +
            "\nTriples of FB15k-237, 256 a GPU and step, with a network of 25 Gb/s:\n\n" + dealt() +
            source("machines-fb15k-237"))
