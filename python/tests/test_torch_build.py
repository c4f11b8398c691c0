"""Which operators modules have, and why: compiled.py chooses, and its cache nobody else may write."""
import os
import pathlib
import stat
import tempfile
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("PyTorch is not installed") from error

import frugal_embedding.torch as ft
from frugal_embedding.torch import compiled


class Choice(unittest.TestCase):
    def chosen(self, **environment):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.dict(os.environ, {"FRUGAL_CACHE": folder, "FRUGAL_TORCH_BUILD": "", **environment}):
            made = compiled._choose()
            return made, sorted(path.suffix for path in pathlib.Path(folder).iterdir())

    def compiler(self, folder, body):
        path = pathlib.Path(folder, "c++")
        path.write_text(f"#!/bin/sh\n[ \"$1\" != --version ] || {{ echo 1; exit; }}\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def test_what_is_in_force_is_said(self):
        self.assertRegex(ft.build, f"^compiled for PyTorch {torch.__version__.split('+')[0]}" if compiled.module else
                         "^python: .")
        if os.environ.get("FRUGAL_TORCH_BUILD"):
            self.assertEqual(ft.build.split()[0].rstrip(":"), os.environ["FRUGAL_TORCH_BUILD"])

    def test_asked_for(self):
        chosen = self.chosen(FRUGAL_TORCH_BUILD="python")
        self.assertEqual(chosen, ((None, "python: FRUGAL_TORCH_BUILD asks for it"), []))
        with self.assertRaisesRegex(ImportError, "python or compiled is wanted; 'c' was given"):
            self.chosen(FRUGAL_TORCH_BUILD="c")

    def test_no_compiler(self):
        (module, build), _ = self.chosen(CXX="/nowhere/c++")
        self.assertIsNone(module)
        self.assertRegex(build, "^python: .*nowhere")
        with self.assertRaisesRegex(ImportError, "FRUGAL_TORCH_BUILD=compiled, and .*nowhere"):
            self.chosen(CXX="/nowhere/c++", FRUGAL_TORCH_BUILD="compiled")

    def test_a_result_that_is_there_needs_no_compiler(self):
        with tempfile.TemporaryDirectory() as cache:
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": cache, "FRUGAL_TORCH_BUILD": "", "CXX": "/nowhere/c++"}):
                name = compiled._name(compiled._command(["/nowhere/c++"]))
                pathlib.Path(cache, name + ".so").write_text("no library")
                self.assertIn(f"{name}.so", compiled._choose()[1])  # it was found, and loaded in vain

    def test_a_compiler_that_fails_is_tried_once(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            failing = self.compiler(folder, f"echo >> {folder}/calls; echo 'x.cc:1: error: no such thing' >&2; exit 1")
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": cache, "FRUGAL_TORCH_BUILD": "", "CXX": failing}):
                first, second = compiled._choose()[1], compiled._choose()[1]
            self.assertRegex(first, "could not be compiled: x.cc:1: error: no such thing .*delete it to try again")
            self.assertRegex(second, r"could not be compiled: .*\.failed says why")
            self.assertEqual(pathlib.Path(folder, "calls").read_text(), "\n")
            self.assertFalse(list(pathlib.Path(cache).glob("*.so")))

    def test_a_compiler_that_lacks_memory_is_tried_again(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            failing = self.compiler(folder, f"echo >> {folder}/calls; echo 'error: out of memory' >&2; exit 1")
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": cache, "FRUGAL_TORCH_BUILD": "", "CXX": failing}):
                for _ in range(2):
                    self.assertRegex(compiled._choose()[1], "^python: the compiler did not end: error: out of memory")
            self.assertEqual(pathlib.Path(folder, "calls").read_text(), "\n\n")

    def test_whatever_is_wrong_python_does_without(self):
        for environment in ({"CXX": 'c++ "'}, {"FRUGAL_CACHE": "/proc/nowhere"}):
            (module, build), _ = self.chosen(**environment)
            self.assertIsNone(module)
            self.assertRegex(build, "^python: .")

    def test_a_cache_that_others_may_write(self):
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o777)
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": cache, "FRUGAL_TORCH_BUILD": ""}):
                module, build = compiled._choose()
            self.assertIsNone(module)
            self.assertRegex(build, "must be this user's, and writable by nobody else")
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "a", "b")
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": str(made)}):
                compiled._folder()
            self.assertEqual(stat.S_IMODE(made.stat().st_mode), 0o700)

    def test_a_result_that_cannot_be_loaded(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            broken = self.compiler(folder, 'while [ "$1" != -o ]; do shift; done; echo nothing >"$2"')
            with mock.patch.dict(os.environ, {"FRUGAL_CACHE": cache, "FRUGAL_TORCH_BUILD": "", "CXX": broken}):
                module, build = compiled._choose()
            self.assertIsNone(module)
            self.assertRegex(build, "^python: .")


if __name__ == "__main__":
    unittest.main()
