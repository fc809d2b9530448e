"""ATen's functions that write elements at computed indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import is_const, max_value, min_value
from ....ir.structural import structural_equal
from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ... import blocks
from ...indexing import flat_index
from ...values import (
    ImportModelError,
    Number,
    Size,
    axis_of,
    cast,
    constant_size,
    count_of,
    dtype_of,
    plain,
    rank,
    size_of,
)

Row = Callable[..., Any]
REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""PyTorch's names, and those of ``scatter_elements``."""


def _scatter(x: Expr, dim: int, places: Expr, values: Expr | Number, reduce: str | None = None) -> Expr:
    """``values`` may have more elements than there are indices: those beyond are not read."""
    if not isinstance(values, Expr):
        values = blocks.filled(shape_of(places), values, dtype_of(x))
    for axis in range(rank(x)):
        size = size_of(places, axis)
        if not structural_equal(size, size_of(values, axis)):
            values = ops.strided_slice(values, (axis,), (0,), (size,), (1,))
    how = "update" if reduce is None else REDUCTIONS.get(reduce)
    if how is None:
        raise ImportModelError(f"reduce: got {reduce!r}; expected one of {', '.join(REDUCTIONS)}")
    return ops.scatter_elements(x, places, cast(values, dtype_of(x)), axis=dim, reduction=how)


def _scatter_reduce(x: Expr, dim: int, places: Expr, values: Expr, reduce: str, include_self: bool = True) -> Expr:
    """include_self: elements of ``x`` take part in the reductions that replace them."""
    if reduce == "mean":
        ones, more = (blocks.filled(shape_of(v), 1, dtype_of(x)) for v in (x, places))
        count = _scatter_reduce(ones, dim, places, more, "sum", include_self)
        total = _scatter_reduce(x, dim, places, values, "sum", include_self)
        return (ops.divide if dt.is_float(dtype_of(x)) else ops.floor_divide)(total, count)
    if not include_self:
        x = _scatter(x, dim, places, _identity(reduce, dtype_of(x)))
    return _scatter(x, dim, places, values, reduce)


def _identity(reduce: str, dtype: str) -> Number:
    match REDUCTIONS.get(reduce):
        case "max":
            return min_value(dtype).value  # type: ignore[attr-defined]
        case "min":
            return max_value(dtype).value  # type: ignore[attr-defined]
        case how:
            return 1 if how == "mul" else 0


def _index_add(x: Expr, dim: int, places: Expr, values: Expr, alpha: Number = 1) -> Expr:
    scaled = values if alpha == 1 else ops.multiply(values, alpha)
    if axis_of(x, dim) == 0 and rank(x) > 0 and rank(values) == rank(x):
        return ops.scatter_nd(x, ops.reshape(places, (-1, 1)), cast(scaled, dtype_of(x)), reduction="add")
    return _scatter(x, dim, _along(places, values, axis_of(x, dim)), scaled, "add")


def _index_put(x: Expr, places: Sequence[Expr | None], values: Expr, accumulate: bool = False) -> Expr:
    """``x[places] = values``, for integer indices or for one mask; None selects a whole axis."""
    axes = [axis for axis, place in enumerate(places) if place is not None]
    given = [place for place in places if place is not None]
    if any(dtype_of(place) == "bool" for place in given):
        return _masked_put(x, axes[0], given, values, accumulate)
    others = [a for a in range(rank(x)) if a not in axes]
    order = axes + others
    front = ops.permute_dims(x, axes=tuple(order))
    flat, rest = flat_index(front, list(range(len(axes))), given), shape_of(front)[len(axes) :]
    count = count_of(flat, range(rank(flat)))
    new = _values_in_front(cast(values, dtype_of(x)), axes, shape_of(flat), rest)
    lines = blocks.reshape(front, (count_of(front, range(len(axes))), *rest))
    written = ops.scatter_nd(
        lines,
        blocks.reshape(flat, (count, 1)),
        blocks.reshape(new, (count, *rest)),
        reduction="add" if accumulate else "update",
    )
    back = tuple(order.index(a) for a in range(rank(x)))
    return ops.permute_dims(blocks.reshape(written, shape_of(front)), axes=back)


def _values_in_front(values: Expr, axes: Sequence[int], chosen: Sequence[Size], rest: Sequence[Size]) -> Expr:
    """Values of ``x[places]``, broadcast, with the axes of the indices, ``chosen``, before those of ``rest``."""
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0  # axes that x[places] has before the indices'
    whole = ops.broadcast_to(values, (*rest[:before], *chosen, *rest[before:]))
    ends = before + len(chosen)
    return ops.permute_dims(whole, axes=(*range(before, ends), *range(before), *range(ends, rank(whole))))


