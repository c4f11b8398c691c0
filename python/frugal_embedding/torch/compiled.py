"""Compiles compiled.cc for the PyTorch that is installed, once, and loads it: `module`, or None, and `build`, which
says which. The result is kept in a folder of the user. Environment:

    FRUGAL_TORCH_BUILD  "python": the operators in Python; "compiled": ImportError, if they cannot be compiled;
                        else they are compiled where that is possible
    FRUGAL_CACHE        the folder; $XDG_CACHE_HOME/frugal, or ~/.cache/frugal
    CXX                 the compiler; c++

PyTorch has a stable interface for operators, and none for autograd nodes, in which most of the time is; so both are
compiled against the version that is installed.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, List, Tuple

import torch

_HERE = pathlib.Path(__file__).resolve().parent
_HEADERS = _HERE.parent / "include"


def _folder() -> pathlib.Path:
    """The cache. Code is run from there, so nobody else may write it."""
    given, of_all = os.environ.get("FRUGAL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if given:
        folder = pathlib.Path(given)
    else:
        folder = (pathlib.Path(of_all) if of_all else pathlib.Path.home() / ".cache") / "frugal"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise OSError(f"{folder} must be this user's, and writable by nobody else")
    return folder


def _command(compiler: List[str]) -> List[str]:
    """All but the name of the result. -O2: the calls are short, and PyTorch's headers long."""
    of_torch = pathlib.Path(torch.__file__).resolve().parent
    return [*compiler, "-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", f"-I{_HEADERS}",
            "-isystem", f"{of_torch}/include", "-isystem", f"{of_torch}/include/torch/csrc/api/include",
            "-isystem", sysconfig.get_paths()["include"], str(_HERE / "compiled.cc"), f"-L{of_torch}/lib",
            "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]


def _name(command: List[str]) -> str:
    """Of the result, by what it is made of; not by where this package lies. No compiler is asked: where a result is
    there, none need be."""
    command = [word.replace(str(_HERE.parent), "") for word in command]
    headers = [path.read_bytes() for path in sorted(_HEADERS.glob("*.h"))]
    text = [(_HERE / "compiled.cc").read_bytes(), *headers,
            repr((command, torch.__version__, torch.version.git_version, sys.version)).encode()]
    return f"torch-{torch.__version__}-{hashlib.sha256(b''.join(text)).hexdigest()[:20]}"


def _compile(command: List[str], result: pathlib.Path) -> None:
    """Other processes find all of the result, or nothing. What fails is not tried again by the same compiler."""
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    failed = result.with_suffix(f".{hashlib.sha256(version).hexdigest()[:8]}.failed")
    if failed.exists():
        raise OSError(f"it could not be compiled: {failed} says why; delete it to try again")
    print(f"frugal_embedding.torch: its operators are compiled for PyTorch {torch.__version__}, once; "
          "FRUGAL_TORCH_BUILD=python does without", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=result.parent) as made:
        new = pathlib.Path(made, "new.so")
        done = subprocess.run([*command, "-o", str(new)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            os.replace(new, result)
            return
        error = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:500])
        if done.returncode < 0 or "error:" not in error or "memory" in done.stderr:
            raise OSError(f"the compiler did not end: {error.strip() or done.returncode}")  # next time it may
        said = pathlib.Path(made, "said")
        said.write_text(f"{shlex.join(command)}\n{done.stderr}")
        os.replace(said, failed)
        raise OSError(f"it could not be compiled: {error.strip()} ({failed} has all; delete it to try again)")


def _load() -> Any:
    if not (_HEADERS / "frugal.h").is_file():
        raise OSError(f"{_HEADERS} has no frugal.h: build the package, pip install ./python")
    command = _command(shlex.split(os.environ.get("CXX", "c++")))
    result = _folder() / (_name(command) + ".so")
    if not result.exists():
        import fcntl
        with open(result.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one compiles
            if not result.exists():
                _compile(command, result)
    spec = importlib.util.spec_from_file_location("_compiled", result)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _choose() -> Tuple[Any, str]:
    wanted = os.environ.get("FRUGAL_TORCH_BUILD", "")
    if wanted not in ("", "python", "compiled"):
        raise ImportError(f"FRUGAL_TORCH_BUILD: python or compiled is wanted; {wanted!r} was given")
    if wanted == "python":
        return None, "python: FRUGAL_TORCH_BUILD asks for it"
    try:
        return _load(), f"compiled for PyTorch {torch.__version__}"
    except Exception as error:  # whatever it is, the operators in Python do without
        if wanted == "compiled":
            raise ImportError(f"frugal_embedding.torch: FRUGAL_TORCH_BUILD=compiled, and {error}") from error
        return None, f"python: {error}"


module, build = _choose()
