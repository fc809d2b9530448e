"""Exhaustive evaluation of integer expressions, for all values of their variables at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlc_compiler.ir.expr import BinaryOp, Cast, IntImm, Not, PrimExpr, Select, Var

_OPERATORS = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "&": np.bitwise_and,
}


class Domain:
    """All assignments: unbound variables take the values ``sizes``, bound ones those from 0 to their extent."""

    def __init__(self, unbound: Mapping[Var, range], bound: Mapping[Var, PrimExpr | int]):
        columns = np.meshgrid(*(np.array(r, np.int64) for r in unbound.values()), indexing="ij")
        self.env = {id(v): c.ravel() for v, c in zip(unbound, columns)}
        self.count = columns[0].size if columns else 1
        for var, extent in bound.items():
            self._bind(var, extent)

    def _bind(self, var: Var, extent: PrimExpr | int) -> None:
        limits = np.broadcast_to(self(extent) if isinstance(extent, PrimExpr) else extent, self.count)
        limits = np.maximum(limits, 0)
        rows = np.repeat(np.arange(self.count), limits)
        starts = np.repeat(np.cumsum(limits) - limits, limits)
        self.env = {k: v[rows] for k, v in self.env.items()}
        self.count = rows.size
        self.env[id(var)] = np.arange(self.count) - starts

    def __call__(self, e: PrimExpr) -> np.ndarray:
        """The values of an expression; a division by zero gives 0."""
        with np.errstate(all="ignore"):
            return self._value(e)

    def _value(self, e: PrimExpr) -> np.ndarray:
        if isinstance(e, IntImm):
            return np.asarray(bool(e.value) if e.dtype == "bool" else e.value)
        if isinstance(e, Var):
            return self.env[id(e)]
        if isinstance(e, BinaryOp):
            return _OPERATORS[e.op](self._value(e.a), self._value(e.b))
        if isinstance(e, Not):
            return ~self._value(e.value)
        if isinstance(e, Select):
            return np.where(self._value(e.condition), self._value(e.true_value), self._value(e.false_value))
        if isinstance(e, Cast):
            return self._value(e.value)
        raise TypeError(f"no value of {type(e).__name__}")
