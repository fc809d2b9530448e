"""The interpreter on graph functions: calls of every kind, symbolic sizes, errors."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import InterpreterError, run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import parse

KERNELS = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def outer(a: T.handle, b: T.handle, s: T.handle, d: T.handle, k: T.int64):
        n = T.int64()
        m = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (m,), "float32")
        S = T.match_buffer(s, (n, m), "float32")
        D = T.match_buffer(d, (m,), "int64")
        for i, j in T.grid(n, m):
            S[i, j] = A[i] * B[j]
            D[j] = k

    @T.prim_func(private=True)
    def append(c: T.handle, X: T.Buffer((1,), "float32"), at: T.int64):
        n = T.int64()
        C = T.match_buffer(c, (n,), "float32")
        C[at] = X[0]

    @R.function
    def square(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        with R.dataflow():
            y = R.multiply(x, x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(("n",), dtype="float32"), t: R.Tuple(R.Tensor(("m",), dtype="float32"), R.Shape(["k"]))):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        cls = Module
        a: R.Tensor((n,), dtype="float32") = cls.square(x)
        b = t[0]
        c = R.call_tir(cls.outer, (a, b), out_sinfo=[R.Tensor((n, m), "float32"), R.Tensor((m,), "int64")],
                       tir_vars=R.shape([k * 2]))
        d: R.Tensor((n, m), dtype="float32") = c[0]
        e = R.sum(d, axis=[0])
        return (e, c[1], R.shape([n + m]), R.prim_value(k))

    @R.function
    def cache(c: R.Tensor(("n",), dtype="float32"), x: R.Tensor((1,), dtype="float32"), at: R.Shape(["p"])):
        n = T.int64()
        p = T.int64()
        cls = Module
        r = R.call_tir_inplace(cls.append, (c, x), out_sinfo=R.Tensor((n,), "float32"), inplace_indices=[0],
                               tir_vars=R.shape([p]))
        return r

    @R.function
    def extern(x: R.Tensor(("n",), dtype="float32")):
        n = T.int64()
        y = R.call_dps_packed("my.scale", (x,), out_sinfo=R.Tensor((n,), "float32"))
        z: R.Tensor((n,), dtype="float32") = R.call_packed("my.negate", y, sinfo_args=R.Tensor((n,), "float32"))
        return z

    @R.function
    def cast(x: R.Tensor(("n",), dtype="float32")):
        half = T.int64()
        y = R.match_cast(x, R.Tensor((half, ), dtype="float32"))
        return R.shape([half * 3])
"""


@pytest.fixture(scope="module")
def mod() -> IRModule:
    return parse(KERNELS)


def test_calls_tuples_and_symbolic_sizes(mod: IRModule) -> None:
    x, b = np.array([1, 2, 3], np.float32), np.array([1, 10], np.float32)
    e, d, shape, k = run_function(mod, "main", x, (b, (7,)))
    assert e.tolist() == [14.0, 140.0]
    assert d.tolist() == [14, 14] and d.dtype == np.int64
    assert (shape, k) == ((5,), 7)


def test_in_place_calls_overwrite_their_argument(mod: IRModule) -> None:
    cache = np.zeros(3, np.float32)
    result = run_function(mod, "cache", cache, np.array([5], np.float32), (1,))
    assert result is cache and cache.tolist() == [0, 5, 0]


def test_functions_given_from_python(mod: IRModule) -> None:
    def scale(x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, 3, out=out)

    externs = {"my.scale": scale, "my.negate": np.negative}
    assert run_function(mod, "extern", np.array([1, 2], np.float32), externs=externs).tolist() == [-3, -6]
    with pytest.raises(InterpreterError, match=r"the function 'my\.scale' is not given; got none") as caught:
        run_function(mod, "extern", np.array([1, 2], np.float32))
    assert caught.value.where == ("extern: y",)


def test_match_cast_names_a_size(mod: IRModule) -> None:
    assert run_function(mod, "cast", np.zeros(5, np.float32)) == (15,)


def test_tensor_functions_of_a_module_run_in_place(mod: IRModule) -> None:
    cache = np.zeros(2, np.float32)
    assert run_function(mod, "append", cache, np.ones(1, np.float32), 1) is None
    assert cache.tolist() == [0, 1]


def test_arguments_are_checked(mod: IRModule) -> None:
    with pytest.raises(InterpreterError, match="square: got 0 arguments; expected 1"):
        run_function(mod, "square")
    with pytest.raises(
        InterpreterError, match="square: argument 'x': got an array of int64; expected an array of float32"
    ):
        run_function(mod, "square", np.zeros(3, np.int64))
    with pytest.raises(InterpreterError, match=r"main: argument 't': expected a tuple of 2"):
        run_function(mod, "main", np.zeros(3, np.float32), (np.zeros(3, np.float32),))


def test_an_error_inside_a_kernel_names_the_binding(mod: IRModule) -> None:
    with pytest.raises(InterpreterError, match=r"index \[4\] of buffer 'C' is outside its shape \[3\]") as caught:
        run_function(mod, "cache", np.zeros(3, np.float32), np.ones(1, np.float32), (4,))
    assert caught.value.where == ("cache: r",)


def test_a_mismatched_result_is_an_error() -> None:
    text = """
@R.function
def f(x: R.Tensor(("n",), dtype="float32")):
    n = T.int64()
    y = R.call_packed("g", x, sinfo_args=R.Tensor((n,), "float32"))
    return y
"""
    wrong = IRModule({"f": parse(text)})
    with pytest.raises(InterpreterError, match="f: 'y': got size 1 on axis 0; expected n = 3"):
        run_function(wrong, "f", np.zeros(3, np.float32), externs={"g": lambda x: x[:1]})


def test_operators_over_attributes_constants_and_tuples() -> None:
    text = """
@R.function
def f(x: R.Tensor((2, 3), dtype="float32"), i: R.Tensor((2,), dtype="int32")):
    a = R.concat((x, x), axis=1)
    b = R.take(a, i, axis=1)
    c = R.split(b, 2, axis=1)
    d = R.subtract(c[0], c[1])
    e = R.where(R.greater(d, R.const(0.0)), d, R.const([[100.0], [200.0]], "float32"))
    return R.reshape(e, R.shape([2]))
"""
    x = np.array([[1, 2, 3], [6, 5, 4]], np.float32)
    result = run_function(IRModule({"f": parse(text)}), "f", x, np.array([5, 1], np.int32))
    assert result.tolist() == [1.0, 200.0]
