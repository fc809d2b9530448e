"""Code for other CPUs, read as assembly; the ones that this machine is run in the tests of numbers."""

from __future__ import annotations

import re

import pytest

from mlc_compiler.driver import native_text
from mlc_compiler.ir.expr import Call, Cast
from mlc_compiler.script.parser import parse
from mlc_compiler.target import _CPUS, target
from mlc_errors import UnsupportedError
from tests.compiler.codegen.native import assembly, elementwise
from tests.compiler.codegen.test_workers import MODULE

MULTIPLY_ADD = elementwise(lambda a, b: a * b + a, ("float32", "float32"), "float32")
HALF = elementwise(lambda a: Cast("float16", Call("exp", (Cast("float32", a),), "float32")), ("float16",), "float16")


@pytest.mark.parametrize("name", ["cpu:z80", "cpu:znver99", "cpu:+avx2", "cpu:generic;x", "gpu", "cpu:Generic"])
def test_unknown_names_are_refused(name):
    with pytest.raises(UnsupportedError) as error:
        target(name)
    assert name.removeprefix("cpu:") in error.value.message and error.value.hint


@pytest.mark.parametrize("name", _CPUS)
def test_every_cpu_of_the_table(name):
    """LLVM warns of names that it does not know, and the instructions that the table promises are used."""
    to = target(f"cpu:{name}")
    text = assembly(MULTIPLY_ADD, to)
    if to.arch == "aarch64":
        assert re.search(r"fmla\s+v\d+\.4s", text)
    else:
        register = {128: "xmm", 256: "ymm", 512: "zmm"}[to.vector_bits]
        assert register in text
        assert ("vfmadd" in text) == to.has("fma")
    half = assembly(HALF, to)
    assert "__extendhfsf2" not in half and "__truncsfhf2" not in half and "call" not in half
    if to.arch == "x86_64":
        assert ("vcvtph2ps" in half) == to.has("f16c")


def test_the_rows_of_the_table_name_cpus_that_llvm_knows():
    """An unknown CPU gets no instructions beyond the baseline: the widest vectors would be missing."""
    for name, row in _CPUS.items():
        if row.arch == "x86_64" and row.bits > 128:
            assert "vaddps" in assembly(elementwise(lambda a: a + a, ("float32",), "float32"), target(f"cpu:{name}"))


@pytest.mark.parametrize("name", ["cpu:aarch64", "cpu:neoverse-v1"])
def test_a_whole_module_for_aarch64(name):
    text = native_text(parse(MODULE), target(name), "asm")
    assert "__tvm_ffi_main:" in text
    assert "fmla" in text
    assert "%zmm" not in text and "%ymm" not in text


def test_generic_is_the_baseline_of_this_architecture():
    to = target("cpu:generic")
    assert to.arch == target("cpu").arch and to.vector_bits == 128
