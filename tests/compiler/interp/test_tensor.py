"""The interpreter on tensor functions: loops and blocks, arithmetic of every dtype, errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.interp import InterpreterError, run_prim_func
from mlc_compiler.interp.tensor import compile_prim_func
from mlc_compiler.script import parse


def run(text: str, *args: Any) -> None:
    run_prim_func(parse(text), *args)


MATMUL = """
@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    n, = T.int64(),
    A = T.match_buffer(a, ("n", 6), "float32")
    B = T.match_buffer(b, (6, "m"), "float32")
    C = T.match_buffer(c, ("n", "m"), "float32")
    for i_0 in T.parallel((C.shape[0] + 3) // 4):
        for k, i_1 in T.grid(6, 4):
            for j in T.vectorized(C.shape[1]):
                with T.block("C"):
                    vi = T.axis.spatial(C.shape[0], i_0 * 4 + i_1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    T.where(i_0 * 4 + i_1 < C.shape[0])
                    with T.init():
                        C[vi, vj] = 0.0
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
MATMUL = MATMUL.replace("    n, = T.int64(),\n", "")


@pytest.mark.parametrize(("n", "m"), [(4, 3), (7, 5), (1, 1), (0, 2)])
def test_blocks_with_init_and_predicate_over_symbolic_sizes(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.integers(-9, 9, (n, 6)).astype("float32"), rng.integers(-9, 9, (6, m)).astype("float32")
    c = np.full((n, m), np.nan, np.float32)
    run(MATMUL, a, b, c)
    np.testing.assert_array_equal(c, a @ b)


ROW_SUMS = """
@T.prim_func
def row_sums(a: T.handle, C: T.Buffer((3,), "float32")):
    m = T.int64()
    A = T.match_buffer(a, (3, m), "float32")
    for k_0 in range((m + 3) // 4):
        for i, k_1 in T.grid(3, 4):
            with T.block("C"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(m, k_0 * 4 + k_1)
                T.where(k_0 * 4 + k_1 < m)
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("m", [0, 1, 6])
def test_a_reduction_over_an_empty_axis_is_its_initial_value(m: int) -> None:
    a, c = np.arange(3 * m, dtype=np.float32).reshape(3, m), np.full(3, np.nan, np.float32)
    run(ROW_SUMS, a, c)
    np.testing.assert_array_equal(c, a.sum(1))


def test_every_kind_of_statement() -> None:
    text = """
@T.prim_func
def collatz(A: T.Buffer((5,), "int64"), steps: T.Buffer((5,), "int32")):
    for i in T.thread_binding(5, thread="threadIdx.x"):
        value = T.decl_buffer((1,), "int64", scope="local")
        value[0] = A[i]
        steps[i] = 0
        while value[0] > 1:
            half = value[0] // 2
            if value[0] % 2 == 0:
                value[0] = half
            elif half > 1000000:
                value[0] = 1
            else:
                value[0] = value[0] * 3 + 1
            for unused in T.unroll(1):
                steps[i] += 1
"""
    a, steps = np.array([1, 2, 3, 7, 27]), np.zeros(5, np.int32)
    run(text, a, steps)
    assert steps.tolist() == [0, 1, 7, 16, 111]
    assert a.tolist() == [1, 2, 3, 7, 27]


def test_lets_conditions_and_lazy_choice() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((6,), "float32"), n: T.int64):
    for i in range(6):
        B[i] = T.if_then_else(i < 4, A[i], T.Let(x * x, where={x: T.float32(0.5) * T.Cast("float32", n)}))
"""
    a, b = np.arange(4, dtype=np.float32), np.zeros(6, np.float32)
    run(text, a, b, 6)
    assert b.tolist() == [0, 1, 2, 3, 9, 9]


def element(dtype: str, expression: str, *inputs: Any, result: str | None = None) -> Any:
    """The value of an expression over ``a``, ``b``, … of a dtype."""
    names = "abc"[: len(inputs)]
    params = "".join(f'{n.upper()}: T.Buffer((), "{dtype}"), ' for n in names)
    lets = "".join(f"    {n} = {n.upper()}[()]\n" for n in names)
    out = np.zeros((), _numpy(result or dtype))
    text = f'@T.prim_func\ndef f({params}Out: T.Buffer((), "{result or dtype}")):\n{lets}    Out[()] = {expression}\n'
    run(text, *(np.array(v, _numpy(dtype)) for v in inputs), out)
    return out[()].item()


def _numpy(dtype: str) -> Any:
    return getattr(ml_dtypes, dtype, None) or np.dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "expression", "inputs", "result"),
    [
        ("int8", "a + b", (127, 1), -128),
        ("int8", "a * b", (100, 100), 16),
        ("uint8", "a - b", (1, 2), 255),
        ("int32", "a * b", (1 << 30, 4), 0),
        ("int64", "a * a + b", ((1 << 62) + 1, 5), 6 - (1 << 63)),
        ("uint32", "(a + b) // 2", ((1 << 32) - 1, 3), 1),
        ("int4", "a + b", (7, 1), -8),
        ("int32", "a // b", (-7, 2), -4),
        ("int32", "a % b", (-7, 2), 1),
        ("int32", "a % b", (7, -2), -1),
        ("int32", "T.Div(a, b)", (-7, 2), -3),
        ("int8", "a << b", (3, 6), -64),
        ("int8", "a >> b", (-128, 3), -16),
        ("uint8", "a >> b", (128, 3), 16),
        ("uint8", "a & b | (a ^ 1)", (6, 3), 7),
        ("int32", "T.max(a, b) - T.min(a, b)", (-3, 4), 7),
        ("int32", "T.abs(a)", (-3,), 3),
        ("uint32", "T.popcount(a)", (0xFF00FF,), 16),
        ("float32", "a + b", (16777216.0, 1.0), 16777216.0),
        ("float32", "a * b", (1e30, 1e30), float("inf")),
        ("float32", "a / b", (1.0, 0.0), float("inf")),
        ("float32", "a / b", (1.0, 3.0), float(np.float32(1) / np.float32(3))),
        ("float16", "a + b", (2048.0, 1.0), 2048.0),
        ("float16", "a * b", (300.0, 300.0), float("inf")),
        ("bfloat16", "a + b", (256.0, 1.0), 256.0),
        ("bfloat16", "a * b", (1.0078125, 1.0078125), 1.015625),
        ("float8_e4m3fn", "a + b", (16.0, 1.0), 16.0),
        ("float8_e5m2", "a * b", (3.0, 2.5), 8.0),
        ("float64", "a / b", (1.0, 3.0), 1 / 3),
        ("float32", "T.max(a, b)", (float("nan"), 2.0), 2.0),
        ("float32", "T.Select(a < b, a, b)", (1.0, 2.0), 1.0),
        ("float32", "T.exp(a)", (1.0,), float(np.float32(np.e))),
        ("float32", "T.rsqrt(a)", (4.0,), 0.5),
        ("float32", "T.sigmoid(a)", (0.0,), 0.5),
        ("float32", "T.erf(a)", (1e3,), 1.0),
        ("float32", "T.round(a)", (2.5,), 2.0),
        ("float32", "T.floor(a)", (-2.5,), -3.0),
        ("float32", "T.pow(a, b)", (2.0, 10.0), 1024.0),
        ("float16", "T.exp(a)", (12.0,), float("inf")),
        ("bool", "a and not b or b", (True, False), True),
    ],
)
def test_arithmetic_of_every_dtype(dtype: str, expression: str, inputs: tuple[Any, ...], result: Any) -> None:
    assert element(dtype, expression, *inputs) == result


@pytest.mark.parametrize(
    ("source", "target", "value", "result"),
    [
        ("float32", "int32", -2.9, -2),
        ("float32", "int8", 300.0, 127),
        ("float32", "uint8", -1.0, 0),
        ("float32", "int32", float("nan"), 0),
        ("float32", "int64", float("inf"), (1 << 63) - 1),
        ("float32", "float16", 65520.0, float("inf")),
        ("float32", "bfloat16", 1.00390625, 1.0),
        ("float32", "bfloat16", 1.01171875, 1.015625),
        ("float64", "float32", 1 / 3, float(np.float32(1 / 3))),
        ("bfloat16", "float32", 1.5, 1.5),
        ("int64", "float32", (1 << 24) + 1, 16777216.0),
        ("int64", "float32", (1 << 60) + (1 << 36) + 1, float((1 << 60) + (1 << 37))),
        ("int32", "int8", 200, -56),
        ("int8", "uint32", -1, (1 << 32) - 1),
        ("int32", "bool", 2, True),
        ("float32", "bool", 0.0, False),
        ("bool", "float32", True, 1.0),
        ("float32", "float8_e4m3fn", 17.0, 16.0),
    ],
)
def test_conversions(source: str, target: str, value: Any, result: Any) -> None:
    assert element(source, f'T.Cast("{target}", a)', value, result=target) == result


def test_predicates_and_bits() -> None:
    assert element("float32", "T.isnan(a) and not T.isinf(a)", float("nan"), result="bool") is True
    assert element("float32", 'T.reinterpret("int32", a)', 1.0, result="int32") == 0x3F800000
    assert element("int32", 'T.reinterpret("float32", a)', 0x40490FDB, result="float32") == float(np.float32(np.pi))


def test_in_place_and_the_same_array_twice() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(3):
        B[i + 1] = A[i] + 1.0
"""
    x = np.zeros(4, np.float32)
    run(text, x, x)
    assert x.tolist() == [0, 1, 2, 3]


ACCESS = """
@T.prim_func
def f(A: T.Buffer(("n", 4), "float32"), k: T.int64):
    local = T.decl_buffer((4,), "float32", scope="local")
    {}
"""


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("A[k, 0] = 1.0", r"index \[3, 0\] of buffer 'A' is outside its shape \[3, 4\]"),
        ("A[0, -k] = 1.0", r"index \[0, -3\] of buffer 'A' is outside"),
        ("A[0, 0] = local[k]", r"buffer 'local' is read at \[3\] before anything is written there"),
        ("A[0, 0] = T.Select(k < 2, A[k, 0], T.float32(0))", r"index \[3, 0\] of buffer 'A'"),
        ("A[0, 0] = T.Cast('float32', k // (k - 3))", "integer arithmetic failed: integer (division|modulo)"),
    ],
)
def test_wrong_accesses_are_errors(statement: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        run(ACCESS.format(statement), np.zeros((3, 4), np.float32), 3)


def test_local_memory_is_new_in_every_run_of_its_block() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((2,), "float32")):
    for i in range(2):
        with T.block("b"):
            vi = T.axis.spatial(2, i)
            local = T.alloc_buffer((1,), "float32")
            if vi == 0:
                local[0] = 1.0
            A[vi] = local[0]
"""
    with pytest.raises(InterpreterError, match="buffer 'local' is read at"):
        run(text, np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "got 0 arguments; expected 2"),
        ((np.zeros((3, 4)), 0), "argument 'A': got an array of float64; expected an array of float32"),
        (([1.0], 0), "argument 'A': got a list"),
        ((np.zeros((3, 4, 1), np.float32), 0), "argument 'A': got rank 3; expected 2"),
        ((np.zeros((3, 5), np.float32), 0), "argument 'A': got size 5 on axis 1; expected 4"),
    ],
)
def test_arguments_are_checked(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        run(ACCESS.format("A[0, 0] = 1.0"), *args)


def test_a_size_must_be_the_same_everywhere() -> None:
    text = '@T.prim_func\ndef f(A: T.Buffer(("n",), "int8"), B: T.Buffer(("n * 2",), "int8")):\n    B[0] = A[0]\n'
    text = text.replace('B: T.Buffer(("n * 2",), "int8")', "b: T.handle").replace(
        "    B[0]", '    B = T.match_buffer(b, (A.shape[0] * 2,), "int8")\n    B[0]'
    )
    run(text, np.ones(2, np.int8), np.ones(4, np.int8))
    with pytest.raises(InterpreterError, match="argument 'B': got size 5 on axis 0; expected 4"):
        run(text, np.ones(2, np.int8), np.ones(5, np.int8))


def test_unknown_functions_and_free_variables() -> None:
    with pytest.raises(InterpreterError, match="the function 'vpdpbusd' of int32 has no meaning here"):
        run("@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(T.call_intrin('int32', 'vpdpbusd', n))\n", 1)
    with pytest.raises(InterpreterError, match="variable 'n' is used where nothing defines it"):
        run(
            "@T.prim_func\ndef f(A: T.Buffer((2,), 'int64')):\n    n = T.int64()\n    A[0] = n\n", np.zeros(2, np.int64)
        )


def test_expressions_may_be_long_and_lets_deep() -> None:
    terms = " + ".join(["a"] * 400)
    assert element("float32", terms, 1.0) == 400.0
    assert element("int32", terms, 1) == 400
    deep = "x0"
    for i in range(90):
        deep = f"T.Let({deep}, where={{x{i}: x{i + 1} + T.float32(1)}})"
    assert element("float32", f"T.Let({deep}, where={{x90: a}})", 1.0) == 91.0


def test_the_python_of_a_function_can_be_read() -> None:
    func = parse(
        '@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    for i in range(4):\n        A[i] = A[i] * 2.0\n'
    )
    lines = compile_prim_func(func).source.splitlines()
    assert [line.strip() for line in lines[-2:]] == [
        "for i_2 in range((4)):",
        "store_A_1((load_A_1(i_2) * constant_2), i_2)",
    ]
