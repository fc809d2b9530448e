"""Scalar functions of tensor expressions agree with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build, te
from mlc_compiler.interp import run_prim_func

X = np.array([-2.5, -1.0, -0.4, 0.0, 0.5, 1.5, 2.5, 7.0], np.float32)
FUNCTIONS = {
    "floor": (te.floor, np.floor),
    "ceil": (te.ceil, np.ceil),
    "round": (te.round, np.round),
    "abs": (te.abs, np.abs),
    "power": (lambda x: te.power(te.abs(x), 3), lambda x: np.abs(x) ** 3),
    "all": (lambda x: te.select(te.all(x > -1, x < 1, x > -2), x, 9.0), lambda x: np.where((x > -1) & (x < 1), x, 9)),
    "any": (lambda x: te.select(te.any(x < -2, x > 2), x, 9.0), lambda x: np.where((x < -2) | (x > 2), x, 9)),
    "none": (lambda x: te.select(te.any(), x, te.const(4, "float32")), lambda x: np.full_like(x, 4)),
    "limits": (
        lambda x: te.max(te.min_value("float32"), te.min(x, te.max_value("float32"))),
        lambda x: x,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    x = te.placeholder(X.shape, "float32", "x")
    func = te.create_prim_func([x, te.compute(X.shape, lambda i: ours(x[i]), name="y")])
    interpreted, compiled = np.empty_like(X), np.empty_like(X)
    run_prim_func(func, X.copy(), interpreted)
    build(func)["main"](X, compiled)
    np.testing.assert_array_equal(interpreted, theirs(X))
    np.testing.assert_array_equal(compiled, theirs(X))
