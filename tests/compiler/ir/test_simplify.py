"""Simplifications and proofs, and expressions that must not be simplified."""

from __future__ import annotations

import pytest

from mlc_compiler.ir.expr import BinaryOp, Cast, IntImm, Let, Not, PrimExpr, Select, Var, const, maximum, minimum
from mlc_compiler.ir.simplify import Analyzer, simplify
from mlc_compiler.script import script
from mlc_compiler.tir.nodes import buffer

n, m, h = Var("n"), Var("m"), Var("h")
i, j, k, f = Var("i"), Var("j"), Var("k"), Var("f")
i32, j32 = Var("i32", "int32"), Var("j32", "int32")


def _op(op, a, b):
    return BinaryOp(op, a, const(b, a.dtype) if isinstance(b, int) else b)


CANCEL = [
    ((i // 4) * 4 + i % 4, i, {}),
    (i % 4 + (i // 4) * 4 - i, IntImm(0), {}),
    ((i * 8 + j) // 8, i, {i: 100, j: 8}),
    ((i * 8 + j) % 8, j, {i: 100, j: 8}),
    ((i * 8 + j) // 2 % 4, j // 2, {i: 100, j: 8}),
    ((i * 16 + j * 4 + k) // 4 % 4, j, {i: n, j: 4, k: 4}),
    ((f // 12) * 12 + f // 4 % 3 * 4 + f % 4, f, {f: n}),
    (i // 196 * 3136 + (i * 16 + j) // 56 % 56 * 56 + (i * 16 + j) % 56, i * 16 + j, {i: n, j: 16}),
    ((i * m + j) // m, i, {i: n, j: m}),
    ((i * m + j) % m, j, {i: n, j: m}),
    (((i * n + j) * h + k) // h % n, j, {i: m, j: n, k: h}),
    (((i * n + j) * h + k) // (n * h), i, {i: m, j: n, k: h}),
    ((i * (n + 1) + j) // (n + 1), i, {i: m, j: n + 1}),
    ((f // m) * m + f % m, f, {f: n * m}),
    ((i * 4 * m + j * m + k) // m, i * 4 + j, {i: n, j: 4, k: m}),
    ((i * m - 1) // m + k * 0, (i * m - 1) // m, {i: n}),
    ((i * m - 1) // m + k, i + k - 1, {i: n, k: m}),
    (n * 4 // 4, n, {}),
    ((n * 4 + 3) // 4, n, {}),
    ((n + 8) // 4 - n // 4, IntImm(2), {}),
    (i // 4 // 3, i // 12, {}),
    (_op(">>", i, 2) * 4 + _op("&", i, 3), i, {}),
    (_op("<<", i, 3) // 8, i, {}),
    (minimum(i + 1, i + 3), i + 1, {}),
    (maximum(n - 4, n) - n, IntImm(0), {}),
    (minimum(16, 4 * i + 4), i * 4 + 4, {i: 4}),
    (minimum(n, m) + 0 - minimum(n, m), IntImm(0), {}),
    (Select(i < 4, j, k), j, {i: 4}),
    (Select(n < 3, j + i, i + j), j + i, {}),
    (_op("//", i * -4, -4), i, {}),
    (_op("%", i * 6, -3), IntImm(0), {}),
    ((n - i) * 3 + i * 3, n * 3, {}),
    ((n + 1) * (n - 1) - n * n, IntImm(-1), {}),
    (Cast("int64", i32 * 8 + j32) // 8, Cast("int64", i32), {i32: IntImm(9, "int32"), j32: IntImm(8, "int32")}),
    (i % 1 + 0 % n, IntImm(0), {}),
]


@pytest.mark.parametrize(("expr", "wanted", "ranges"), CANCEL, ids=[script(c[0]) for c in CANCEL])
def test_cancels(expr, wanted, ranges):
    assert script(simplify(expr, ranges)) == script(wanted)


HOLDS = [
    (i * 4 + j < n, {i: n // 4, j: 4}),
    (i * 12 + j < n // 12 * 12, {i: n // 12, j: 12}),
    (n - i * 4 >= 1, {i: (n + 3) // 4}),
    (minimum(n - i * 4, 4) <= 4, {i: n}),
    (minimum(n - i * 4, 4) >= 1, {i: (n + 3) // 4}),
    (i * m + j < n * m, {i: n, j: m}),
    ((i * m + j) * h + k < n * m * h, {i: n, j: m, k: h}),
    (i * m + j < n, {i: n // m, j: m}),
    (f % m < m, {f: n * m}),
    (f // m < n, {f: n * m}),
    (f // 4 < n, {f: n * 4}),
    (f // 4 // n == 0, {f: n * 4}),
    (n - 1 >= (i + 2) // 3, {i: n * 3 - 4}),
    (n // 12 * 12 <= n // 4 * 4, {}),
    (n >= 1, {i: n}),
    (n * m >= n, {i: n, j: m}),
    (maximum(n, 4) - 4 >= 0, {}),
    ((i + 3) // 4 * 4 < n + 4, {i: n}),
    (i != n, {i: n}),
    (Not(i >= n), {i: n}),
    (_op("and", i < n, i >= 0), {i: n}),
    (_op("or", n < 0, i < 8), {i: 8}),
    (i + j <= n - 1, {i: n, j: n - i}),
    (Select(i < 4, j, k) <= 3, {i: 9, j: 4, k: 3}),
    (i - i // 3 * 3 <= 2, {}),
]


@pytest.mark.parametrize(("condition", "ranges"), HOLDS, ids=[script(c[0]) for c in HOLDS])
def test_proves(condition, ranges):
    used = BinaryOp("and", condition, _inside(ranges))
    assert Analyzer(ranges).prove(used)


def _inside(ranges):
    """A true condition that uses the variables of ``ranges``: it is evaluated inside their loops."""
    condition = const(1, "bool")
    for var in ranges:
        condition = BinaryOp("and", condition, BinaryOp(">=", var, const(0, var.dtype)))
    return condition


UNKNOWN = [
    (i * 4 + j < n, {i: (n + 3) // 4, j: 4}),
    (n >= 1, {}),
    (n // m * m == n, {}),
    (n - 1 >= (i + 2) // 3, {i: n * 3 - 1}),
    (n < m, {}),
    (i // m * m + i % m == i, {}),
    (minimum(n, m) == n, {}),
    (i32 >= 0, {}),
]


@pytest.mark.parametrize(("condition", "ranges"), UNKNOWN, ids=[script(c[0]) for c in UNKNOWN])
def test_does_not_simplify(condition, ranges):
    assert Analyzer(ranges).truth(condition) is None


def test_loops_bound_sizes_only_inside_of_them():
    analyzer = Analyzer({i: n})
    assert analyzer.prove(BinaryOp("and", n >= 1, i >= 0))
    assert not analyzer.prove(n >= 1)


def test_a_later_range_changes_earlier_results():
    analyzer = Analyzer({i: n})
    assert not analyzer.prove(i < 8) and not analyzer.prove(j < 4) and analyzer.truth(m >= 3) is None
    assert script(analyzer.simplify((i + j) // 8)) == "(i + j) // 8"
    analyzer.bind(n, 9)  # the extent of i
    analyzer.bind(j, 4)
    analyzer.let(m, n + 3)
    assert analyzer.prove(i < 8) and analyzer.prove(j < 4) and analyzer.prove(m >= 3)
    analyzer.bind(j, 1)
    assert script(analyzer.simplify((i + j) // 8)) == "0"


DATA = buffer("data", (8,), "int32")
WIDE = buffer("wide", (8,), "int64")
BYTE = buffer("byte", (8,), "uint8")


def test_data_may_wrap_around():
    x, y = DATA[0], WIDE[0]
    two = const(2, "int32")
    assert script(simplify(x * two // two)) == "data[0] * 2 // 2".replace("2", "T.int32(2)")
    assert Analyzer().truth(x < x + const(1, "int32")) is None
    assert Analyzer().truth(y < y + 1) is None
    assert Analyzer().prove((y + 1) * 3 == y * 3 + 3)
    assert script(simplify(x + two - x)) == "T.int32(2)"


def test_data_of_narrow_types_does_not_wrap_around():
    x, b = Cast("int64", DATA[0]), Cast("int64", BYTE[0])
    assert script(simplify(x * 2 // 2)) == script(x)
    assert Analyzer().prove(x < x + 1)
    assert Analyzer().prove(b * 2 + 1 <= 511)
    assert Analyzer().prove(b >= 0)
    assert Analyzer().truth(x >= 0) is None


def test_a_let_variable_is_not_a_size():
    v, w = Var("v"), Var("w")
    expr = Let(v, WIDE[0], Select(v >= 0, v, -v))
    assert script(simplify(expr)) == script(expr)
    shifted = Let(w, Cast("int64", BYTE[0]) - 1, Select(w >= -1, w, const(0, "int64")))
    assert ">=" not in script(simplify(shifted))


def test_constants_wrap_around_too():
    x = buffer("x", (1,), "int8")[0]
    assert script(simplify(x * const(100, "int8") * const(3, "int8"))) == "x[0] * T.int8(44)"


def test_large_expressions_terminate():
    deep = i
    for level in range(40):
        deep = minimum(deep // 2 + n, maximum(deep % 7, m + level)) * 2 - deep // 3
        if level > 4:
            deep = Var("next") + deep // 5 if level % 7 == 0 else minimum(deep - 1, n)
        if len(script(deep)) > 4000:
            break
    assert simplify(deep).dtype == "int64"
    variables = [Var(f"v{x}") for x in range(12)]
    flat = sum((v * (2 + x) for x, v in enumerate(variables)), start=IntImm(0))
    total = sum((n + x) * (1 + x) for x in range(12))
    analyzer = Analyzer({v: n + x for x, v in enumerate(variables)})
    assert analyzer.prove(flat < total * 14)


def test_nested_selects_take_linear_time() -> None:
    expr: PrimExpr = const(-1, "int32")
    for number in range(100):
        expr = Select(n == number, const(number * number, "int32"), expr)
    assert repr(simplify(expr)) == repr(expr)
