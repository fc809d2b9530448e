"""Reductions, cumulative operators and selection along an axis, exact on small integers."""

from __future__ import annotations

import numpy as np

from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder
from tests.compiler.fuzz.moves import item_of
from tests.compiler.fuzz.values import INNER, Builder, Value, action, axis_of, exact_action


def may_be_empty(b: Builder, x: Value, axes: list[int]) -> bool:
    return any(0 in (b.sizes(x, 0)[a], b.sizes(x, 1)[a]) for a in axes)


def any_order(limit: float, error: float, count: float) -> float:
    """The maximum difference of sums of ``count`` numbers in any order in float32."""
    return count * error + 2 * INNER * count * count * limit


def sum_error(x: Value, count: float) -> float:
    return any_order(x.limit, x.error, count) if x.error else 0.0


@action
def reduce(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.rank == 0:
        return None
    axes = [axis_of(x, extra)] if extra % 3 else list(range(x.rank))
    keepdims, which = bool(extra % 2), extra // 3 % 3
    if which == 0 and x.dtype != "bool":
        count = float(np.prod([b.sizes(x)[a] for a in axes]))
        return b.emit(ops.sum, x.expr, limit=x.limit * count, error=sum_error(x, count), axis=axes, keepdims=keepdims)
    operator = ops.max if which % 2 else ops.min
    if x.is_float and may_be_empty(b, x, axes):
        extreme = operator(x.expr, axis=axes, keepdims=keepdims)
        return b.checked(BlockBuilder.current().emit(ops.clip(extreme, min=-4, max=4)), 4, x.error)
    limit = np.inf if may_be_empty(b, x, axes) else x.limit
    return b.emit(operator, x.expr, limit=limit, error=x.error, axis=axes, keepdims=keepdims)


@exact_action
def running_product(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """Products of -1, 0 and 1, which stay small."""
    if x.dtype in ("bool", "uint8", "uint4") or x.rank == 0:
        return None
    signs = ops.sign(x.expr)
    if extra % 2:
        return b.emit(ops.prod, signs, limit=1, axis=axis_of(x, extra))
    return b.emit(ops.cumprod, signs, limit=1, axis=axis_of(x, extra), exclusive=extra % 3 == 0)


@exact_action
def position(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.rank == 0 or x.dtype == "bool":
        return None
    axis = axis_of(x, extra)
    limit = np.inf if may_be_empty(b, x, [axis]) else 100
    return b.emit(ops.argmax if extra % 2 else ops.argmin, x.expr, limit=limit, axis=axis, keepdims=extra % 4 > 1)


@action
def running_sum(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.dtype == "bool" or x.rank == 0:
        return None
    axis = axis_of(x, extra)
    count = b.sizes(x)[axis]
    limit, error = x.limit * count, sum_error(x, count)
    return b.emit(ops.cumsum, x.expr, limit=limit, error=error, axis=axis, exclusive=extra % 3 == 0)


@exact_action
def best(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """``topk``: the largest or smallest elements along an axis, or their indices."""
    size = b.fixed(x, axis_of(x, extra)) if x.rank else None
    if not size or x.dtype == "bool" or size > 12:
        return None
    call = ops.topk(x.expr, k=1 + extra % size, axis=axis_of(x, extra), largest=bool(extra % 2))
    return item_of(b, call, extra // 2 % 2, Value(x.expr, max(x.limit, size)))
