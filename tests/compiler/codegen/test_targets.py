"""Targets and the assembly generated for other CPUs."""

from __future__ import annotations

import json
import re

import pytest
import tvm_ffi

from mlc_compiler import build, load_library
from mlc_compiler.backends.cpu.machine import CPUS, Cpu
from mlc_compiler.driver import native_text
from mlc_compiler.ir.expr import Call, Cast
from mlc_compiler.script.parser import parse
from mlc_compiler.target import Target, with_host
from mlc_errors import MLCError, UnsupportedError
from tests.compiler.codegen.native import assembly, elementwise
from tests.compiler.codegen.test_workers import MODULE

MULTIPLY_ADD = elementwise(lambda a, b: a * b + a, ("float32", "float32"), "float32")
HALF = elementwise(lambda a: Cast("float16", Call("exp", (Cast("float32", a),), "float32")), ("float16",), "float16")


@pytest.mark.parametrize("name", ["cpu:z80", "cpu:znver99", "cpu:+avx2", "cpu:generic;x", "gpu", "cpu:Generic"])
def test_unknown_names_are_refused(name):
    with pytest.raises(UnsupportedError) as error:
        Target(name)
    assert name.removeprefix("cpu:") in error.value.message and error.value.hint


@pytest.mark.parametrize("name", CPUS)
def test_every_cpu_of_the_table(name):
    """LLVM accepts the names without a warning, and the code uses the listed extensions."""
    to = Target(f"cpu:{name}")
    cpu = Cpu.of(to)
    text = assembly(MULTIPLY_ADD, to)
    if to.arch == "aarch64":
        assert re.search(r"fmla\s+v\d+\.4s", text)
    else:
        register = {128: "xmm", 256: "ymm", 512: "zmm"}[cpu.vector_bits]
        assert register in text
        assert ("vfmadd" in text) == cpu.has("fma")
    half = assembly(HALF, to)
    assert "__extendhfsf2" not in half and "__truncsfhf2" not in half and "call" not in half
    if to.arch == "x86_64":
        assert ("vcvtph2ps" in half) == cpu.has("f16c")


def test_llvm_supports_the_cpus_of_the_table():
    """An unknown CPU gets no instructions beyond the baseline: the widest vectors would be missing."""
    for to in (Target(f"cpu:{name}") for name in CPUS):
        if to.arch == "x86_64" and Cpu.of(to).vector_bits > 128:
            assert "vaddps" in assembly(elementwise(lambda a: a + a, ("float32",), "float32"), to)


@pytest.mark.parametrize("name", ["cpu:aarch64", "cpu:neoverse-v1"])
def test_a_whole_module_for_aarch64(name):
    text = native_text(parse(MODULE), Target(name), "asm")
    assert "__tvm_ffi_main:" in text
    assert "fmla" in text
    assert "%zmm" not in text and "%ymm" not in text


def test_generic_is_the_baseline_of_this_architecture():
    to = Target("cpu:generic")
    assert to.arch == Target("cpu").arch and Cpu.of(to).vector_bits == 128


@pytest.mark.parametrize(
    "spec",
    [
        "cpu:znver4 -num-cores=8",
        "llvm -mcpu=znver4 --num-cores=8",
        "llvm -mcpu znver4  -num-cores 8",
        '{"kind": "llvm", "mcpu": "znver4", "num-cores": 8}',
        {"kind": "cpu", "mcpu": "znver4", "num-cores": "8"},
        Target("cpu:znver4 -num-cores=8"),
    ],
)
def test_the_spellings_of_one_target(spec):
    to = Target(spec)
    assert (to.kind, to.cpu, to.attrs["num-cores"]) == ("cpu", "znver4", 8)
    assert to == Target("cpu:znver4 -num-cores=8") and Target(to.export()) == to
    assert Cpu.of(to).vector_bits == 512 and Cpu.of(to).has("avx512vnni")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cpu -mcp=znver4", "no option 'mcp'"),
        ("cpu -num-cores=many", "num-cores is 'many'; expected a positive number"),
        ({"kind": "llvm", "num-cores": 0}, "target cpu: num-cores is 0; expected a positive number"),
        ({"kind": "llvm", "num-cores": True}, "target cpu: num-cores is True; expected a positive number"),
        ({"kind": "llvm", "mcpu": 4}, "target cpu: mcpu is 4; expected text"),
        ({"kind": "llvm", "isa": 4}, "target cpu: isa is 4; expected names with a comma between each two"),
        ("cpu:znver4 -mcpu=znver3", "target cpu: mcpu is znver4 and znver3; expected one of them"),
        ("cpu num-cores=2", "got 'num-cores=2'; expected -option=value"),
        ('{"kind": 3}', "expected a mapping with the key 'kind'"),
        ('{"kind"', "text that is not JSON"),
        ("cpu:znver4 -mtriple=aarch64-unknown-linux-gnu", "mcpu znver4 is x86_64; mtriple is aarch64"),
        (7, "got a int; expected a name such as cpu"),
    ],
)
def test_specs_that_say_nothing(spec, message):
    with pytest.raises(MLCError, match=message):
        Target(spec)


