"""Simplified products read the same in every run: the order of factors does not hang on where variables lie."""

from __future__ import annotations

from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.simplify import Analyzer
from mlc_compiler.script import script


def test_factors_are_ordered_by_name() -> None:
    kept = []
    for _ in range(8):
        n, m = Var("n"), Var("m")
        kept += [n, m]
        for product in (n * m, m * n):
            assert script(Analyzer().simplify(product + 1)) == script(m * n + 1)