def _masked_put(x: Expr, axis: int, places: Sequence[Expr], values: Expr, accumulate: bool) -> Expr:
    """``x[mask] = values`` for a mask of the axes from ``axis`` on, and values that all chosen elements share."""
    if len(places) > 1:
        raise ImportModelError("index_put: got a mask and other indices; expected one of them")
    (mask,) = places
    after = rank(x) - axis - rank(mask)
    whole = ops.broadcast_to(ops.reshape(mask, (*shape_of(mask), *(1 for _ in range(after)))), shape_of(x))
    if rank(values) == 1 and rank(x) == rank(mask) and not is_const(shape_of(values)[0], 1):
        return _masked_scatter(x, whole, values)
    if rank(values) > after and not (rank(values) == after + 1 and is_const(shape_of(values)[0], 1)):
        raise ImportModelError("index_put: got values for each chosen element; expected values that all share")
    new = cast(values, dtype_of(x))
    return ops.where(whole, ops.add(x, new) if accumulate else new, x)


def _masked_scatter(x: Expr, mask: Expr, values: Expr) -> Expr:
    """``x`` with its elements under ``mask`` replaced by the first elements of ``values``, in order."""
    chosen = cast(blocks.reshape(ops.broadcast_to(mask, shape_of(x)), (-1,)), "int64")
    taken = ops.take(blocks.reshape(values, (-1,)), ops.subtract(ops.cumsum(chosen, axis=0), 1), axis=0)
    return ops.where(mask, blocks.reshape(taken, shape_of(x)), x)


def _embedding_bag(
    weight: Expr,
    ids: Expr,
    offsets: Expr,
    scale_grad: bool = False,
    mode: int = 0,
    sparse: bool = False,
    scales: Expr | None = None,
    include_last_offset: bool = False,
    padding: int = -1,
) -> tuple[Expr]:
    """The sum (mode 0), mean (1) or maximum (2) of the rows of each bag of ids; bag ``i`` begins at ``offsets[i]``.

    include_last_offset: the last offset is the end of the last bag. padding: an id that is left out.
    """
    bags = constant_size(offsets, 0) - int(include_last_offset)
    rows, size = ops.take(weight, ids, axis=0), size_of(weight, 1)
    rows = rows if scales is None else ops.multiply(rows, ops.expand_dims(scales, axis=1))
    starts = ops.strided_slice(offsets, (0,), (0,), (bags,), (1,))
    at = ops.expand_dims(cast(ops.arange(0, size_of(ids, 0), 1, dtype="int64"), dtype_of(offsets)), axis=1)
    bag = ops.subtract(ops.sum(cast(ops.less_equal(starts, at), "int64"), axis=1), 1)
    kept = ops.not_equal(ids, cast(padding, dtype_of(ids)))
    bag = ops.expand_dims(ops.where(kept, bag, cast(bags, "int64")), axis=1)  # out of range: ignored
    how, dtype = ("max" if mode == 2 else "add"), dtype_of(weight)
    start = blocks.filled((bags, size), _identity("amax", dtype) if mode == 2 else 0, dtype)
    total = ops.scatter_nd(start, bag, rows, reduction=how)
    if mode == 0:
        return (total,)
    ones = blocks.filled((size_of(ids, 0), 1), 1, dtype)
    count = ops.scatter_nd(blocks.filled((bags, 1), 0, dtype), bag, ones, reduction="add")
    if mode == 2:
        return (ops.where(ops.greater(count, 0), total, cast(0, dtype)),)
    return (ops.divide(total, ops.maximum(count, 1)),)


def _slice_scatter(
    x: Expr, values: Expr, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Expr:
    """``x`` with ``x[start:end:step]`` along ``dim`` replaced."""
    axis = axis_of(x, dim)
    count = size_of(values, axis)
    first = plain(size_of(x, axis) + start) if isinstance(start, int) and start < 0 else start or 0
    places = ops.add(ops.multiply(ops.arange(0, count, 1, dtype="int64"), step), cast(first, "int64"))
    return ops.scatter_elements(x, _along(places, values, axis), values, axis=axis)


def _along(places: Expr, like: Expr, axis: int) -> Expr:
    """Indices [n] along an axis, for all elements on the other axes: with the shape of ``like``."""
    column = ops.reshape(places, (size_of(places, 0), *(1 for _ in range(rank(like) - axis - 1))))
    return ops.broadcast_to(column, shape_of(like))


ROWS: dict[str, Row] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "index_add": _index_add,
    "index_put": _index_put,
    "masked_scatter": _masked_scatter,
    "scatter.reduce": _scatter,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter.value_reduce": _scatter,
    "scatter_add": lambda x, dim, places, values: _scatter(x, dim, places, values, "add"),
    "scatter_reduce.two": _scatter_reduce,
    "slice_scatter": _slice_scatter,
}
