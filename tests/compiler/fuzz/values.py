"""Values of a random graph, with bounds of their magnitude and error.

Most values are small integers, also in float dtypes, and stay so small that every operation on them is exact: in
any order of additions and multiplications the results are bit-identical. After elementary functions and
divisions values carry an error bound: the maximum difference of two correct evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlc_compiler.interp.evaluate import evaluate
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import PrimExpr
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.nodes import Expr, TensorStructInfo
from mlc_compiler.relax.ops import OperatorError
from mlc_compiler.relax.ops.registry import Operator
from mlc_compiler.relax.tensor_call import lower_te

SYMBOLIC = (1, 5, 13, 24)
MOST_ELEMENTS = 1500
LARGEST_INEXACT = 1e4
EXACT = {"float8_e5m2": 8, "float8_e4m3fn": 16, "bfloat16": 256, "float16": 2048, "float32": 2**24, "float64": 2**50}
ROUNDING = {k: 0.5 / v for k, v in EXACT.items()}
"""``EXACT``: all integers up to this are exact in a float dtype; ``ROUNDING``: its relative rounding error."""
INNER = ROUNDING["float32"]


@dataclass
class Value:
    """An expression; ``limit`` bounds the magnitude of its elements, ``error`` their error."""

    expr: Expr
    limit: float
    error: float = 0.0

    @property
    def info(self) -> TensorStructInfo:
        info = self.expr.struct_info
        assert isinstance(info, TensorStructInfo) and info.shape is not None
        return info

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        return self.info.shape or ()

    @property
    def dtype(self) -> str:
        return self.info.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return dt.is_float(self.dtype)


@dataclass
class Builder:
    """One function under construction; ``n`` is its symbolic size, ``earlier`` the functions that it may call.

    activation_bits: the width of activations for which errors are bounded, see ``Optimization``.
    """

    earlier: Sequence[Callee] = ()
    activation_bits: int = 16
    n: Size = field(default_factory=lambda: Size("n"))
    values: list[Value] = field(default_factory=list)

    def number(self, size: PrimExpr, n: int) -> int:
        return int(evaluate(size, {id(self.n): n}))

    def sizes(self, value: Value, n: int = SYMBOLIC[-1]) -> tuple[int, ...]:
        return tuple(self.number(s, n) for s in value.shape)

    def fixed(self, value: Value, axis: int) -> int | None:
        """The size of an axis; None when it is symbolic."""
        size = self.sizes(value)[axis]
        return size if size == self.sizes(value, SYMBOLIC[0])[axis] else None

    def emit(
        self, operator: Operator, *args: object, limit: float, error: float = 0.0, **attrs: object
    ) -> Value | None:
        """The value of a call; None when the operands are invalid for the operator, or the result is too large.

        error: error bound of the result before it is rounded to its dtype.
        """
        try:
            call = operator(*args, **attrs)
        except OperatorError:
            return None
        equal = lower_te(operator.te, operator.arg_names, call.args, call.attrs).assumptions
        if any(self.number(a, n) != self.number(b, n) for a, b in equal for n in SYMBOLIC):
            return None
        return self.checked(BlockBuilder.current().emit(call), limit, error)

    def checked(self, expr: Expr, limit: float, error: float = 0.0) -> Value | None:
        value = Value(expr, limit)
        if dt.is_int(value.dtype):
            value.limit = min(limit, float(1 << dt.bits(value.dtype)))
        elif value.dtype == "bool":
            value.limit = 1.0
        if np.prod(self.sizes(value)) > MOST_ELEMENTS:
            return None
        if not error:
            return value if limit <= EXACT.get(value.dtype, np.inf) else None
        value.error = error + 2 * ROUNDING[value.dtype] * limit
        return value if limit <= LARGEST_INEXACT and value.error <= limit / 8 else None


@dataclass(frozen=True)
class Callee:
    """A function of the module: its name, its symbolic size, its parameters and its results."""

    name: str
    n: Size
    params: Sequence[Value]
    results: Sequence[Value]


Act = Callable[[Builder, Value, Value, int], Value | None]


@dataclass(frozen=True)
class Action:
    """A function that emits a value from one or two others and a number. ``exact``: operands must have no error."""

    act: Act
    exact: bool


ACTIONS: list[Action] = []


def action(f: Act) -> Act:
    """Decorator: registers an action that propagates the errors of its operands."""
    ACTIONS.append(Action(f, exact=False))
    return f


def exact_action(f: Act) -> Act:
    """Decorator: registers an action that is discontinuous, and therefore requires exact operands."""
    ACTIONS.append(Action(f, exact=True))
    return f


def axis_of(value: Value, extra: int) -> int:
    return extra % value.rank


def limited(b: Builder, x: Value, limit: int) -> Value | None:
    """The value, clipped to ``[-limit, limit]`` unless its limit is smaller; None if its error is too large."""
    if x.limit <= limit or x.dtype == "bool":
        return x
    low = -limit if x.is_float or dt.is_signed(x.dtype) else 0
    return b.emit(ops.clip, x.expr, limit=limit, error=x.error, min=low, max=limit)


def converted(b: Builder, x: Value, dtype: str) -> Value | None:
    """The value in another dtype, clipped to its exact range; None for inexact values to non-floating dtypes."""
    if x.dtype == dtype:
        return x
    if x.error and not dt.is_float(dtype):
        return None
    too_large = x.limit > EXACT[dtype] if dt.is_float(dtype) else x.is_float
    small = limited(b, x, 7) if too_large else x
    if small is None:
        return None
    limit = small.limit if dt.is_float(dtype) else _after_wrapping(small.limit, dtype)
    return b.emit(ops.astype, small.expr, limit=limit, error=small.error, dtype=dtype)


def _after_wrapping(limit: float, dtype: str) -> float:
    if dtype == "bool":
        return 1.0
    return limit if dt.is_signed(dtype) and limit < 1 << (dt.bits(dtype) - 1) else float(1 << dt.bits(dtype))
