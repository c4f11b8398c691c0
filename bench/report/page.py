"""How reports are made: the output of a run is kept below build/results, and becomes tables and plots."""
import datetime
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEPT = os.path.join(ROOT, "build", "results")
PLOTS = os.path.join(ROOT, "docs", "plots")

# >>running


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = int(next(line for line in open("/proc/meminfo") if line.startswith("MemTotal")).split()[1])
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return f"{cpu}, {os.cpu_count()} processors, {memory / 2**20:.0f} GiB, {compiler}"


def run(name, command):
    """Runs a command that prints one JSON object per line, and keeps its output."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    python = os.environ.get("FRUGAL_PYTHON", "python3")
    line = re.sub("^python3 ", python + " ", command)
    done = subprocess.run(line, shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"results: exit status {done.returncode}: {command}")
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    today = datetime.date.today().isoformat()
    keep(name, {"command": command, "date": today, "machine": machine(), "records": records})


def keep(name, measured):
    os.makedirs(KEPT, exist_ok=True)
    with open(os.path.join(KEPT, name + ".json"), "w") as file:
        json.dump(measured, file)


class NotMeasured(Exception):
    pass


def kept(name):
    """The results that were measured under this name."""
    path = os.path.join(KEPT, name + ".json")
    if not os.path.exists(path):
        raise NotMeasured(name)
    return json.load(open(path))


# >>writing


def table(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "| " + " | ".join("---" for _ in headings) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def source(*names):
    """The lines below a table or a plot: the commands that made it, the date and the machine."""
    runs = [kept(name) for name in names]
    commands = "\n".join(one["command"] for one in runs)
    made = sorted({f"{one['date']}; {one['machine']}" for one in runs})
    return f"\n```sh\n{commands}\n```\n\n<sub>{'<br>'.join(made)}</sub>\n"


def plot(name, title, script, data, labels=("", "")):
    """Draws NAME.svg: `data` maps a label to rows of columns, `script` is gnuplot's plot command. The pictures in
    docs/plots are those that pages show; the others lie below build/results."""
    shown = os.path.exists(os.path.join(PLOTS, name + ".svg"))
    folder = PLOTS if shown else os.path.join(KEPT, "plots")
    picture = f"\n![{title}]({os.path.relpath(folder, KEPT)}/{name}.svg)\n"
    if not shutil.which("gnuplot"): # a picture that is there stays
        return picture + "\n(not drawn: gnuplot is not installed)\n"
    os.makedirs(folder, exist_ok=True)
    blocks = "".join(f"${key} << EOD\n" + "\n".join(" ".join(map(str, row)) for row in rows) + "\nEOD\n"
                     for key, rows in data.items())
    head = f"""set terminal svg size 760,400 font 'sans-serif,13' background 'white'
set output '{os.path.join(folder, name + ".svg")}'
set title "{title}"
set xlabel "{labels[0]}"
set ylabel "{labels[1]}"
set grid ytics lc rgb '#dddddd'
set border 3
set tics nomirror out
set key outside right top
set linetype 1 lc rgb '#1b6ca8' lw 2 pt 7
set linetype 2 lc rgb '#d1495b' lw 2 pt 5
set linetype 3 lc rgb '#3a7d44' lw 2 pt 9
set linetype 4 lc rgb '#edae49' lw 2 pt 11
set linetype 5 lc rgb '#6c4f9e' lw 2 pt 13
set linetype 6 lc rgb '#777777' lw 2 pt 3
"""
    subprocess.run(["gnuplot"], input=head + blocks + script, text=True, check=True)
    return picture


def curves(titles, column=2):
    """gnuplot's plot command: for each block $D0, $D1, ... a line with points, of this column over the first."""
    return "plot " + ", ".join(f"$D{i} using 1:{column} with linespoints title \"{title}\""
                               for i, title in enumerate(titles))


def millions(x):
    return f"{x / 1e6:.1f}"


def speed(r):
    return f"{millions(r['keys_per_s'])} ({millions(r['min'])} to {millions(r['max'])})"


def skew(r):
    return "uniform" if r["zipf"] == 0 else f"Zipf {r['zipf']:g}"