@pytest.mark.parametrize(
    ("spec", "message", "known"),
    [
        ("opencl", "no kind of target 'opencl'", "kinds: cpu"),
        ("cpu -threads=2", "target cpu: no option 'threads'", "options: mcpu, mtriple, mattr, num-cores"),
        ("llvm -mcpu=z80", "target cpu: mcpu is 'z80'", "znver4"),
        ("cpu:aarch64 -mattr=+avx2", r"target cpu: mattr has '\+avx2'", "i8mm"),
        ("cpu:znver4 -mattr=avx2", "target cpu: mattr has 'avx2'", "known, each after . or -: .*avx2"),
        ("cpu -vector-width=100", "target cpu: vector-width is 100", "128, 256, 512"),
        ("cpu -mtriple=riscv64-linux-gnu", "target cpu: mtriple is 'riscv64-linux-gnu'", "aarch64-linux-gnu, x86_64-"),
        ("cpu -mtriple=aarch64-apple-darwin", "target cpu: mtriple is 'aarch64-apple-darwin'", "aarch64-linux-gnu"),
    ],
)
def test_values_that_are_not_known(spec: str, message: str, known: str):
    """The error names the attribute and lists the allowed values."""
    with pytest.raises(UnsupportedError, match=message) as error:
        Target(spec)
    assert re.search(known, error.value.hint or "")


@pytest.mark.parametrize("spec", ["cpu", "cpu:znver4", "cpu:neoverse-v1 -mattr=-sve", "cpu -isa=avx2,sse4.1"])
def test_a_target_is_what_it_prints_and_exports(spec: str):
    to = Target(spec)
    assert Target(str(to)) == Target(to.export()) == Target(json.dumps(to.export())) == to


def test_the_host_of_a_target():
    assert with_host("auto", "aarch64-linux-gnu") == Target("cpu -mtriple=aarch64-linux-gnu")
    assert with_host("cpu:neoverse-n1", "aarch64-linux-gnu").cpu == "neoverse-n1"
    assert with_host(Target("cpu:neoverse-n1"), "aarch64-unknown-linux-gnu") == Target("cpu:neoverse-n1")
    with pytest.raises(MLCError, match="mtriple is x86_64-linux-gnu; the host is aarch64-linux-gnu"):
        with_host("cpu -mtriple=x86_64-linux-gnu", "aarch64-linux-gnu")
    with pytest.raises(UnsupportedError, match="mcpu znver4 is x86_64; mtriple is aarch64-linux-gnu"):
        with_host("cpu:znver4", "aarch64-linux-gnu")


def test_options_change_the_code():
    """Features are added to and removed from the CPU's; a narrower SIMD width is respected."""
    assert not Cpu.of(Target("cpu:znver4 -mattr=-avx512vnni")).has("avx512vnni")
    assert Cpu.of(Target("cpu:haswell -mattr=+avxvnni")).has("avxvnni")
    assert Cpu.of(Target("cpu:znver4 -mattr=-avx512f")).vector_bits == 256
    wide, narrow = (native_text(parse(MODULE), Target(f"cpu:znver4 -vector-width={n}"), "asm") for n in (512, 256))
    assert narrow.count("%zmm") < wide.count("%zmm") / 2 and narrow.count("%ymm") > 2 * wide.count("%ymm")
    assert Target("cpu -mtriple=aarch64-unknown-linux-gnu").cpu == "generic"


def test_the_cores_of_a_target_are_the_threads_of_its_calls():
    lib = build(parse(MODULE), "llvm -num-cores=1")
    assert lib.context.num_threads == 1 and load_library(lib.path).context.num_threads == 1


def test_the_target_of_a_region_of_code():
    assert Target.current() is None
    with Target("cpu:x86-64-v3"), Target("cpu:x86-64-v2") as inner:
        assert Target.current() is inner
        assert build(parse(MODULE)).metadata["target"]["mcpu"] == "x86-64-v2"
    with pytest.raises(MLCError, match="no target is set"):
        Target.current(allow_none=False)
    assert Target.from_device("cpu") == Target.from_device(tvm_ffi.device("cpu:0")) == Target("cpu")
    with pytest.raises(UnsupportedError, match="no kind of target 'metal'"):
        Target.from_device("metal:0")
