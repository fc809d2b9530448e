"""ATen's functions that find elements by their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ... import blocks
from ...values import Value, cast, constant_size, dtype_of, promoted, rank, size_of

Row = Callable[..., Any]


def _searchsorted(
    boundaries: Expr,
    x: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    """The number of ``boundaries`` [..., n] below each element of ``x``, or not above it with ``right``."""
    if sorter is not None:
        boundaries = ops.gather_elements(boundaries, sorter, axis=-1)
    given = cast(x, dtype_of(x))
    edges = boundaries if rank(boundaries) == 1 else ops.expand_dims(boundaries, axis=-2)
    limits, values = promoted(edges, ops.expand_dims(given, axis=-1))
    before = (ops.less_equal if right or side == "right" else ops.less)(limits, values)
    return ops.sum(cast(before, "int32" if out_int32 else "int64"), axis=-1)


def _bucketize(x: Value, boundaries: Expr, out_int32: bool = False, right: bool = False) -> Expr:
    return _searchsorted(boundaries, x, out_int32, right)


def _kth(x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The ``k``-th smallest element along ``dim``, counted from 1, and its index."""
    if not rank(x):
        return x, ops.zeros((), dtype="int64")
    order = ops.argsort(x, axis=dim, dtype="int64")
    place = ops.take(order, cast(k - 1, "int64"), axis=dim, mode="fast")
    found = ops.expand_dims(place, axis=dim)
    value = ops.gather_elements(x, found, axis=dim)
    return (value, found) if keepdim else (ops.squeeze(value, axis=dim), place)


def _median_along(x: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The lower of the two middle elements along ``dim``, and its index."""
    return _kth(x, (constant_size(x, dim) + 1) // 2 if rank(x) else 1, dim, keepdim)


def _median(x: Expr) -> Expr:
    return _median_along(blocks.reshape(x, (-1,)), 0)[0]


def _running(better: Row) -> Row:
    """Row of cummax and cummin: the best element up to each one along ``dim``, and the last index of it."""

    def row(x: Expr, dim: int) -> tuple[Expr, Expr]:
        size = constant_size(x, dim)
        axis = dim % rank(x)
        places = ops.broadcast_to(blocks.places_along(x, axis), shape_of(x))
        best, place = x, places
        step = 1
        while step < size:  # combine runs of lengths that double
            earlier, earlier_place = (_delayed(v, axis, step) for v in (best, place))
            kept = better(best, earlier)
            best, place = ops.where(kept, best, earlier), ops.where(kept, place, earlier_place)
            step *= 2
        return best, place

    return row


def _delayed(x: Expr, axis: int, step: int) -> Expr:
    """Move the elements along ``axis`` by ``step`` places; the first elements stay."""
    size = size_of(x, axis)
    first = ops.strided_slice(x, (axis,), (0,), (step,), (1,))
    rest = ops.strided_slice(x, (axis,), (0,), (size - step,), (1,))
    return ops.concat([first, rest], axis=axis)


ROWS: dict[str, Row] = {
    "bucketize": _bucketize,
    "cummax": _running(ops.greater_equal),
    "cummin": _running(ops.less_equal),
    "kthvalue": _kth,
    "median": _median,
    "median.dim": _median_along,
    "searchsorted": _searchsorted,
}
