"""Builds the package: the C library as a shared object, and a wheel around it. A build backend (PEP 517) without
dependencies, so that `pip wheel` needs no network: a wheel is a zip file, and one compiler call makes the library.

The C sources are those of the repository that this folder is in (pip builds a folder in place), or those that a source
distribution carries in `source`. Environment:
    CC                  the C compiler; cc
    CFLAGS              further flags for it; the flags that the bits depend on come after them
    FRUGAL_BUILD_CUDA   1: the library has devices on CUDA GPUs, too; needs nvcc, of CUDA Toolkit 12 or 13
    FRUGAL_CUDA_ARCH    for nvcc's -arch; sm_75, whose PTX runs on later GPUs, too. Several, in rising order with commas
                        (sm_75,sm_86): code of each, and the PTX of the last (tools/wheel)
    SOURCE_DATE_EPOCH   of the files in a wheel or a source distribution; with the same compiler, the same bytes
Without pip: `python3 python/backend/frugal_build.py wheel FOLDER`, or `sdist FOLDER`; tools/release calls these.
To work on the package in place: `pip install -e python`, or `python3 python/backend/frugal_build.py`, which only puts
the library and _declarations.py beside the sources.
"""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import frugal_declare  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = HERE / "frugal_embedding"
LIBRARY = "libfrugal.so"
HEADERS = ["frugal.h", "frugal_p2f.h", "frugal_pq.h"]  # which torch/compiled.cc needs, where PyTorch is
# As the README's one line, and what a shared library needs. Without NDEBUG each lookup checks its rows.
FLAGS = ["-std=c11", "-ffp-contract=off", "-fno-math-errno", "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
NVCC_FLAGS = ["-O3", "-std=c++17", "--fmad=false", "-DNDEBUG", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
SOURCES = ["*.h", "frugal_flush.c", "frugal_cuda.cu", "frugal_cuda_serve.cu", "src/*.h", "src/*/*", "LICENSE"]


def source_folder() -> pathlib.Path:
    """Where frugal.h and frugal_flush.c are."""
    for folder in (HERE / "source", HERE.parent):
        if (folder / "frugal.h").is_file() and (folder / "frugal_flush.c").is_file():
            return folder
    raise SystemExit(
        f"frugal: wanted the C sources (frugal.h, frugal_flush.c, src) in {HERE.parent} or {HERE / 'source'}; found "
        "none. Build in a checkout of the whole repository (pip 21.3 or later builds a folder in place), or from a "
        "source distribution.")


def version_of(source: pathlib.Path) -> str:
    found = re.search(r'^#define FRUGAL_VERSION_STRING +"([^"]+)"', (source / "frugal_pq.h").read_text(), re.M)
    if not found:
        raise SystemExit(f"frugal: {source / 'frugal_pq.h'} has no FRUGAL_VERSION_STRING")
    return found[1]


def wants_cuda() -> bool:
    return os.environ.get("FRUGAL_BUILD_CUDA", "0") not in ("", "0")


def run(command: list[str]) -> None:
    print("frugal:", shlex.join(command), flush=True)
    try:
        done = subprocess.run(command, check=False)
    except FileNotFoundError:
        raise SystemExit(f"frugal: the compiler '{command[0]}' was not found; install it, or name another in "
                         "CC") from None
    if done.returncode:
        raise SystemExit(f"frugal: '{shlex.join(command)}' failed with status {done.returncode}")


def arch_flags() -> list[str]:
    """nvcc's, of FRUGAL_CUDA_ARCH."""
    archs = os.environ.get("FRUGAL_CUDA_ARCH", "sm_75").split(",")
    if len(archs) == 1:
        return [f"-arch={archs[0]}"]
    numbers = [arch.partition("sm_")[2] for arch in archs]
    if not all(number.isalnum() for number in numbers):
        raise SystemExit(f"frugal: FRUGAL_CUDA_ARCH: sm_NUMBER is wanted, several with commas between them; it is "
                         f"{','.join(archs)}")
    return [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers] + \
        [f"-gencode=arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"]


def build_library(folder: pathlib.Path) -> None:
    """Makes `folder`/libfrugal.so, `folder`/_declarations.py and `folder`/include."""
    source = source_folder()
    (folder / "_declarations.py").write_text(frugal_declare.declare(source), encoding="utf-8")
    (folder / "include").mkdir(exist_ok=True)
    for header in HEADERS:
        shutil.copyfile(source / header, folder / "include" / header)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-O3", *shlex.split(os.environ.get("CFLAGS", "")), *FLAGS]
    with tempfile.TemporaryDirectory() as made:
        # Only the public calls are visible. In a file, because nvcc passes its own arguments through a shell.
        visible = pathlib.Path(made, "visible.h")
        visible.write_text('#define FRUGAL_API __attribute__((visibility("default")))\n')
        objects = [f"{made}/frugal_flush.o"]
        run([*compiler, *flags, "-include", str(visible), "-c", str(source / "frugal_flush.c"), "-o", objects[0]])
        new = f"{made}/{LIBRARY}"
        if wants_cuda():
            for name in ("frugal_cuda", "frugal_cuda_serve"):
                objects.append(f"{made}/{name}.o")
                run(["nvcc", *NVCC_FLAGS, *arch_flags(), "-include", str(visible), "-I", str(source), "-c",
                     str(source / f"{name}.cu"), "-o", objects[-1]])
            # The CUDA runtime is linked statically: the wheel needs a driver, and no Toolkit.
            run(["nvcc", "-shared", "-cudart", "static", *objects, "-Xcompiler", "-pthread", "-o", new])
        else:
            run([*compiler, "-shared", *objects, "-pthread", "-lm", "-o", new])
        if shutil.which("strip"):
            run(["strip", "--strip-unneeded", new])
        shutil.copyfile(new, folder / f"{LIBRARY}.new")
        os.replace(folder / f"{LIBRARY}.new", folder / LIBRARY)  # a process may have the old one loaded


def metadata(version: str) -> str:
    """Core metadata, version 2.1. pyproject.toml says the same; Python before 3.11 cannot read it."""
    lines = ["Metadata-Version: 2.1", "Name: frugal-embedding", f"Version: {version}",
             "Summary: Exact synchronous training of embedding tables that are larger than GPU memory",
             "License: MIT OR Unlicense", "Requires-Python: >=3.9", "Provides-Extra: numpy",
             "Requires-Dist: numpy; extra == 'numpy'", "Provides-Extra: torch",
             "Requires-Dist: torch>=2.4; extra == 'torch'", "Requires-Dist: numpy; extra == 'torch'",
             "Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + (HERE / "README.md").read_text(encoding="utf-8")


def source_date() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


class Wheel:
    """A wheel that is being written."""

    def __init__(self, folder: str, version: str):
        self.info = f"frugal_embedding-{version}.dist-info"
        self.tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
        self.name = f"frugal_embedding-{version}-{self.tag}.whl"
        self.date = time.gmtime(max(source_date(), 315532800))[:6]  # 1980: a zip file has no earlier dates
        self.record: list[str] = []
        self.zip = zipfile.ZipFile(pathlib.Path(folder, self.name), "w", zipfile.ZIP_DEFLATED)

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self.write(name, data, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, version: str) -> str:
        for name, data in info_files(version, self.tag).items():
            self.add(f"{self.info}/{name}", data)
        self.write(f"{self.info}/RECORD", "\n".join([*self.record, f"{self.info}/RECORD,,"]).encode() + b"\n")
        self.zip.close()
        return self.name


def info_files(version: str, tag: str) -> dict[str, bytes]:
    wheel = f"Wheel-Version: 1.0\nGenerator: frugal_build\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {"METADATA": metadata(version).encode(), "WHEEL": wheel.encode(),
            "LICENSE": (source_folder() / "LICENSE").read_bytes()}


def package_files() -> list[pathlib.Path]:
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".typed", ".cc") and path.is_file()
                  and path.name != "_declarations.py")


