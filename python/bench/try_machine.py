#!/usr/bin/env python3
"""Frugal on your machine, in ten minutes at most: does it train the right bits, and how fast beside what you have?

    python3 try_machine.py                        with the package that is installed
    python3 try_machine.py WHEEL                  a file or an address of a wheel, which pip installs first
    python3 try_machine.py WHEEL --minutes 3 --output mine.json

It needs Python 3.9 or later on Linux, and no root. It uses all GPUs that it sees, or host cores where it sees none.
NumPy is needed to measure; PyTorch and fbgemm_gpu are measured beside it where they are installed.

1. Bits: small tables are trained by 1 to n devices, with several caches, optimizers and types of rows, and compared bit
   for bit with sequential training, which is written in this file and shares no code with the library.
2. Steps: milliseconds per step of lookup, backward and optimizer; medians with the lowest and the highest.

Progress goes to stderr, one JSON object to stdout, or to --output. It has no host name, user name or path. Please
attach it to an issue of the repository, also if something fails or is slow: docs/machines-seen.md is made of these.

Exit status: 0 all is well; 1 bits differ, something failed, or it was cut short; 2 wrong usage. Ctrl-C ends it, and
what was measured until then is printed, marked as cut. In a notebook: try_machine.ipynb, which is made of this file.
"""
# %% What is there: the package, the machine
import argparse
import array
import ctypes
import importlib
import json
import math
import os
import platform
import pwd
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

FORMAT = 1  # of the JSON
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam")
LR = 0.05
NO_PACKAGE = """try_machine: the package frugal_embedding was wanted, and is not installed. Do one of these:
    python3 try_machine.py WHEEL                        a file or an address of a wheel with GPUs
    FRUGAL_BUILD_CUDA=1 pip install ./python            in a checkout, where nvcc of CUDA Toolkit 12 or 13 is in PATH
    pip install ./python                                in a checkout, without GPUs
"""


class Failed(Exception):
    """The text says what was wanted, what was found, and what to do."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def names():
    """The host's, whole and its first part, and the user's, also where no variable has it."""
    found = {socket.gethostname(), socket.gethostname().partition(".")[0], os.environ.get("USER", ""),
             os.environ.get("LOGNAME", "")}
    try:
        found.add(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:  # a number without a name, as in containers
        pass
    return sorted((name for name in found if len(name) > 1), key=len, reverse=True)


def without_names(text):
    """The text without paths, the host's name and the user's. A path in quotes is cut to the closing one, because there
    may be blanks in it."""
    text = re.sub(r"(['\"])(~|\.{0,2})/[^\n]*?\1", r"\1PATH\1", str(text))
    for path in (os.path.expanduser("~"), sys.prefix):
        if len(path) > 1:
            text = text.replace(path, "/PATH")
    text = re.sub(r"(?<![\w.)])(~\w*|\.{0,2}|[\w.+@-]+(?=/[\w.+@-]*/))(/[\w.+@-]+)+/?", "PATH", text)
    for name in names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "NAME", text)
    return " ".join(text.split())[:300]


def install(wheel):
    say("pip installs the wheel ...")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", "--force-reinstall",
                           "--disable-pip-version-check", wheel], capture_output=True, text=True)
    if done.returncode:
        say(done.stdout + done.stderr)
        if "externally-managed-environment" in done.stderr:
            raise Failed("pip may not install into the system's Python, its message is above. Make a Python of your "
                         "own, which has the system's packages, too, and call it: python3 -m venv "
                         "--system-site-packages frugal-venv && frugal-venv/bin/python try_machine.py WHEEL")
        raise Failed(f"pip could not install the wheel (status {done.returncode}, its message is above). A wheel for "
                     f"Linux and {platform.machine()} was wanted; check the address, or build one in a checkout: "
                     "FRUGAL_BUILD_CUDA=1 pip install ./python")
    importlib.invalidate_caches()


def package_of(wheel=""):
    """The package, installed from `wheel` if one is given."""
    if wheel:
        install(wheel)
        if "frugal_embedding" in sys.modules:  # in a notebook: its library stays the old one
            raise Failed("the wheel is installed, and another one is in use in this Python: restart the kernel "
                         "(Runtime > Restart), then run all cells again")
    try:
        return importlib.import_module("frugal_embedding")
    except ModuleNotFoundError as error:
        if error.name != "frugal_embedding":
            raise
        raise Failed(NO_PACKAGE.strip()) from None


def module_of(name):
    """A module, or the reason why there is none."""
    try:
        return importlib.import_module(name), ""
    except Exception as error:  # a package that is half installed raises anything
        return None, f"{name} cannot be imported: {without_names(error)}"


# Of a container, whose limit /proc/meminfo does not know: control groups, version 2 and 1.
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_free(limits=MEMORY_LIMITS):
    """Bytes of the host that are free, and not above the container's limit."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    for limit in limits:
        try:
            with open(limit, encoding="ascii") as file:
                free = min(free, int(file.read()))
        except (OSError, ValueError):  # no such group; or "max"
            pass
    return free


