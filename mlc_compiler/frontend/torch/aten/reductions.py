"""ATen's reductions, cumulative operators and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir import dtype as dt
from ....relax import ops
from ....relax.nodes import Expr
from ... import blocks
from ...values import axis_of, cast, constant_size, count_of, dtype_of, floating, rank

Row = Callable[..., Any]
Axes = int | Sequence[int] | None


def _axes(x: Expr, dim: Axes) -> tuple[int, ...]:
    """The axes to reduce; None and an empty list select all axes."""
    listed = [dim] if isinstance(dim, int) else dim or range(rank(x))
    return tuple(axis_of(x, d) for d in listed)


def _summed(x: Expr, dtype: str | None) -> Expr:
    return cast(x, dtype or (dtype_of(x) if dt.is_float(dtype_of(x)) else "int64"))


def _sum(x: Expr, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    return ops.sum(_summed(x, dtype), axis=_axes(x, dim), keepdims=keepdim)


def _prod(x: Expr, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    return ops.prod(_summed(x, dtype), axis=_axes(x, dim), keepdims=keepdim)


def _mean(x: Expr, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    return ops.mean(floating(x) if dtype is None else cast(x, dtype), axis=_axes(x, dim), keepdims=keepdim)


def _extreme(op: Row) -> Row:
    return lambda x, dim=None, keepdim=False: op(x, axis=_axes(x, dim), keepdims=keepdim)


def _with_position(op: Row, position: Row) -> Row:
    def row(x: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
        return op(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)

    return row


def _some(op: Row) -> Row:
    """Row of ``any`` as the maximum of truth values, or of ``all`` as their minimum."""

    def row(x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
        truth = cast(ops.not_equal(x, cast(0, dtype_of(x))), "int32")
        return ops.not_equal(op(truth, axis=_axes(x, dim), keepdims=keepdim), 0)

    return row


def _variance(x: Expr, dim: Axes = None, correction: float | None = None, keepdim: bool = False) -> Expr:
    axes = _axes(x, dim)
    count, removed = count_of(x, axes), 1 if correction is None else correction
    if not isinstance(count, int):
        raise ValueError(f"a variance of the symbolic number {count} of elements; expected a constant size")
    return ops.multiply(ops.variance(x, axis=axes, keepdims=keepdim), count / max(count - removed, 0))


def _variance_and_mean(
    x: Expr, dim: Axes = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Expr, Expr]:
    return _variance(x, dim, correction, keepdim), _mean(x, dim, keepdim)


def _norm(x: Expr, ord: float = 2, dim: Axes = None, keepdim: bool = False, dtype: str | None = None) -> Expr:
    x = floating(x) if dtype is None else cast(x, dtype)
    axes, size = _axes(x, dim), ops.abs(x)
    if abs(ord) == math.inf:
        return (ops.max if ord > 0 else ops.min)(size, axis=axes, keepdims=keepdim)
    if ord == 0:
        return ops.sum(cast(ops.not_equal(x, 0.0), dtype_of(x)), axis=axes, keepdims=keepdim)
    if ord == 1:
        return ops.sum(size, axis=axes, keepdims=keepdim)
    if ord == 2:
        return ops.sqrt(ops.sum(ops.square(x), axis=axes, keepdims=keepdim))
    return ops.power(ops.sum(ops.power(size, float(ord)), axis=axes, keepdims=keepdim), 1.0 / ord)


def _distance(x: Expr, y: Expr, p: float = 2) -> Expr:
    return _norm(ops.subtract(x, y), p)


def _distances(x: Expr, y: Expr, p: float = 2, compute_mode: int | None = None) -> Expr:
    """The ``p``-norms of the differences of all rows of ``x`` [..., R, D] and ``y`` [..., S, D]: [..., R, S]."""
    return _norm(ops.subtract(ops.expand_dims(x, axis=-2), ops.expand_dims(y, axis=-3)), p, -1)


def _distances_of_pairs(x: Expr, p: float = 2) -> Expr:
    """The ``p``-norms of the differences of rows i and j, i < j, of ``x`` [R, D], in the order of i."""
    first, second = (blocks.number_table(i) for i in np.triu_indices(constant_size(x, 0), 1))
    return _norm(ops.subtract(ops.take(x, first, axis=0), ops.take(x, second, axis=0)), p, -1)


def _logcumsumexp(x: Expr, dim: int) -> Expr:
    peak = ops.max(x, axis=dim, keepdims=True)
    return ops.add(ops.log(ops.cumsum(ops.exp(ops.subtract(x, peak)), axis=dim)), peak)


def _cumulative(op: Row) -> Row:
    return lambda x, dim, dtype=None: op(_summed(x, dtype), axis=dim)


def _topk(x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Expr:
    return ops.topk(x, k=k, axis=dim, largest=largest, dtype="int64")


def _sort(x: Expr, dim: int = -1, descending: bool = False) -> Expr:
    return ops.topk(x, k=0, axis=dim, largest=descending, dtype="int64")


ROWS: dict[str, Row] = {
    "_cdist_forward": _distances,
    "_pdist_forward": _distances_of_pairs,
    "all": _some(ops.min),
    "amax": _extreme(ops.max),
    "amin": _extreme(ops.min),
    "any": _some(ops.max),
    "argmax": lambda x, dim=None, keepdim=False: ops.argmax(x, axis=dim, keepdims=keepdim),
    "argmin": lambda x, dim=None, keepdim=False: ops.argmin(x, axis=dim, keepdims=keepdim),
    "argsort": lambda x, dim=-1, descending=False: ops.argsort(x, axis=dim, descending=descending, dtype="int64"),
    "cumprod": _cumulative(ops.cumprod),
    "cumsum": _cumulative(ops.cumsum),
    "dist": _distance,
    "linalg_vector_norm": _norm,
    "logcumsumexp": _logcumsumexp,
    "max.default": _extreme(ops.max),
    "max.dim": _with_position(ops.max, ops.argmax),
    "mean": _mean,
    "min.default": _extreme(ops.min),
    "min.dim": _with_position(ops.min, ops.argmin),
    "prod": _prod,
    "sort": _sort,
    "std.correction": lambda *args, **kwargs: ops.sqrt(_variance(*args, **kwargs)),
    "sum": _sum,
    "topk": _topk,
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
}
