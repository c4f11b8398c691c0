"""The trainers as benchmarks run them: `build/kge` and `build/dlrm`, and what they say in their JSON objects.

FRUGAL_DATA (../shared/data) has the data, FRUGAL_BUILD (build) the programs.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.environ.get("FRUGAL_DATA", os.path.join(ROOT, "..", "shared", "data"))
BUILD = os.environ.get("FRUGAL_BUILD", "build")
NAME = os.path.basename(sys.argv[0])


def reports(program, arguments):
    """What the program says in its JSON objects."""
    with tempfile.NamedTemporaryFile("r") as report:
        command = [os.path.join(ROOT, BUILD, program), *map(str, arguments), "--report-every", "1000", "--json",
                   report.name]
        print(f"{NAME}: {' '.join(command[:-4])}", file=sys.stderr)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{NAME}: exit status {done.returncode}: {' '.join(command)}\n{done.stderr}")
        return [json.loads(line) for line in report]


def there(name):
    path = os.path.join(DATA, name)
    if os.path.exists(path):
        return path
    print(f"{NAME}: SKIPPED: {path} is not there", file=sys.stderr)
    return None


def tell(record, as_json):
    """Prints a result, in words or as an object."""
    words = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items())
    print(json.dumps(record) if as_json else "  ".join(words), flush=True)
