"""Conversion of PyTorch's symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch

from ...ir.expr import Var
from ..values import ImportModelError, Size, plain

NO_BOUND = 2**62
"""Lower bound of the upper bounds that PyTorch gives to unbounded sizes."""


@dataclass
class Sizes:
    """Maps the symbols of a program to size variables. constraints: the ranges of the symbols."""

    constraints: Mapping[Any, Any]
    variables: dict[str, Var] = field(default_factory=dict)

    def expression(self, size: int | torch.SymInt) -> Size:
        """Convert a size of an input: a number, or sums and products of symbols."""
        return size if isinstance(size, int) else self._expression(size.node.expr)

    def _expression(self, expr: Any) -> Size:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self.variables.setdefault(str(expr), Var(str(expr)))
        parts = [self._expression(part) for part in expr.args]
        if expr.is_Add:
            return plain(reduce(lambda a, b: a + b, parts))
        if expr.is_Mul:
            return plain(reduce(lambda a, b: a * b, parts))
        raise ImportModelError(f"an input has the size {expr}; expected sums and products of symbols")

    def bounds(self) -> dict[str, dict[str, int]]:
        """The function attribute with the upper bounds of the symbols."""
        upper = {str(symbol): found.upper for symbol, found in self.constraints.items()}
        known = {name: int(upper[name]) for name in self.variables if name in upper and upper[name] < NO_BOUND}
        return {"tir_var_upper_bound": known} if known else {}