def wheel_version() -> str:
    return version_of(source_folder()) + ("+cuda" if wants_cuda() else "")


# The calls that pip makes.

def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = wheel_version()
    with tempfile.TemporaryDirectory() as made:
        build_library(pathlib.Path(made))
        wheel = Wheel(wheel_directory, version)
        for path in package_files():
            wheel.add(f"{PACKAGE.name}/" + path.relative_to(PACKAGE).as_posix(), path.read_bytes())
        wheel.add(f"{PACKAGE.name}/_declarations.py", pathlib.Path(made, "_declarations.py").read_bytes())
        for header in HEADERS:
            wheel.add(f"{PACKAGE.name}/include/{header}", pathlib.Path(made, "include", header).read_bytes())
        wheel.add(f"{PACKAGE.name}/{LIBRARY}", pathlib.Path(made, LIBRARY).read_bytes(), 0o755)
        return wheel.close(version)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    version = wheel_version()
    build_library(PACKAGE)
    wheel = Wheel(wheel_directory, version)
    wheel.add("frugal_embedding.pth", f"{HERE}\n".encode())
    return wheel.close(version)


def build_sdist(sdist_directory, config_settings=None):
    source, version = source_folder(), version_of(source_folder())
    root = f"frugal_embedding-{version}"

    def add(name: str, data: bytes) -> None:  # always by the same owner, mode and date
        entry = tarfile.TarInfo(f"{root}/{name}")
        entry.size, entry.mtime = len(data), source_date()
        archive.addfile(entry, io.BytesIO(data))

    with open(pathlib.Path(sdist_directory, f"{root}.tar.gz"), "wb") as file, \
            gzip.GzipFile("", "wb", fileobj=file, mtime=source_date()) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        own = [HERE / "pyproject.toml", HERE / "README.md", *package_files(),
               *sorted(HERE.glob("backend/*.py")),
               *sorted(HERE.glob("tests/*.py")), *sorted(HERE.glob("examples/**/*.py")),
               *sorted(HERE.glob("bench/*.py"))]
        for path in own:
            add(path.relative_to(HERE).as_posix(), path.read_bytes())
        for pattern in SOURCES:
            for path in sorted(source.glob(pattern)):
                add(f"source/{path.relative_to(source).as_posix()}", path.read_bytes())
        add("PKG-INFO", metadata(version).encode())
    return f"{root}.tar.gz"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        build_library(PACKAGE)
    elif len(sys.argv) == 3 and sys.argv[1] in ("wheel", "sdist"):
        os.makedirs(sys.argv[2], exist_ok=True)  # before the minutes, not behind them
        print((build_wheel if sys.argv[1] == "wheel" else build_sdist)(sys.argv[2]))
    else:
        print("usage: frugal_build.py [wheel FOLDER | sdist FOLDER]", file=sys.stderr)
        sys.exit(2)
