"""Rows that are only read, from Python: frugal.serve beside a mapped NumPy array (python/bench/serving.py)."""
from report.page import kept, run, source
from report.python import build_package
from report.record import Into, noted

REQUESTS = Into("serving/requests", ("what", "contender", "threads"),
                {"rate": ("requests/s", "least", "most")}, ("serving",))


def measure():
    build_package()
    run("serving", "python3 python/bench/serving.py --json --rows 4000000 --rounds 15")


def write():
    one = kept("serving")["records"][0]
    rows = [[of["what"], of["contender"], of["threads"], of["per_second"], of["least"], of["most"]]
            for of in one["requests"]]
    return (f"{one['rows']:,} rows of {one['dim']} floats, requests of {one['keys']:,} skewed keys, as rows or in "
            f"bags of 10; NumPy {one['numpy']}. `refreshed`: another thread takes over two versions in turn. "
            f"Before the run, {one['load_average']:.2f} processes were running or waiting to run.\n\n"
            + noted(REQUESTS, ["what", "contender", "threads", "requests/s", "least", "most"], rows)
            + source("serving"))
