"""Hand-written functions: control flow in blocks, data-dependent indices, loops of other kinds.

Scheduled, lowered to loops, and compiled and run by two threads, they give the results of their definition.
"""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import Library, build
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import parse
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.schedules.meaning import check_meaning, random_arguments, run

SOURCE = """
@I.ir_module
class Module:
    @T.prim_func
    def triangle(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 20):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.float32(0)
                for k in range(vj + 1):
                    y[vi, vj] = y[vi, vj] + x[vi, k]

    @T.prim_func
    def until(x: T.Buffer((4, 20), "int32"), y: T.Buffer((4, 20), "int32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 20):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj]
                while y[vi, vj] < 10:
                    y[vi, vj] = y[vi, vj] + 3

    @T.prim_func
    def ifelse(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 20):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                if x[vi, vj] > T.float32(0):
                    y[vi, vj] = x[vi, vj]
                else:
                    y[vi, vj] = x[vi, 0]

    @T.prim_func
    def lets(x: T.Buffer((4, 20), "float32"), idx: T.Buffer((4, 20), "int64"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 20):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                at = idx[vi, vj]
                y[vi, vj] = x[at, vj] + x[vi, at]

    @T.prim_func
    def scatter(x: T.Buffer((4, 20), "float32"), idx: T.Buffer((4,), "int64"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i, j in T.grid(4, 20):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[(idx[vi] * 0 + vi), 19 - vj] = x[vi, vj]

    @T.prim_func
    def histogram(idx: T.Buffer((40,), "int64"), y: T.Buffer((4,), "int32")):
        T.func_attr({"num_outputs": 1})
        for i in range(4):
            with T.block("zero"):
                vi = T.axis.spatial(4, i)
                y[vi] = 0
        for i in range(40):
            with T.block("count"):
                vi = T.axis.reduce(40, i)
                y[idx[vi]] = y[idx[vi]] + 1

    @T.prim_func
    def scan(x: T.Buffer((20, 6), "float32"), y: T.Buffer((20, 6), "float32")):
        T.func_attr({"num_outputs": 1})
        for t, j in T.grid(20, 6):
            with T.block("y"):
                vt, vj = T.axis.remap("RS", [t, j])
                with T.init():
                    y[0, vj] = T.float32(0)
                y[vt, vj] = T.if_then_else(vt > 0, y[T.max(vt - 1, 0), vj], T.float32(0)) + x[vt, vj]

    @T.prim_func
    def scan_opaque(x: T.Buffer((20, 6), "float32"), y: T.Buffer((20, 6), "float32")):
        T.func_attr({"num_outputs": 1})
        for j in range(6):
            with T.block("y"):
                vj = T.axis.spatial(6, j)
                y[0, vj] = x[0, vj]
                for t in range(19):
                    y[t + 1, vj] = y[t, vj] + x[t + 1, vj]

    @T.prim_func
    def nested_blocks(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.spatial(4, i)
                tmp = T.alloc_buffer((20,), "float32")
                for j in range(20):
                    with T.block("a"):
                        vj = T.axis.spatial(20, j)
                        tmp[vj] = x[vi, 19 - vj]
                for j in range(20):
                    with T.block("b"):
                        vj = T.axis.spatial(20, j)
                        y[vi, vj] = tmp[vj] + T.float32(1)

    @T.prim_func
    def imperfect(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 20), "float32"), z: T.Buffer((4,), "float32")):
        T.func_attr({"num_outputs": 2})
        for i in range(4):
            with T.block("z"):
                vi = T.axis.spatial(4, i)
                z[vi] = x[vi, 0]
            for j in range(20):
                with T.block("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] * z[vi]

    @T.prim_func
    def int32loop(x: T.Buffer((4, 20), "float32"), y: T.Buffer((4, 20), "float32")):
        T.func_attr({"num_outputs": 1})
        for i in range(T.int32(4)):
            for j in range(T.int32(20)):
                with T.block("y"):
                    vi = T.axis.spatial(T.int32(4), i)
                    vj = T.axis.spatial(T.int32(20), j)
                    y[vi, vj] = x[vi, vj] * T.float32(2)
"""
RULES = {"histogram": "Fallback", "scan": "Fallback", "nested_blocks": "Fallback", "imperfect": "Fallback"}


@pytest.fixture(scope="module")
def module() -> IRModule:
    return parse(SOURCE)


@pytest.fixture(scope="module")
def library(module: IRModule) -> Library:
    return build(module, num_threads=2)


@pytest.mark.parametrize(
    "name",
    [
        "triangle",
        "until",
        "ifelse",
        "lets",
        "scatter",
        "histogram",
        "scan",
        "scan_opaque",
        "nested_blocks",
        "imperfect",
        "int32loop",
    ],
)
def test_it_computes_what_it_says(name: str, module: IRModule, library: Library) -> None:
    func = module[name]
    assert isinstance(func, PrimFunc)
    check_meaning(func, rule=RULES.get(name, "Elementwise"))
    arguments = random_arguments(func, {})
    expected = run(func, arguments)
    library[name](*arguments)
    for got, want in zip(arguments[-len(expected) :], expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
