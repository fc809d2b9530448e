"""Linking with the C compiler, a bare linker, or the linker of a Python package."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import load_library, parse
from mlc_compiler.codegen import link
from mlc_compiler.driver import build_library
from mlc_compiler.target import Target
from mlc_errors import MLCError, ResourceError, UnsupportedError
from mlc_runtime.elf import read_data_symbol
from tests.compiler.codegen.native import HOST

FOREIGN = Target("cpu:x86-64-v2" if HOST.arch == "aarch64" else "cpu:neoverse-n1")
DOUBLE_EXP = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float64")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y
"""


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``PATH`` folder, so that only linkers placed in it are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return folder


def test_a_bare_linker_gives_a_library_that_brings_its_mathematics(tmp_path: Path, no_tools: Path, monkeypatch):
    ld = shutil.which("ld", path="/usr/bin:/bin:/usr/local/bin")
    assert ld is not None
    (no_tools / "ld").symlink_to(ld)
    for name in ("a.so", "b.so"):
        build_library(parse(DOUBLE_EXP), HOST, tmp_path / name)
    data = (tmp_path / "a.so").read_bytes()
    assert data == (tmp_path / "b.so").read_bytes()
    assert link.LIBM.encode() in data
    x = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(load_library(tmp_path / "a.so", num_threads=1)["main"](x), np.exp(x), rtol=1e-15)


def test_the_linker_of_the_python_package(no_tools: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "ziglang" else None)
    for arch in ("x86_64", "aarch64"):
        assert link.find_linker(arch).command[:4] == (sys.executable, "-m", "ziglang", "ld.lld")


def test_the_cross_compiler_for_another_architecture(no_tools: Path):
    gcc = no_tools / f"{FOREIGN.arch}-linux-gnu-gcc"
    gcc.touch(0o755)
    assert link.find_linker(FOREIGN.arch).command[0] == str(gcc)


def test_a_library_for_another_architecture(tmp_path: Path):
    """The ELF header has its architecture, and loading it here raises an error."""
    built = build_library(parse(DOUBLE_EXP), FOREIGN, tmp_path / "lib.so")
    assert read_data_symbol(built.output, "__mlc_metadata").machine == FOREIGN.arch
    with pytest.raises(UnsupportedError, match=f"made for {FOREIGN.arch}; this machine is {HOST.arch}"):
        load_library(built.output)["main"](np.zeros(3))


def test_no_linker_at_all(tmp_path: Path, no_tools: Path):
    with pytest.raises(ResourceError, match=f"no linker for {HOST.arch} found .*cc, ld.lld, ld and the zigl") as error:
        build_library(parse(DOUBLE_EXP), HOST, tmp_path / "lib.so")
    assert error.value.hint == "install one of them: apt install gcc, or pip install ziglang"
    with pytest.raises(
        ResourceError, match=f"no linker for {FOREIGN.arch} found .*{FOREIGN.arch}-linux-gnu-gcc"
    ) as error:
        build_library(parse(DOUBLE_EXP), FOREIGN, tmp_path / "lib.so")
    assert error.value.hint == "install one of them: apt install lld, or pip install ziglang"
    assert not (tmp_path / "lib.so").exists()


def test_a_linker_that_fails(tmp_path: Path):
    with pytest.raises(MLCError, match="linking failed: .* exited with 1") as error:
        link.link_shared([b"no object file"], tmp_path / "lib.so", Target("cpu"))
    assert "0.o" in error.value.where[0]


def test_an_output_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "folder.so").mkdir()
    for output, reason in ((tmp_path / "none" / "lib.so", "No such file"), (tmp_path / "folder.so", "Is a directory")):
        with pytest.raises(MLCError, match=f"cannot write the library: {reason}") as error:
            build_library(parse(DOUBLE_EXP), HOST, output)
        assert error.value.where == (str(output),)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.so"]
