"""The order of factors in simplified products is deterministic: it does not depend on ``id`` of variables."""

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
