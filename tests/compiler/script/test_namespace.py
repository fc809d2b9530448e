"""TVMScript as decorated Python, which can use the values of surrounding variables."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mlc_compiler.interp import run_function, run_prim_func
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import I, R, ScriptError, T, script
from mlc_compiler.tir.nodes import PrimFunc

ROWS = 3


def scale_kernel(width: int, factor: float, square: bool) -> PrimFunc:
    @T.prim_func
    def scale(A: T.Buffer((ROWS, width), "float32"), B: T.Buffer((ROWS, width), "float32")):
        for i, j in T.grid(ROWS, width):
            with T.block("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                if square:
                    B[vi, vj] = A[vi, vj] * A[vi, vj] * factor
                else:
                    B[vi, vj] = A[vi, vj] * factor

    return scale


def test_functions_take_values_of_the_surrounding_code() -> None:
    kernel = scale_kernel(5, 0.5, square=True)
    a = np.arange(15, dtype=np.float32).reshape(ROWS, 5)
    out = np.empty_like(a)
    run_prim_func(kernel, a, out)
    np.testing.assert_array_equal(out, a * a * np.float32(0.5))
    assert kernel.attrs == {"global_symbol": "scale"}
    assert "B[vi, vj] = A[vi, vj] * T.float32(2.0)" in script(scale_kernel(1, 2.0, square=False))


def test_modules_refer_to_their_functions() -> None:
    half = 4

    @I.ir_module
    class Module:
        I.module_attrs({"version": 1})

        @T.prim_func(private=True)
        def double(var_a: T.handle, var_b: T.handle):
            n = T.int64()
            a = T.match_buffer(var_a, (n, half))
            b = T.match_buffer(var_b, (n, half))
            for i, j in T.grid(n, half):
                b[i, j] = a[i, j] * 2.0

        @R.function
        def main(x: R.Tensor(("n", half), dtype="float32")) -> R.Tensor(("n", half), dtype="float32"):
            n = T.int64()
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((n, half), dtype="float32"))
                z = R.add(y, x)
                R.output(z)
            return z

    assert isinstance(Module, IRModule) and Module.attrs == {"version": 1}
    assert "global_symbol" not in Module["double"].attrs
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(run_function(Module, "main", x), x * 3)


def test_errors_name_the_file_and_the_real_line() -> None:
    line = sys._getframe().f_lineno
    with pytest.raises(ScriptError) as caught:

        @R.function
        def main(x: R.Tensor((2,), dtype="float32")):
            return R.add(x, missing)  # noqa: F821

    assert caught.value.message == "unknown name 'missing'"
    assert caught.value.where[0] == f"{__file__}, line {line + 5}, column 29"


def test_only_plain_values_can_be_used() -> None:
    array = object()
    with pytest.raises(ScriptError, match="'array' is a object; expected a number, string or tuple"):

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = array


def test_a_namespace_may_have_another_name() -> None:
    tensor = T

    @tensor.prim_func
    def f(A: tensor.Buffer((4,), "float32")):
        for i in tensor.serial(4):
            A[i] = tensor.exp(A[i])

    a = np.zeros(4, np.float32)
    run_prim_func(f, a)
    assert a.tolist() == [1.0] * 4
