"""Modules in Python beside nn.EmbeddingBag, FBGEMM and TorchRec: python/bench/bench_python.py. FRUGAL_PYTHON names a
python3 that has PyTorch; what else it has is measured, too."""
import os
import subprocess
import sys
from report.page import ROOT, kept, run, source
from report.record import Into, noted

LIBRARIES = ("frugal", "frugal+loader", "torch", "fbgemm", "torchrec")
SPREAD = ("frugal",) # of the others the record has the median alone
SHOWN = (("sgd", 53248, 1, "uniform"), ("sgd", 53248, 1, "zipf.99"), ("sgd", 53240, 20, "zipf.99"),
         ("sgd", 512, 1, "uniform"), ("sgd", 500, 20, "zipf.99"), ("rowwise_adagrad", 53248, 1, "uniform"),
         ("rowwise_adagrad", 53240, 20, "zipf.99")) # by pages; --full has all
STEPS = Into("python/steps", ("optimizer", "keys", "bag", "drawn"), {name: name for name in LIBRARIES}, ("python",),
             lambda row: tuple(row[:4]) in SHOWN)
BESIDE = Into("python/memory", ("optimizer", "contender"), {"bytes": "bytes a row"}, ("python",),
              lambda row: row[0] == "sgd" and row[1] in ("frugal", "fbgemm"))
ONE = Into("python/one", ("what",), {"us": "us a step"}, ("python",), lambda row: row[0] in ("torch", "autograd"))
MODEL = Into("python/training", ("what",), {"ms": "ms a step"}, ("python",))


def build_package():
    subprocess.run([sys.executable, os.path.join(ROOT, "python", "backend", "frugal_build.py")], check=True,
                   stdout=subprocess.DEVNULL)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.path.join(ROOT, "python"), os.environ.get("PYTHONPATH")]))


def measure():
    build_package()
    run("python", "python3 python/bench/bench_python.py --json --memory --huge-pages")


def ms(step, name):
    if name not in step["ms"]:
        return "-"
    if name not in SPREAD:
        return f"{step['ms'][name]:.3g}"
    return f"{step['ms'][name]:.3g} ({step['least_ms'][name]:.3g} to {step['most_ms'][name]:.3g})"


def write():
    one = kept("python")["records"][0]
    shape = one["settings"]
    page = (f"Frugal ({one.get('build') or 'ctypes'}), Python {one['python']}, PyTorch {one['torch']} with "
            f"{one['torch_threads']} threads, FBGEMM {one['fbgemm_gpu']}, TorchRec {one['torchrec']}. Tables of "
            f"{shape['rows']:,} rows of {shape['dim']} floats; all ask for huge pages. Before the first run, "
            f"{one['load_average']:.2f} processes were running or waiting to run.\n\n")
    rows = [[step["optimizer"], step["keys"], step["bag"], step["distribution"],
             *(ms(step, name) for name in LIBRARIES)] for step in one["steps"]]
    page += "Milliseconds a step:\n\n" + noted(STEPS, ["optimizer", "keys", "bag", "drawn", *LIBRARIES], rows)
    page += "\n" + noted(ONE, ["what", "us a step"], [[what, f"{us:.3g}"] for what, us in one["one_key_us"].items()])
    beside = [[of["optimizer"], of["contender"], of["keys"], f"{of['beside_bytes_a_row']:.2f}"] for of in one["memory"]]
    page += "\nMemory beside table and state:\n\n" + noted(BESIDE, ["optimizer", "contender", "keys", "bytes a row"],
                                                            beside)
    model = one["training"]
    trained = [[name, "{:.1f} ({:.1f} to {:.1f})".format(model[f"{name}_ms"], *model[f"{name}_spread_ms"]),
                f"{model[f'{name}_cpu_ms']:.1f}"] for name in ("frugal", "torch")]
    page += "\n26 tables, dense part included:\n\n" + noted(MODEL, ["what", "ms a step", "processor time, ms"], trained)
    return page + source("python")