class Host:
    """Host cores, on which each logical device is. The face of Gpus, too: memory by addresses."""

    kind, count = "host", 0

    def __init__(self):
        self.kept = {}

    def new(self, ordinal, size):
        memory = (ctypes.c_ubyte * max(size, 1))()
        self.kept[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, ordinal, address):
        del self.kept[address]

    def put(self, ordinal, address, data):
        ctypes.memmove(address, data, len(data))

    def get(self, ordinal, address, size):
        return ctypes.string_at(address, size)

    def synchronize(self, ordinal):
        pass

    def attach(self, f, device, ordinal, cache_rows, on_stream):
        f.attach_cpu(device, cache_rows=cache_rows)


class Gpus:
    """NVIDIA's GPUs, through the driver's own library: so no other package is needed to reach their memory."""

    kind = "GPU"

    def __init__(self):
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Failed(f"no NVIDIA driver: {without_names(error)}") from None
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value
        if not self.count:
            raise Failed("the driver finds no GPU")
        self.contexts = [None] * self.count

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(status, ctypes.byref(text))
            raise Failed(f"{name} of the driver failed with {status}: {(text.value or b'?').decode()}")

    def device(self, ordinal):
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device

    def enter(self, ordinal):
        """Makes the context that the CUDA runtime uses, too, the calling thread's."""
        if self.contexts[ordinal] is None:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device(ordinal))
            self.contexts[ordinal] = context
        self.call("cuCtxSetCurrent", self.contexts[ordinal])

    def memory(self, ordinal):
        """Bytes that are free, and all."""
        self.enter(ordinal)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def name(self, ordinal):
        text = ctypes.create_string_buffer(200)
        self.call("cuDeviceGetName", text, 200, self.device(ordinal))
        return text.value.decode()

    def new(self, ordinal, size):
        self.enter(ordinal)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, ordinal, address):
        self.enter(ordinal)
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def put(self, ordinal, address, data):
        self.enter(ordinal)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
        self.call("cuCtxSynchronize")  # the call may return before the copy is done

    def get(self, ordinal, address, size):
        self.synchronize(ordinal)
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def synchronize(self, ordinal):
        self.enter(ordinal)
        self.call("cuCtxSynchronize")

    def stream(self, ordinal):
        """A new one, which does not wait for the default stream. It lives as long as the process."""
        self.enter(ordinal)
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)  # CU_STREAM_NON_BLOCKING
        return made.value

    def peers(self):
        """Pairs of GPUs of which the first can read the memory of the second, of all pairs."""
        can, pairs = ctypes.c_int(), [(a, b) for a in range(self.count) for b in range(self.count) if a != b]
        found = 0
        for a, b in pairs:
            self.call("cuDeviceCanAccessPeer", ctypes.byref(can), self.device(a), self.device(b))
            found += can.value
        return f"{found} of {len(pairs)} pairs"

    def attach(self, f, device, ordinal, cache_rows, on_stream):
        f.attach_cuda(device, ordinal, cache_rows, stream=self.stream(ordinal) if on_stream else 0,
                      gate_on_stream=on_stream)


def place_of(package, host_only):
    """Where devices are, and why not on GPUs."""
    if host_only:
        return Host(), "host cores were asked for"
    try:
        gpus = Gpus()
    except Failed as error:
        return Host(), str(error)
    if not package.has_cuda:
        return Host(), "the installed package was built without GPUs; give a wheel with them, whose name has +cuda"
    return gpus, ""


def nvidia_smi():
    """Of each GPU: driver, link. Nothing where nvidia-smi is not there."""
    fields = "driver_version,pcie.link.gen.max,pcie.link.width.current"
    if not shutil.which("nvidia-smi"):
        return []
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], timeout=20,
                              capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == 2]


def first_line(path, begins):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(begins)), "?")
    except OSError:
        return "?"


def machine_of(place):
    """What figures depend on."""
    found = {"cpu": first_line("/proc/cpuinfo", "model name"), "processors": len(os.sched_getaffinity(0)),
             "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
             "load": round(os.getloadavg()[0], 1),  # processors that others, or the installation, kept busy before
             "system": f"Linux {platform.release().split('-')[0]}, {' '.join(platform.libc_ver())}, "
                       f"Python {platform.python_version()}", "gpus": []}
    if place.kind == "GPU":
        told = nvidia_smi()
        for ordinal in range(place.count):
            gpu = {"name": place.name(ordinal), "memory_gb": round(place.memory(ordinal)[1] / 1e9, 1)}
            if ordinal < len(told):  # nvidia-smi and the driver may count otherwise, which the drivers' order hides
                gpu["link"] = f"PCIe {told[ordinal][1]} x{told[ordinal][2]}"
                found["driver"] = told[ordinal][0]
            found["gpus"].append(gpu)
        found["peer_access"] = place.peers()
    return found


# %% The reference: sequential training, in Python's own arithmetic
# As frugal.h says it. Numbers are float32 that Python holds as doubles; each operation is rounded to float32.

