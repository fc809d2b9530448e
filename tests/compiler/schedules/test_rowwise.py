"""The rules RowReduction, Elementwise and Fallback."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler.ir.expr import ExprLike
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.script import parse
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PARALLEL, UNROLLED, For, PrimFunc
from tests.compiler.schedules.meaning import AVX2, AVX512, check_meaning, lowered, random_arguments, run, scheduled

N, M = Size("n"), Size("m")
Shape = tuple[ExprLike, ...]


def unary(name: str, shape: Shape, dtype: str = "float32", **attrs: object) -> PrimFunc:
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, get_operator(name).te(x, **attrs)])


def normalization(name: str, shape: Shape) -> PrimFunc:
    """The norm of x plus a residual, with a scale for each element of a row."""
    x, residual = te.placeholder(shape, name="x"), te.placeholder(shape, name="residual")
    weights = [te.placeholder(shape[-1:], name=n) for n in (("g", "b") if name == "nn.layer_norm" else ("g",))]
    result = get_operator(name).te(x + residual, *weights, axes=(-1,), epsilon=1e-5)
    return te.create_prim_func([x, residual, *weights, result])


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", ["nn.rms_norm", "nn.layer_norm"])
@pytest.mark.parametrize("shape", [(N, 20), (2, N, 33), (1, N, 4, 4), (1, 576), (N, 1), (N, M)], ids=str)
def test_normalizations(name: str, shape: Shape, to: object) -> None:
    check_meaning(normalization(name, shape), {"n": 3, "m": 7}, to, rule="RowReduction")


@pytest.mark.parametrize("shape", [(N, 20), (2, N, M), (3, 1003)], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_softmax(shape: Shape, rows: int) -> None:
    check_meaning(unary("nn.softmax", shape, axis=-1), {"n": rows, "m": 9}, rule="RowReduction")


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), None])
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_reductions_of_any_axis(name: str, axis: object) -> None:
    for keepdims in (False, True):
        check_meaning(unary(name, (2, N, 20), axis=axis, keepdims=keepdims), {"n": 3})


def test_softmax_over_an_axis_that_is_not_the_last() -> None:
    check_meaning(unary("nn.softmax", (N, 20), axis=0), {"n": 5})


def test_reductions_of_vectors() -> None:
    for name in ("sum", "mean", "max", "argmax"):
        check_meaning(unary(name, (M,), axis=-1), {"m": 9})
    check_meaning(normalization("nn.rms_norm", (20,)))
    check_meaning(unary("nn.softmax", (M,), axis=-1), {"m": 9})


@pytest.mark.parametrize(("name", "expected"), [("sum", 0), ("max", -np.inf), ("min", np.inf), ("mean", np.nan)])
def test_reductions_over_nothing(name: str, expected: float) -> None:
    """A reduction over an empty axis gives the identity element."""
    for axis in (0, 1):
        func = unary(name, (N, M), axis=axis)
        arguments = random_arguments(func, {"n": 3 * axis, "m": 3 - 3 * axis})
        (result,) = run(lowered(scheduled(func)), arguments)
        np.testing.assert_array_equal(result, np.full(3, expected, np.float32))


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "argmin"])
@pytest.mark.parametrize("shape", [(N, 33), (2, N, 3, 64), (N, 100)], ids=str)
def test_reductions_of_long_rows(name: str, shape: Shape, to: object) -> None:
    check_meaning(unary(name, shape, axis=-1), {"n": 3}, to, rule="RowReduction")


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmax"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_to_one_element(name: str, keepdims: bool, to: object) -> None:
    for shape in ((3, 64, 16), (1536,)):
        check_meaning(unary(name, shape, axis=None, keepdims=keepdims), {}, to, rule="WholeReduction")


@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("shape", [(2, 6, 14, 14), (1, 4, 5, 7), (N, 4, 5, 48)], ids=str)
def test_group_norms(shape: Shape, to: object) -> None:
    x, *weights = te.placeholder(shape, name="x"), *(te.placeholder(shape[1:2], name=n) for n in "gb")
    result = get_operator("nn.group_norm").te(x, *weights, num_groups=2, channel_axis=1, axes=(2, 3))
    check_meaning(te.create_prim_func([x, *weights, result]), {"n": 3}, to, rule="WideReduction")


def test_one_element_of_a_size_that_fills_no_vectors() -> None:
    check_meaning(unary("max", (3, 7, 51), axis=None), {})


def test_argmax_and_prefix_sums() -> None:
    check_meaning(unary("argmax", (N, 20), axis=-1), {"n": 3}, rule="RowReduction")
    check_meaning(unary("argmax", (N, 12), axis=-1), {"n": 3}, rule="Fallback")
    check_meaning(unary("cumsum", (N, 20), axis=-1), {"n": 3}, rule="Elementwise")


def test_reductions_of_different_axes() -> None:
    x = te.placeholder((N, 20), name="x")
    rows, columns = (get_operator("sum").te(x, axis=a, keepdims=True) for a in (-1, 0))
    y = te.elementwise("y", lambda a, b, c: a + b * c, x, rows, columns)
    check_meaning(te.create_prim_func([x, y]), {"n": 3})


def test_the_reduced_rows_are_a_result_too() -> None:
    x, gain = te.placeholder((N, 20), name="x"), te.placeholder((20,), name="gain")
    doubled = x + x
    norm = get_operator("nn.rms_norm").te(doubled, gain, axes=(-1,), epsilon=1e-5)
    check_meaning(te.create_prim_func([x, gain, doubled, norm]), {"n": 3})
    check_meaning(te.create_prim_func([x, gain, norm + doubled]), {"n": 3}, rule="RowReduction")


@pytest.mark.parametrize("shape", [(), (1,), (7,), (N, 20), (N, M), (2, N, 33), (1003,)], ids=str)
@pytest.mark.parametrize("to", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_elementwise_chains(shape: Shape, to: object) -> None:
    x = te.placeholder(shape, name="x")
    y = get_operator("nn.silu").te(get_operator("exp").te(x))
    check_meaning(te.create_prim_func([x, y]), {"n": 3, "m": 5}, to, rule="Elementwise")


@pytest.mark.parametrize(
    ("shape", "axes", "squares"),
    [
        ((16, 24), (1, 0), True),
        ((9, 17), (1, 0), True),
        ((3, 10, N, 11), (2, 3, 0, 1), True),
        ((10, N, 12), (2, 1, 0), True),
        ((N, 16), (1, 0), False),
        ((7, 16), (1, 0), False),
        ((16, 2, 24), (1, 0, 2), False),
    ],
)
def test_transpositions(shape: Shape, axes: tuple[int, ...], squares: bool) -> None:
    func = unary("permute_dims", shape, axes=axes)
    result = check_meaning(func, {"n": 3}, rule="Elementwise")
    kinds = [n.kind for n in walk(result.body) if isinstance(n, For)]
    assert (UNROLLED in kinds) is squares


def test_gathers_and_masks() -> None:
    table, ids = te.placeholder((11, 20), name="table"), te.placeholder((N,), "int32", "ids")
    taken = get_operator("take").te(table, ids, axis=0)
    check_meaning(te.create_prim_func([table, ids, taken]), {"n": 3}, rule="Elementwise")
    shifted = te.compute((N, 20), lambda i, j: te.if_then_else(j > 0, table[i, te.max(j - 1, 0)], 0.0), name="shifted")
    check_meaning(te.create_prim_func([table, shifted, ids]), {"n": 3}, rule="Elementwise")


def test_results_of_different_shapes() -> None:
    x = te.placeholder((N, 20), name="x")
    doubled = x + x
    reversed_rows = te.compute((N, 20), lambda i, j: doubled[N - 1 - i, j] + 1.0, name="reversed_rows")
    first = te.compute((7,), lambda i: doubled[0, i], name="first")
    check_meaning(te.create_prim_func([x, doubled, reversed_rows, first]), {"n": 3}, rule="Elementwise")


SCATTER = """
@T.prim_func
def scatter(var_x: T.handle, var_rows: T.handle, table: T.Buffer((8, 20), "float32")):
    T.func_attr({"num_outputs": 1})
    n = T.int64()
    x = T.match_buffer(var_x, (n, 20), "float32")
    rows = T.match_buffer(var_rows, (n,), "int64")
    doubled = T.alloc_buffer((n, 20), "float32")
    for i, j in T.grid(8, 20):
        with T.block("clear"):
            vi, vj = T.axis.remap("SS", [i, j])
            table[vi, vj] = T.float32(0)
    for i, j in T.grid(n, 20):
        with T.block("doubled"):
            vi, vj = T.axis.remap("SS", [i, j])
            doubled[vi, vj] = x[vi, vj] + x[vi, vj]
    for i, j in T.grid(n, 20):
        with T.block("put"):
            vi, vj = T.axis.remap("SS", [i, j])
            table[rows[vi], vj] = doubled[vi, vj]
"""


def test_nests_that_scatter() -> None:
    func = parse(SCATTER)
    assert isinstance(func, PrimFunc)
    check_meaning(func, {"n": 1}, rule="Elementwise")


def test_rows_are_divided_over_the_team() -> None:
    checks: list[Callable[[], PrimFunc]] = [
        lambda: check_meaning(normalization("nn.rms_norm", (2, N, 20)), {"n": 3}),
        lambda: check_meaning(unary("sum", (N, 20), axis=-1), {"n": 3}),
        lambda: check_meaning(unary("exp", (N, 20)), {"n": 3}),
    ]
    for check in checks:
        assert any(isinstance(n, For) and n.kind == PARALLEL for n in walk(check().body))
