"""Random integer expressions: simplified forms, proofs and bounds hold for all values of the variables."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.expr import BinaryOp, IntImm, Not, PrimExpr, Select, Var, binary
from mlc_compiler.ir.simplify import Analyzer
from mlc_compiler.script import script
from tests.compiler.ir.brute_force import Domain

N, M = Var("n"), Var("m")
A, J, K = Var("i"), Var("j"), Var("k")
VARIABLES = (N, M, A, J, K)
EXTENTS = [
    {A: IntImm(4), J: IntImm(3), K: IntImm(6)},
    {A: N, J: M, K: IntImm(4)},
    {A: N // 4, J: IntImm(4), K: (N + 3) // 4},
    {A: N * M, J: N + 1, K: M},
    {A: binary("min", N, IntImm(4)), J: A + 1, K: M * 3},
]
SIZES = {N: range(0, 8), M: range(0, 5)}

leaves = st.one_of(st.sampled_from(VARIABLES), st.integers(-13, 13).map(IntImm))


def _arithmetic(inner: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    constants = st.sampled_from([2, 3, 4, 6, 8, 12, -2, -3, 1]).map(IntImm)
    condition = st.builds(BinaryOp, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), inner, inner)
    return st.one_of(
        st.builds(BinaryOp, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.builds(BinaryOp, st.sampled_from(["//", "%", "*"]), inner, constants),
        st.builds(BinaryOp, st.sampled_from(["//", "%"]), inner, inner),
        st.builds(Select, condition, inner, inner),
    )


integers = st.recursive(leaves, _arithmetic, max_leaves=8)
comparisons = st.builds(BinaryOp, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), integers, integers)
conditions = st.recursive(
    comparisons,
    lambda c: st.one_of(st.builds(BinaryOp, st.sampled_from(["and", "or"]), c, c), st.builds(Not, c)),
    max_leaves=3,
)
settled = settings(max_examples=400, deadline=None)


def _size(e: PrimExpr) -> int:
    return len(script(e))


@settled
@given(integers, st.sampled_from(EXTENTS))
def test_simplified_expressions_are_equal(e, extents):
    domain = Domain(SIZES, extents)
    simple = Analyzer(extents).simplify(e)
    assert np.array_equal(*np.broadcast_arrays(domain(e), domain(simple))), f"{script(e)} is not {script(simple)}"


@settled
@given(conditions, st.sampled_from(EXTENTS))
def test_simplified_conditions_are_equal(c, extents):
    domain = Domain(SIZES, extents)
    simple = Analyzer(extents).simplify(c)
    assert np.array_equal(*np.broadcast_arrays(domain(c), domain(simple))), f"{script(c)} is not {script(simple)}"


@settled
@given(conditions, st.sampled_from(EXTENTS))
def test_what_is_proved_holds(c, extents):
    if Analyzer(extents).prove(c):
        assert np.all(Domain(SIZES, extents)(c)), script(c)


@settled
@given(integers, st.sampled_from(EXTENTS))
def test_bounds_hold(e, extents):
    analyzer = Analyzer(extents)
    low, high = analyzer.bounds(analyzer.linear(e))
    values = Domain(SIZES, extents)(e)
    if values.size:
        assert low is None or low <= values.min(), f"{script(e)} reaches {values.min()}, below {low}"
        assert high is None or high >= values.max(), f"{script(e)} reaches {values.max()}, above {high}"
