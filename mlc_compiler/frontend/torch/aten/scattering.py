"""ATen's functions that write elements at computed indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.structural import structural_equal
from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ... import blocks
from ...values import ImportModelError, Number, Size, axis_of, cast, count_of, dtype_of, plain, rank, size_of
from .indexing import flat_index

Row = Callable[..., Expr]
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
    if not include_self:
        raise ImportModelError("scatter_reduce: got include_self=False; expected True")
    return _scatter(x, dim, places, values, reduce)


def _index_add(x: Expr, dim: int, places: Expr, values: Expr, alpha: Number = 1) -> Expr:
    scaled = values if alpha == 1 else ops.multiply(values, alpha)
    if axis_of(x, dim) == 0 and rank(x) > 0 and rank(values) == rank(x):
        return ops.scatter_nd(x, ops.reshape(places, (-1, 1)), cast(scaled, dtype_of(x)), reduction="add")
    return _scatter(x, dim, _along(places, values, axis_of(x, dim)), scaled, "add")


def _index_put(x: Expr, places: Sequence[Expr | None], values: Expr, accumulate: bool = False) -> Expr:
    """``x[places] = values`` for integer indices of the first axes."""
    given = [place for place in places if place is not None]
    if len(given) != len(places):
        raise ImportModelError("index_put: got whole axes before indices; expected indices of the first axes")
    flat, shape = flat_index(x, list(range(len(given))), given), shape_of(x)
    rest = shape[len(given) :]
    lines = blocks.reshape(x, (count_of(x, range(len(given))), *rest))
    wanted = (*shape_of(flat), *rest)
    count = count_of(flat, range(rank(flat)))
    new = blocks.reshape(ops.broadcast_to(cast(values, dtype_of(x)), wanted), (count, *rest))
    how = "add" if accumulate else "update"
    return blocks.reshape(ops.scatter_nd(lines, blocks.reshape(flat, (count, 1)), new, reduction=how), shape)


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
    "index_add": _index_add,
    "index_put": _index_put,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter.value_reduce": _scatter,
    "scatter_add": lambda x, dim, places, values: _scatter(x, dim, places, values, "add"),
    "scatter_reduce.two": _scatter_reduce,
    "slice_scatter": _slice_scatter,
}
