#!/usr/bin/env python3
"""Training steps by Frugal's modules beside torch.nn.EmbeddingBag(sparse=True) with torch.optim and, where they are
installed, FBGEMM's kernels for a CPU and TorchRec.

    python3 python/bench/bench_python.py [--json] [--parts key,steps,training,memory] [--optimizers sgd,adagrad] ...

The parts, of which --parts names those to measure:

  key       a step of one key: in C, by NumPy arrays, by Frugal's modules, by torch.nn, and x * 1 with its backward
  steps     a step of one large table: lookup, backward with a fixed gradient, and the optimizer. In one process, in
            rounds in which each contender trains the same batches; these are drawn before. Medians of the rounds, of
            which the first is not counted. Before a configuration is timed, all its contenders train a small table,
            and its rows are compared with those that PyTorch's optimizers make
  training  a model of several tables with its losses, beside torch.nn
  memory    what lies in memory beside a table, in a process for each contender (--memory: this part, too)

The default takes some minutes, and memory for the table of each contender: 1.3 GB with 10 million rows x 32 and SGD.
`frugal` is one logical device, `frugal/2` two, a thread each; `+loader` is with a Loader. `frugal_bf16`, if
--contenders names it, has rows, and takes and returns arrays, of bfloat16. An optimizer or pooling that a contender
does not have, and what is not installed, is SKIPPED, on stderr with the reason.

Huge pages: Frugal asks the system for them, PyTorch's allocator does not. --huge-pages starts this program with
GLIBC_TUNABLES=glibc.malloc.hugetlb=1, where the memory of all contenders alike asks for them (glibc 2.35 or later).

Exit status: 1, if something fails or if rows differ from PyTorch's; 2 for wrong usage; 130 after Ctrl-C.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import warnings
from typing import Any, Callable, Dict, List

import frugal_embedding as frugal

import memory
import one_key

PARTS = ("key", "steps", "training", "memory")
OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
CONTENDERS = ("frugal", "torch", "fbgemm", "torchrec")  # and frugal_bf16, if it is asked for
TUNABLE = "glibc.malloc.hugetlb=1"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Reasons:
    """Says once what is skipped, and why."""

    def __init__(self) -> None:
        self.said: List[List[str]] = []

    def __call__(self, what: str, reason: str) -> None:
        if [what, reason] not in self.said:
            self.said.append([what, reason])
            say(f"SKIPPED: {what}: {reason}")


def names_of(known: tuple) -> Callable[[str], List[str]]:
    def read(text: str) -> List[str]:
        found = text.replace("-", "_").split(",")
        wrong = [name for name in found if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"of {', '.join(known)} is wanted; {wrong[0]!r} was given")
        return list(dict.fromkeys(found))
    return read


def number(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is wanted; {text!r} was given")
    return int(text)


def numbers(text: str) -> List[int]:
    return list(dict.fromkeys(number(part) for part in text.split(",")))


def bags(text: str) -> List[int]:
    return list(dict.fromkeys(0 if part == "none" else number(part) for part in text.split(",")))


def key_counts(text: str) -> List[int]:
    return [] if text == "none" else numbers(text)


def distributions(text: str) -> List[str]:
    found = text.split(",")
    for name in found:
        try:
            known = name == "uniform" or name.startswith("zipf") and 0 < float(name[len("zipf"):]) < 10
        except ValueError:
            known = False
        if not known:
            raise argparse.ArgumentTypeError(f"uniform, or zipf with its exponent, as zipf.99, is wanted; {name!r} was "
                                             "given")
    return found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, read, default, what in (
            ("parts", names_of(PARTS), "key,steps,training", "what is measured"),
            ("contenders", names_of((*CONTENDERS, "frugal_bf16")), ",".join(CONTENDERS),
             "of the parts steps and memory"),
            ("optimizers", names_of(OPTIMIZERS), "sgd,rowwise_adagrad", f"of {', '.join(OPTIMIZERS)}"),
            ("keys", numbers, "53248,512", "of a step, less what does not fill a bag of each device"),
            ("bags", bags, "1,20", "keys a bag; none: rows that are not pooled"),
            ("distributions", distributions, "uniform,zipf.99", "of the keys"),
            ("devices", numbers, "1", "logical devices of a module, a thread each"),
            ("loader", key_counts, None, "those of --keys with which Loader is measured, too, or none; else 512"),
            ("rows", number, "10000000", "rows of the table"), ("dim", number, "32", "floats a row"),
            ("rounds", number, "7", "that are counted"),
            ("steps", number, None, "of a round; else what takes 0.4 s"),
            ("threads", number, None, "of PyTorch, which else decides"),
            ("tables", number, "26", "of the part training"), ("table-rows", number, "100000", "of each of them"),
            ("batch", number, "2048", "samples of a step of that part")):
        parser.add_argument(f"--{name}", type=read, default=default, help=f"{what} ({default})" if default else what)
    parser.add_argument("--memory", action="store_true", help="the part memory, too")
    parser.add_argument("--huge-pages", action="store_true", help=f"start with GLIBC_TUNABLES={TUNABLE}")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    if options.memory and "memory" not in options.parts:
        options.parts.append("memory")
    if max(options.devices) > 32:
        parser.error(f"argument --devices: at most 32 are possible; {max(options.devices)} was given")
    if options.loader is None:
        options.loader = [n for n in options.keys if n == 512]
    missing = [n for n in options.loader if n not in options.keys]
    if missing:
        parser.error(f"argument --loader: numbers of --keys are wanted; {missing[0]} was given")
    return options


def with_huge_pages() -> None:
    """Starts this program again with the setting of glibc, which only a new process reads."""
    given = os.environ.get("GLIBC_TUNABLES", "")
    if TUNABLE not in given.split(":"):
        environment = dict(os.environ, GLIBC_TUNABLES=f"{given}:{TUNABLE}" if given else TUNABLE)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]] if sys.version_info >= (3, 10)
                  else [sys.executable, *sys.argv], environment)


def measure(options: argparse.Namespace) -> Dict[str, Any]:
    skipped = Reasons()
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"the load average is {load:.1f}: other programs run, which slow down those contenders most "
            "whose threads wait for one another")
    report: Dict[str, Any] = {"version": frugal.__version__, "python": platform.python_version(),
                              "processors": os.cpu_count(), "load_average": load, "settings": vars(options),
                              "glibc_tunables": os.environ.get("GLIBC_TUNABLES", "")}
    try:
        import torch
        from frugal_embedding import torch as ours
        report["torch"] = torch.__version__
        report["build"] = getattr(ours, "build", None)
        if options.threads:
            torch.set_num_threads(options.threads)
        report["torch_threads"] = torch.get_num_threads()
    except ImportError as error:
        skipped("what needs PyTorch", f"not installed (pip install torch): {error}")
    for name in ("fbgemm_gpu", "torchrec"):
        try:
            report[name] = getattr(__import__(name), "__version__", "unknown")
        except (ImportError, OSError):
            report[name] = None
    if "key" in options.parts:
        n = options.steps or one_key.STEPS
        report["one_key_us"] = one_key.run(options.rounds, "torch" in report, n)
        for line in one_key.lines_of(report["one_key_us"]):
            say(line)
    if "torch" in report:
        measure_torch(options, report, skipped)
    report.setdefault("huge_pages", memory.huge_pages())
    report["skipped"] = skipped.said
    return report


def measure_torch(options: argparse.Namespace, report: Dict[str, Any], skipped: Reasons) -> None:
    import steps
    import training
    if "training" in options.parts:
        report["training"] = training.run(options)
    if "steps" in options.parts:
        report["steps"], report["huge_pages"] = steps.run(options, say, skipped)
    if "memory" in options.parts:
        report["memory"] = memory.run(options, steps.libraries_of(options), say, skipped)


def show(report: Dict[str, Any], options: argparse.Namespace) -> None:
    pages = report["huge_pages"]
    print(f"frugal {report['version']} ({report.get('build') or 'ctypes'}), Python {report['python']}, torch "
          f"{report.get('torch')}, fbgemm_gpu {report['fbgemm_gpu']}, torchrec {report['torchrec']}, "
          f"{report['processors']} processors, {report.get('torch_threads')} threads of PyTorch")
    print(f"transparent huge pages: {pages.get('transparent_hugepage', 'unknown')}; GLIBC_TUNABLES: "
          f"{report['glibc_tunables'] or 'unset'}")
    if "one_key_us" in report:
        print("", *one_key.lines_of(report["one_key_us"]), sep="\n")
    if report.get("steps"):
        import steps
        print(f"\n{options.rows:,} rows x {options.dim}: ms a step (times that of the first column)")
        if pages:
            print(f"with the tables of {report['steps'][0]['optimizer']} {pages['in_huge_pages_bytes'] / 1e9:.1f} of "
                  f"{pages['resident_bytes'] / 1e9:.1f} GB lay in huge pages")
        print()
        print(*steps.table_of(report["steps"]), sep="\n")
    if "training" in report:
        import training
        print("", *training.lines_of(report["training"], options), sep="\n")
    if report.get("memory"):
        print("", *memory.table_of(report["memory"]), sep="\n")


def main() -> int:
    options = read_options()
    if options.huge_pages:
        with_huge_pages()
    warnings.filterwarnings("ignore")
    try:
        report = measure(options)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except Exception as error:
        import traceback
        traceback.print_exc()
        say(f"bench_python: {error}")
        return 1
    if options.json:
        print(json.dumps(report))
    else:
        show(report, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