def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def fma(a, b, c):
    """a * b + c, rounded once: the product is exact in double, and the sum is rounded to odd there, so that the second
    rounding, to float32, gives what one would."""
    product = a * b
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    if error and not struct.unpack("q", struct.pack("d", total))[0] & 1:
        total = math.nextafter(total, math.inf if error > 0 else -math.inf)
    return f32(total)


def plus(a, b):
    return [f32(x + y) for x, y in zip(a, b)]


def add_up(parts):
    """Blocks of 32 gradients, then the blocks, each from its first."""
    blocks = []
    for first in range(0, len(parts), 32):
        total = parts[first]
        for part in parts[first + 1:first + 32]:
            total = plus(total, part)
        blocks.append(total)
    total = blocks[0]
    for block in blocks[1:]:
        total = plus(total, block)
    return total


def mix(x):
    """splitmix64's finalizer."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def noise(seed, step, row, dim):
    """16 random bits for each element."""
    of_row, bits = mix(mix(seed ^ mix(step)) ^ row) >> 32, []
    for pair in range((dim + 1) // 2):
        x = (of_row + pair * 0x9E3779B9) % 2**32
        x = (x ^ x >> 16) * 0x21F0AAAD % 2**32
        x = (x ^ x >> 15) * 0x735A2D97 % 2**32
        x ^= x >> 15
        bits += [x & 0xFFFF, x >> 16]
    return bits[:dim]


def as_bf16(x, bits):
    """The next number of bf16 toward 0, or beyond x where the random bits and those that are cut carry."""
    return struct.unpack("f", struct.pack("I", struct.unpack("I", struct.pack("f", x))[0] + bits & 0xFFFF0000))[0]


class Reference:
    """One table: rows, and the optimizer's state of each."""

    def __init__(self, rows, kind, rows_as, seed):
        self.rows, self.kind, self.rows_as, self.seed, self.step = rows, kind, rows_as, seed, 0
        dim = len(rows[0])
        floats = {"sgd": 0, "adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim}[kind]
        self.state = [[0.0] * floats for _ in rows]
        self.eps = f32({"sgd": 0, "adagrad": 1e-10, "rowwise_adagrad": 1e-8, "adam": 1e-8}[kind])

    def train(self, batches):
        """`batches`: keys and gradients of each device. Gradients of a row are summed by device, then over devices."""
        totals = {}
        for keys, gradients in batches:
            of_row = {}
            for key, gradient in zip(keys, gradients):
                of_row.setdefault(key, []).append(gradient)
            for row, parts in of_row.items():
                summed = add_up(parts)
                totals[row] = plus(totals[row], summed) if row in totals else summed
        for row, total in totals.items():
            self.rows[row] = self.applied(self.rows[row], self.state[row], total)
            if self.rows_as == "bf16":
                bits = noise(self.seed, self.step, row, len(total))
                self.rows[row] = [as_bf16(x, b) for x, b in zip(self.rows[row], bits)]
        self.step += 1

    def applied(self, w, s, g):
        """The row after an update; `s` is changed."""
        lr, dim = f32(LR), len(w)
        if self.kind == "sgd":
            return [fma(-lr, y, x) for x, y in zip(w, g)]
        if self.kind == "adagrad":
            s[:] = [fma(y, y, x) for x, y in zip(s, g)]
            return [fma(-lr, f32(y / f32(f32(math.sqrt(z)) + self.eps)), x) for x, y, z in zip(w, g, s)]
        if self.kind == "rowwise_adagrad":
            lanes = [0.0] * 32
            for j, y in enumerate(g):
                lanes[j % 32] = fma(y, y, lanes[j % 32])
            half = 16
            while half:
                lanes = plus(lanes[:half], lanes[half:2 * half])
                half //= 2
            s[0] = f32(s[0] + f32(lanes[0] / dim))
            rate = f32(lr / f32(f32(math.sqrt(s[0])) + self.eps))
            return [fma(-rate, y, x) for x, y in zip(w, g)]
        beta1, beta2, power1, power2 = f32(0.9), f32(0.999), 1.0, 1.0
        for _ in range(self.step + 1):
            power1, power2 = power1 * beta1, power2 * beta2
        size = f32(lr * math.sqrt(1 - power2) / (1 - power1))
        m = [fma(f32(y - x), f32(1 - beta1), x) for x, y in zip(s[:dim], g)]
        v = [fma(fma(y, y, -x), f32(1 - beta2), x) for x, y in zip(s[dim:], g)]
        s[:] = m + v
        return [fma(-size, f32(x / f32(f32(math.sqrt(y)) + self.eps)), z) for x, y, z in zip(m, v, w)]


# %% Bits: Frugal beside the reference

ROWS, DIM, KEYS, STEPS, SEED = 150, 9, 60, 10, 7


def floats(rows):
    """The bytes of rows of float32."""
    return array.array("f", [x for row in rows for x in row]).tobytes()


def lists(data, dim):
    made = array.array("f", data)
    return [list(made[at:at + dim]) for at in range(0, len(made), dim)] if dim else []


def of_step(devices):
    """Keys, many of them equal, and gradients, of each device and step; the same in every case."""
    generator = random.Random(3)
    return [[([min(int(generator.expovariate(0.03)), ROWS - 1) for _ in range(KEYS)],
              [[f32(generator.gauss(0, 1)) for _ in range(DIM)] for _ in range(KEYS)])
             for _ in range(devices)] for _ in range(STEPS)]


class Expected:
    """What the reference makes of each case; of those that differ in caches alone, once."""

    def __init__(self):
        self.kept = {}

    def get(self, first, kind, rows_as, devices):
        """Rows that each lookup sees, by step and device; and rows and state at the end."""
        case = (kind, rows_as, devices)
        if case not in self.kept:
            reference, seen = Reference(lists(first, DIM), kind, rows_as, SEED), []
            for batches in of_step(devices):
                seen.append([floats([reference.rows[key] for key in keys]) for keys, _ in batches])
                reference.train(batches)
            self.kept[case] = (first, seen, floats(reference.rows), floats(reference.state))
        if self.kept[case][0] != first:
            raise Failed("the first rows of two instances with one seed differ")
        return self.kept[case][1:]


def rows_of(f, rows):
    """Rows and state, as bytes."""
    return [bytes(memoryview(part).cast("B")) if memoryview(part).nbytes else b""
            for part in f.read_rows(array.array("q", range(rows)), state=True)]


def difference(f, places, kind, rows_as, expected):
    """Trains one case; what differs first, or nothing."""
    devices, size = len(places), KEYS * DIM * 4
    memory = [[place.new(ordinal, size) for _ in range(2)] for place, ordinal in places]
    first = rows_of(f, ROWS)[0]
    seen, rows, state = expected.get(first, kind, rows_as, devices)
    data, ahead = of_step(devices), 0
    try:
        for step in range(STEPS):
            while ahead < STEPS and ahead <= step + f.lookahead:
                for device in range(devices):
                    f.announce(device, ahead, array.array("q", data[ahead][device][0]))
                ahead += 1
            for device, (place, ordinal) in enumerate(places):
                f.lookup_address(device, step, memory[device][0])
                if place.get(ordinal, memory[device][0], size) != seen[step][device]:
                    return f"rows that device {device} looks up in step {step}"
            for device, (place, ordinal) in enumerate(places):
                place.put(ordinal, memory[device][1], floats(data[step][device][1]))
                f.update_address(device, step, memory[device][1], LR)
                place.synchronize(ordinal)
        f.drain()
        f.verify()
        found = rows_of(f, ROWS)
        return "" if found[0] == rows and found[1] == state else "rows or state at the end"
    finally:
        for (place, ordinal), both in zip(places, memory):
            for address in both:
                place.free(ordinal, address)


def bit_cases(place):
    """Lists of (place, ordinal) of each device; optimizer, type of rows, rows of the cache, gates on the stream."""
    host, count = Host(), place.count or 2
    kinds = [[(place, ordinal) for ordinal in range(n)] for n in range(1, count + 1)]
    if place.kind == "GPU":
        if count == 1:
            kinds.append([(place, 0)] * 2)
        kinds.append(kinds[count - 1] + [(host, 0)])
    for places in kinds:
        for kind in OPTIMIZERS:
            for rows_as in ("fp32", "bf16"):
                for cache_rows in (0, ROWS // 8, ROWS):
                    yield places, kind, rows_as, cache_rows, False
        if place.kind == "GPU":
            yield places, "adagrad", "fp32", ROWS // 8, True
            yield places, "adam", "bf16", ROWS // 8, True


def place_words(places):
    """Such as "2 GPUs", or "2 devices on 1 GPU and 1 on host cores"."""
    on_gpus = [ordinal for place, ordinal in places if place.kind == "GPU"]
    others, words = len(places) - len(on_gpus), []
    if on_gpus:
        gpus = len(set(on_gpus))
        words.append(("" if gpus == len(on_gpus) else f"{len(on_gpus)} devices on ") + f"{gpus} GPU" + "s" * (gpus > 1))
    if others:
        words.append(f"{others} device{'s' * (others > 1)} on host cores")
    return " and ".join(words)


def check_bits(package, place, report, until):
    """Fills report["bits"]. A case that fails to run counts as one that differs."""
    bits = report["bits"] = {"same": 0, "differ": 0, "devices": [], "differences": [], "not_run": 0}
    expected, since, cases = Expected(), time.monotonic(), list(bit_cases(place))
    bits["not_run"] = len(cases)  # until they have: what is cut here must not look whole
    for number, (places, kind, rows_as, cache_rows, on_stream) in enumerate(cases):
        if number and time.monotonic() > until:
            report["skipped"].append(f"bits: {bits['not_run']} of {len(cases)} cases, their part of the time was over")
            break
        words = place_words(places)
        report["doing"] = f"bits, {words}"
        if words not in bits["devices"]:
            say(f"bits: {words}")
            bits["devices"].append(words)
        try:
            with package.Frugal([package.Table(ROWS, package.Uniform(-1, 1))], DIM, max_keys=KEYS, devices=len(places),
                                lookahead=2, workers=1, optimizer=kind, rows_as=rows_as, seed=SEED,
                                stuck_seconds=60) as f:
                for device, (where, ordinal) in enumerate(places):
                    where.attach(f, device, ordinal, cache_rows, on_stream and where.kind == "GPU")
                wrong = difference(f, places, kind, rows_as, expected)
        except (package.FrugalError, Failed, OSError, ValueError) as error:
            wrong = without_names(error)
        bits["differ" if wrong else "same"] += 1
        bits["not_run"] -= 1
        if wrong:
            text = (f"{words}, {kind}, {rows_as}, cache of {cache_rows} rows{', gates on the stream' * on_stream}: "
                    f"{wrong}")
            say(f"DIFFERS: {text}")
            bits["differences"] = (bits["differences"] + [text])[:5]
    bits["seconds"] = round(time.monotonic() - since, 1)
    say(f"bits: {bits['same']} of {len(cases)} cases are the same, {bits['differ']} differ, {bits['not_run']} not run")


# %% Steps: how fast, beside what

AHEAD, LEAST_ROUNDS, MOST_ROUNDS, MOST_STEPS = 10, 3, 15, 400


class Draws:
    """Keys, as the benchmarks of the repository draw them: Zipf's by Gray et al. (SIGMOD 1994), anywhere in the
    table."""

    def __init__(self, numpy, rows, theta):
        self.numpy, self.rows, self.theta, self.generator = numpy, rows, theta, numpy.random.default_rng(42)
        if theta:
            self.zeta = float(numpy.sum(numpy.arange(1, rows + 1, dtype=numpy.float64) ** -theta))
            self.eta = (1 - (2.0 / rows) ** (1 - theta)) / (1 - (1 + 0.5**theta) / self.zeta)

    def draw(self, n):
        """int64 [n]"""
        numpy, u = self.numpy, self.generator.random(n)
        if not self.theta:
            return (u * self.rows).astype(numpy.int64)
        ranks = (self.rows * (self.eta * u - self.eta + 1) ** (1 / (1 - self.theta))).astype(numpy.int64)
        ranks[u * self.zeta < 1 + 0.5**self.theta] = 1
        ranks[u * self.zeta < 1] = 0
        return (numpy.minimum(ranks, self.rows - 1) + 1) * 2654435761 % self.rows


class Instances:
    """Frugal's own calls, a thread for each device; gradients stay in the device's memory, as from a backward."""

    def __init__(self, package, place, shape, devices):
        self.place, self.devices, self.step, self.shape = place, devices, 0, shape
        workers = max(1, min(6, len(os.sched_getaffinity(0)) - 1 - devices))
        self.f = package.Frugal([package.Table(shape["rows"], package.Uniform(-0.1, 0.1))], shape["dim"],
                                max_keys=shape["keys"], devices=devices, lookahead=AHEAD, workers=workers,
                                optimizer=shape["optimizer"], stuck_seconds=60)
        self.memory = []
        try:
            size = shape["keys"] * shape["dim"] * 4
            for device in range(devices):
                place.attach(self.f, device, device, shape["cache_rows"] if place.count else 0, False)
                self.memory.append((place.new(device, size), place.new(device, size)))
                place.put(device, self.memory[device][1], array.array("f", [0.001]).tobytes() * (size // 4))
        except BaseException:
            self.close()
            raise

    def prepare(self, draws, steps):
        return [[draws.draw(self.shape["keys"]) for _ in range(self.devices)] for _ in range(steps)]

    def of_device(self, device, batches):
        f, (rows, gradients), first, ahead = self.f, self.memory[device], self.step, 0
        for at in range(len(batches)):
            while ahead < len(batches) and ahead <= at + AHEAD:
                f.announce(device, first + ahead, batches[ahead][device])
                ahead += 1
            f.lookup_address(device, first + at, rows)
            f.update_address(device, first + at, gradients, LR)

    def train(self, batches):
        failed = []

        def guarded(device):
            try:
                self.of_device(device, batches)
            except BaseException as error:  # raised again below
                failed.append(error)
                self.f.stop()  # the others would wait for this one

        if self.devices == 1:
            self.of_device(0, batches)
        else:
            threads = [threading.Thread(target=guarded, args=(device,)) for device in range(self.devices)]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            except BaseException:  # Ctrl-C
                self.f.stop()
                for thread in threads:
                    thread.join()
                raise
        if failed:
            raise failed[0]
        self.step += len(batches)
        self.f.drain()
        for device in range(self.devices):
            self.place.synchronize(device)

    def close(self):
        self.f.close()
        for device, both in enumerate(self.memory):
            for address in both:
                self.place.free(device, address)


class Torches:
    """What PyTorch's contenders have in common: keys as tensors, and a fixed gradient on `device`."""

    def __init__(self, torch, shape, device):
        self.torch, self.shape, self.device = torch, shape, device
        self.gradient = torch.full((shape["keys"], shape["dim"]), 0.001, device=device)

    def prepare(self, draws, steps):
        return [self.torch.from_numpy(draws.draw(self.shape["keys"])) for _ in range(steps)]

    def train(self, batches):
        for keys in batches:
            self.once(keys)
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def close(self):
        pass


class Module(Torches):
    """frugal_embedding.torch.EmbeddingBag with a Loader, on the first GPU."""

    def __init__(self, torch, shape, device, package):
        super().__init__(torch, shape, device)
        self.ours = importlib.import_module(package.__name__ + ".torch")
        options = {"device": device, "cache_rows": shape["cache_rows"]} if device != "cpu" else {}
        self.bag = self.ours.EmbeddingBag(shape["rows"], shape["dim"], max_keys=shape["keys"], mode="sum", lr=LR,
                                          optimizer=shape["optimizer"], workers=1, lookahead=AHEAD, **options)

    def train(self, batches):
        for keys in self.ours.Loader([keys.view(-1, 1) for keys in batches], self.bag):
            self.bag(keys).backward(self.gradient)
        self.bag.drain()
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def close(self):
        self.bag.close()


class Sparse(Torches):
    """nn.EmbeddingBag with sparse gradients, and the optimizer of torch.optim. `where`: that has the table. Where the
    table is on the host and a model would be on a GPU, rows are copied there, and gradients back."""

    def __init__(self, torch, shape, device, where):
        super().__init__(torch, shape, device)
        weight = torch.full((shape["rows"], shape["dim"]), 0.01, device=where)
        self.bag = torch.nn.EmbeddingBag(shape["rows"], shape["dim"], mode="sum", sparse=True, _weight=weight)
        optimizer = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[shape["optimizer"]]
        self.optimizer, self.where = optimizer(self.bag.parameters(), lr=LR), where
        self.offsets = torch.arange(shape["keys"], device=where)
        self.crosses = device != "cpu" and where == "cpu"
        if self.crosses:
            self.pinned = torch.empty(shape["keys"], shape["dim"], pin_memory=True)

    def once(self, keys):
        out, gradient = self.bag(keys.to(self.where), self.offsets), self.gradient
        if self.crosses:
            self.pinned.copy_(out.detach())
            self.pinned.to(self.device, non_blocking=True)
            self.pinned.copy_(self.gradient)
            gradient = self.pinned
        out.backward(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Fbgemm(Torches):
    """FBGEMM's table in unified memory, with its own cache on the GPU, of as many rows as ours."""

    def __init__(self, torch, shape, device):
        super().__init__(torch, shape, device)
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (ComputeDevice,
                                                                            SplitTableBatchedEmbeddingBagsCodegen)
        kind = {"sgd": EmbOptimType.EXACT_SGD, "adagrad": EmbOptimType.EXACT_ADAGRAD,
                "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}[shape["optimizer"]]
        self.bag = SplitTableBatchedEmbeddingBagsCodegen(
            [(shape["rows"], shape["dim"], EmbeddingLocation.MANAGED_CACHING, ComputeDevice.CUDA)], optimizer=kind,
            cache_load_factor=shape["cache_rows"] / shape["rows"], learning_rate=LR, eps=1e-8,
            pooling_mode=PoolingMode.SUM)
        self.bag.init_embedding_weights_uniform(-0.1, 0.1)
        self.offsets = torch.arange(shape["keys"] + 1, device=device)

    def once(self, keys):
        self.bag(keys.to(self.device), self.offsets).backward(self.gradient)


def timed(table, draws, keys, seconds):
    """Milliseconds per step, median, lowest and highest over rounds; millions of keys per second. The caches fill in a
    first round, which is not counted."""
    began = time.monotonic()
    table.train(table.prepare(draws, 3))
    since = time.perf_counter()
    table.train(table.prepare(draws, 3))
    one = (time.perf_counter() - since) / 3
    steps = max(3, min(MOST_STEPS, int(seconds / 10 / max(one, 1e-6))))
    times = []
    for turn in range(MOST_ROUNDS + 1):
        batches = table.prepare(draws, steps)
        since = time.perf_counter()
        table.train(batches)
        if turn:
            times.append((time.perf_counter() - since) / steps * 1e3)
        if len(times) >= LEAST_ROUNDS and time.monotonic() - began > seconds:
            break
    middle = statistics.median(times)
    return [round(x, 3) for x in (middle, min(times), max(times))] + [round(keys / middle / 1e3, 3)]


def shape_of(options, place, numpy):
    """Rows that fit: a quarter of the host's free memory, with Adagrad's state; a cache of 5% of them, in at most half
    of a GPU's free memory."""
    dim, free = options.dim, memory_free()
    rows = options.rows or max(1000, min(10_000_000, int(free / 4 / (8 * dim))))
    if rows * dim * 8 > free * 0.6:
        raise Failed(f"--rows {rows}: {rows * dim * 8 / 1e9:.1f} GB are wanted with Adagrad's state; at most 60% of "
                     f"the {free / 1e9:.1f} GB that are free are allowed. Give fewer --rows")
    cache = rows // 20
    for ordinal in range(place.count):
        cache = min(cache, int(place.memory(ordinal)[0] / 2 / (8 * dim + 64)))
    return {"rows": rows, "dim": dim, "keys": options.keys, "cache_rows": cache}


def contenders(package, place, torch, fbgemm, report):
    """Name, devices, optimizers and the table's maker, the most valuable first."""
    on = "cuda:0" if place.kind == "GPU" and torch and torch.cuda.is_available() else "cpu"
    counts = range(1, place.count + 1) if place.count else (1, 2)
    both, skipped = ("adagrad", "sgd"), report["skipped"]
    for count in counts:
        yield "Frugal", count, both, lambda shape, n=count: Instances(package, place, shape, n)
    if torch and (on != "cpu" or place.kind == "host"):
        yield "PyTorch, table on the host", 1, both, lambda shape: Sparse(torch, shape, on, "cpu")
        if on != "cpu":
            yield "PyTorch, table on the GPU", 1, both, lambda shape: Sparse(torch, shape, on, on)
        else:
            skipped.append("PyTorch, table on the GPU: no GPU")
        yield "Frugal from PyTorch", 1, both, lambda shape: Module(torch, shape, on, package)
    elif torch:
        skipped.append("PyTorch: this PyTorch finds no GPU, and Frugal does; install one for CUDA")
    if fbgemm and on != "cpu":
        yield "Frugal", 1, ("rowwise_adagrad",), lambda shape: Instances(package, place, shape, 1)
        yield ("FBGEMM, UVM caching", 1, ("rowwise_adagrad", "adagrad", "sgd"),
               lambda shape: Fbgemm(torch, shape, on))
    elif fbgemm:
        skipped.append("FBGEMM, UVM caching: it needs a GPU")


def measure(package, place, options, report, until):
    """Fills report["steps"]: name, devices, optimizer, keys, ms, lowest, highest, millions of keys per second."""
    numpy, reason = module_of("numpy")
    if not numpy:
        report["skipped"].append(f"steps: {reason}; measuring draws keys with it: pip install numpy")
        return
    torch, reason = module_of("torch")
    if not torch:
        report["skipped"].append(f"PyTorch: {reason}")
    fbgemm, reason = module_of("fbgemm_gpu") if torch else (None, "it needs PyTorch")
    if not fbgemm:
        report["skipped"].append(f"FBGEMM, UVM caching: {reason}")
    report["versions"] = {name: str(getattr(one, "__version__", "?"))
                          for name, one in (("numpy", numpy), ("torch", torch), ("fbgemm_gpu", fbgemm)) if one}
    shape = report["shape"] = shape_of(options, place, numpy)
    draws = {name: Draws(numpy, shape["rows"], theta) for name, theta in (("uniform", 0), ("Zipf 0.99", 0.99))}
    cases = [(name, devices, optimizer, make) for name, devices, optimizers, make in
             contenders(package, place, torch, fbgemm, report) for optimizer in optimizers]
    cases.sort(key=lambda case: case[2] == "sgd")  # stable: the other optimizers first
    report["steps"] = []
    for number, (name, devices, optimizer, make) in enumerate(cases):
        what = f"{name}, {devices} {'GPU' if place.count else 'device'}{'s' * (devices > 1)}, {optimizer}"
        report["doing"] = what
        share = (until - time.monotonic()) / (len(cases) - number)
        if number and share < (until - report["began"]) / 200:
            report["skipped"].append(f"{what} and {len(cases) - number - 1} others: the time was over")
            break
        measure_one(package, {**shape, "optimizer": optimizer}, (name, devices, what, make), draws, share, report)


def measure_one(package, shape, case, draws, seconds, report):
    """Opens a table, and measures it with each distribution of keys."""
    name, devices, what, make = case
    opened, table = time.monotonic(), None
    try:
        table = make(shape)
        left = max(seconds - (time.monotonic() - opened), seconds / 4) / len(draws)
        for distribution, of in draws.items():
            keys = shape["keys"] * devices
            figures = timed(table, of, keys, left)
            report["steps"].append([name, devices, shape["optimizer"], distribution, *figures])
            say(f"{what}, {distribution}: {figures[0]:.4g} ms ({figures[1]:.4g} to {figures[2]:.4g}), "
                f"{figures[3]:.4g} million keys/s")
    except Exception as error:
        text = f"{what}: {type(error).__name__}: {without_names(error)}"
        ours = name.startswith("Frugal") and not isinstance(error, (MemoryError, ImportError))
        report["failed" if ours else "skipped"].append(text)
        say(f"{'FAILED' if ours else 'SKIPPED'}: {text}")
    finally:
        if table is not None:
            table.close()
        table = None
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available():
            torch.cuda.empty_cache()


# %% All of it

def replaced(output, text):
    """Whether the file has the text: then as a whole, else it is as it was."""
    made = ""
    try:
        handle, made = tempfile.mkstemp(dir=os.path.dirname(output) or ".", prefix=".try_machine-")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(made, 0o644)
        os.replace(made, output)
        return True
    except OSError as error:
        say(f"cannot write {output}: {error}; the JSON is printed instead")
        if made and os.path.exists(made):
            os.unlink(made)
        return False


def printed(text):
    try:
        if sys.stdout is None:  # closed by the caller
            raise OSError("stdout is closed")
        print(text, flush=True)
        return True
    except OSError as error:
        say(f"the JSON cannot be printed: {error}; give a file by --output")
        return False


def written(report, output):
    """Prints the report once: a list of figures is a line. Returns whether it could."""
    shown = {key: value for key, value in report.items() if key not in ("began", "doing")}
    text = json.dumps(shown, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: "[" + re.sub(r",\n\s+", ", ", found[1]) + "]", text)
    if output and replaced(output, text):
        say(f"written to {output}")
    elif not printed(text):
        return False
    say("Please attach this JSON to an issue of Frugal's repository, whatever it says: docs/machines-seen.md is made "
        "of such files. It has no host name, user name or path.")
    return True


def watch(report, output, seconds):
    """A call that hangs must not keep what was measured: after `seconds` the report is written, and the process
    ends."""
    def end():
        try:
            report["cut"] = f"still in {report['doing']} after {seconds:.0f} s"
            written(dict(report), output)
        finally:
            os._exit(1)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def parsed(words):
    parser = argparse.ArgumentParser(prog="try_machine", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("wheel", nargs="?", default="", help="pip installs it first; a file or an address")
    parser.add_argument("--minutes", type=float, default=10, help="for all of it (10), without the wheel's download")
    parser.add_argument("--output", default="", help="a file for the JSON, instead of stdout")
    parser.add_argument("--rows", type=int, default=0, help="of the tables that are timed (as memory allows, 10 "
                        "million at most)")
    parser.add_argument("--dim", type=int, default=32, help="floats of a row (32)")
    parser.add_argument("--keys", type=int, default=26624, help="of a step of each device (26624)")
    parser.add_argument("--parts", default="bits,steps", help="bits, steps, or both (bits,steps)")
    parser.add_argument("--host", action="store_true", help="host cores, even where there are GPUs")
    options = parser.parse_args(words)
    for name, least, most in (("minutes", 0.01, 120), ("dim", 1, 4096), ("keys", 1, 1 << 24)):
        if not least <= getattr(options, name) <= most:
            parser.error(f"--{name} {getattr(options, name)}: {least} to {most} is wanted")
    if options.rows and not 100 <= options.rows <= 1 << 40:
        parser.error(f"--rows {options.rows}: at least 100 are wanted")
    folder = os.path.dirname(options.output) or "."
    if options.output and (os.path.isdir(options.output) or not os.access(folder, os.W_OK)):
        parser.error(f"--output {options.output}: a file in a folder that can be written to is wanted")
    options.parts = options.parts.split(",")
    if not set(options.parts) <= {"bits", "steps"}:
        parser.error(f"--parts {','.join(options.parts)}: bits and steps are wanted, or one of them")
    return options


def run(options, report):
    """Fills the report."""
    package = package_of(options.wheel)
    report["began"] = time.monotonic()
    until = report["began"] + options.minutes * 60
    place, reason = place_of(package, options.host)
    report["frugal"] = package.__version__ + ("+cuda" if package.has_cuda else "")
    report["devices"] = "GPUs" if place.count else f"host cores: {reason}"
    if reason:
        say(f"NO GPU: {reason}. Devices are on host cores")
    report["machine"] = machine_of(place)
    if report["machine"]["load"] > report["machine"]["processors"] / 2:
        say(f"BUSY: other programs keep {report['machine']['load']} of {report['machine']['processors']} processors "
            "busy; the figures will be worse than the machine's, and the JSON says so")
    timer = watch(report, options.output, options.minutes * 60 + 45)
    try:
        if "bits" in options.parts:
            check_bits(package, place, report,
                       report["began"] + options.minutes * (18 if "steps" in options.parts else 60))
        if "steps" in options.parts:
            measure(package, place, options, report, until)
    finally:
        timer.cancel()
        report["minutes"] = round((time.monotonic() - report["began"]) / 60, 2)


def main(words=None):
    """The exit status."""
    options = parsed(words)
    report = {"format": FORMAT, "made_by": "try_machine.py", "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "cut": "", "failed": [], "skipped": [], "doing": "the beginning", "began": 0.0}
    try:
        run(options, report)
    except KeyboardInterrupt:
        report["cut"] = f"ended from outside in {report['doing']}"
        say(f"CUT: {report['cut']}")
    except (Failed, ImportError) as error:
        if "frugal" not in report:  # there is nothing to report
            say(str(error))
            return 1
        report["failed"].append(without_names(error))
        say(f"FAILED: {error}")
    except Exception as error:  # a fault of this file: what was measured until then is worth as much
        traceback.print_exc()
        report["failed"].append(f"in {report['doing']}: {type(error).__name__}: {without_names(error)}")
    if not report.get("machine"):
        say("ended before anything was measured")
        return 1
    for text in report["skipped"]:
        say(f"SKIPPED: {text}")
    told = written(report, options.output)
    bits = report.get("bits", {})
    return 1 if report["failed"] or report["cut"] or bits.get("differ") or not told else 0


# %% Run
def interrupt(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)  # of `timeout`, for example: what was measured is printed
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup makes it
        signal.signal(signal.SIGHUP, interrupt)  # a connection that is lost; --output then has the JSON
    signal.signal(signal.SIGINT, interrupt)  # also where it was ignored, as in the background of a script
    sys.exit(main())
