"""structural_key is equal for two trees exactly when they are structurally equal."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from mlc_compiler.ir.expr import FloatImm, Var
from mlc_compiler.ir.structural import structural_equal, structural_key
from mlc_compiler.relax.nodes import constant
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc


def _scale(name: str, size: int, factor: float, attrs: dict[str, object] | None = None) -> PrimFunc:
    n = Var(name)
    a = te.placeholder((n, size), name=name + "_in")
    b = te.compute((n, size), lambda i, j: a[i, j] * factor, name="out")
    return te.create_prim_func([a, b], attrs=attrs)


def _two_sizes(same: bool) -> PrimFunc:
    n, m = Var("n"), Var("m")
    a = te.placeholder((n,), name="a")
    b = te.placeholder((n if same else m,), name="b")
    return te.create_prim_func([a, b, te.compute((n,), lambda i: a[i] + b[0], name="c")])


def test_keys_agree_with_structural_equality() -> None:
    x, y = Var("x"), Var("y")
    trees = [
        *(_scale("a", 8, 2.0), _scale("b", 8, 2.0), _scale("a", 8, 3.0), _scale("a", 9, 2.0)),
        *(_scale("a", 8, 2.0, {"p": 1, "q": 2}), _scale("a", 8, 2.0, {"q": 2, "p": 1})),
        _scale("a", 8, 2.0, {"p": True}),
        *(_two_sizes(True), _two_sizes(False)),
        *(x + y, y + x, x + x, x * y, (x, y), [x, y], ((x,), y), (x, (y,))),
        *(1, 1.0, True, "1", None, FloatImm(float("nan")), FloatImm(float("nan")), FloatImm(1.0)),
        *(0.0, -0.0, FloatImm(0.0), FloatImm(-0.0), constant(np.array(0.0)), constant(np.array(-0.0))),
        *(constant(np.array([1, 2])), constant(np.array([1, 2])), constant(np.array([[1, 2]]))),
        constant(np.array([1, 2], "int32")),
    ]
    pairs = list(combinations_with_replacement(trees, 2))
    assert sum(structural_equal(a, b) for a, b in pairs) == len(trees) + 5
    for a, b in pairs:
        assert (structural_key(a) == structural_key(b)) == structural_equal(a, b), (a, b)


def test_by_identity_distinguishes_variables() -> None:
    x, y = Var("x"), Var("y")
    assert structural_key(x + 1) == structural_key(y + 1)
    assert structural_key(x + 1, by_identity=True) != structural_key(y + 1, by_identity=True)
    assert structural_key(x + 1, by_identity=True) == structural_key(x + 1, by_identity=True)
