"""LLVM in worker processes: objects do not depend on their number, and aborts are errors."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mlc_compiler.backends import emit_llvm
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.codegen.llvm_worker import Reply
from mlc_compiler.codegen.native import compile_modules
from mlc_compiler.codegen.workers import ThisProcess, Workers
from mlc_compiler.driver import build_library
from mlc_compiler.ir.expr import Call
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.script.parser import parse
from mlc_compiler.target import Target
from mlc_errors import ResourceError
from tests.compiler.codegen.native import HOST, Kernels, apply, elementwise, llvm_text

MODULE = """
from mlc_compiler.script import I, R, T

@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor(("n", 40), "float32"), w: R.Tensor((24, 40), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.linear(R.exp(a), w))
            z = R.sum(y, axis=[1])
            R.output(y, z)
        return (y, z)
"""
ABORTS = """
target triple = "x86_64-unknown-linux-gnu"
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
define <16 x i32> @f(<16 x i32> %a, <64 x i8> %b) {
  %r = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %a, <64 x i8> %b, <64 x i8> %b)
  ret <16 x i32> %r
}
"""


@pytest.fixture
def one_process():
    workers = Workers(1)
    yield workers
    workers.stop()


def test_objects_do_not_depend_on_the_number_of_processes(one_process, monkeypatch):
    monkeypatch.setattr("mlc_compiler.backends.cpu.kernels.INSTRUCTIONS_IN_A_MODULE", 50)
    lowered = run_passes(parse(MODULE), pipeline(HOST))
    texts = list(emit_llvm(lowered, HOST))
    assert len(texts) > 2
    many = Workers(3)
    a, b = compile_modules(texts, HOST, workers=one_process), compile_modules(texts, HOST, workers=many)
    many.stop()
    assert a.objects == b.objects


def test_two_builds_are_the_same_bytes(tmp_path):
    for name in ("a.so", "b.so"):
        build_library(parse(MODULE), HOST, tmp_path / name)
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_an_abort_of_llvm_is_an_error(one_process):
    with pytest.raises(CodegenError, match="LLVM stopped with SIGABRT") as error:
        compile_modules([ABORTS], Target("cpu:x86-64"), workers=one_process)
    assert any("LLVM ERROR" in line for line in error.value.where)
    text = llvm_text({"f": elementwise(lambda x: Call("exp", (x,), "float32"), ("float32",), "float32")})
    assert compile_modules([text], HOST, workers=one_process).objects[0][:4] == b"\x7fELF"


def test_processes_start_before_their_first_module():
    workers = Workers(3)
    workers.start(2)
    workers.start(2)
    early = [process.process for process in workers.all]
    assert len(early) == 2 and all(process.poll() is None for process in early)
    compile_modules(["define i32 @f() { ret i32 0 }"] * 4, HOST, workers=workers)
    assert set(early) <= {process.process for process in workers.all}
    workers.stop()


def test_an_llvm_without_memory_is_named(monkeypatch):
    """Planted: a worker that ends as LLVM's does."""
    dies = "import os; os.write(2, b'LLVM ERROR: out of memory\\nAllocation failed\\n'); os.abort() # {path}"
    monkeypatch.setattr("mlc_compiler.codegen.workers._START", dies)
    workers = Workers(1)
    with pytest.raises(ResourceError, match="out of memory") as error:
        compile_modules(["define i32 @f() { ret i32 0 }"], HOST, workers=workers)
    workers.stop()
    assert "LLVM stopped with SIGABRT: LLVM ERROR: out of memory" in error.value.where[0]


def test_a_process_that_compiles_by_itself_compiles_a_module_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(
        "mlc_compiler.codegen.workers.compile_text", lambda request: compiled.append(request.text) or Reply(b"object")
    )
    here = ThisProcess()
    for texts in (["kernel 1", "host"], ["kernel 2", "host"]):
        assert compile_modules(texts, HOST, workers=here).objects == (b"object", b"object")
    assert compiled == ["kernel 1", "host", "kernel 2"]


def test_text_that_is_no_module(one_process):
    with pytest.raises(CodegenError, match="LLVM refuses the generated code") as error:
        compile_modules(["define i32 @f() { ret i64 0 }"], HOST, workers=one_process)
    assert "value doesn't match function result type" in " ".join(error.value.where)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_compiles_too():
    func = elementwise(lambda x: x + x, ("float32",), "float32")
    x = np.arange(16, dtype=np.float32)
    apply(Kernels({"f": func})["f"], np.empty_like(x), x)
    child = os.fork()
    if child == 0:
        got = apply(Kernels({"f": func})["f"], np.empty_like(x), x)
        os._exit(0 if np.array_equal(got, 2 * x) else 1)
    assert os.waitpid(child, 0)[1] == 0
