"""Values of symbolic sizes during measurement."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.expr import ExprLike, IntImm, Var, as_expr
from ..ir.simplify import Analyzer
from ..ir.visitor import free_vars, substitute

OTHER_SIZE = 64


def value_of(expr: ExprLike, sizes: Mapping[str, int], analyzer: Analyzer | None = None) -> int:
    """Evaluate an integer expression, given sizes by name; unknown sizes, and loads, count as OTHER_SIZE."""
    expr = as_expr(expr)
    if isinstance(expr, IntImm):
        return expr.value
    values = {v: IntImm(sizes.get(v.name, OTHER_SIZE), v.dtype) for v in free_vars(expr) if isinstance(v, Var)}
    found = (analyzer or Analyzer()).simplify(substitute(expr, values))
    return found.value if isinstance(found, IntImm) else OTHER_SIZE
