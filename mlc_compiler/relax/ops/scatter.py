"""Writing elements at computed indices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Var, ceildiv, logical_and, maximum, minimum
from ...tir import nodes as tir
from ...tir import te
from ...tir.nodes import BufferStore, For, IfThenElse, seq
from ..info import is_shorter, show_shape, static_size
from .axes import normalize_axis
from .registry import operator

REDUCTIONS: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": maximum,
    "min": minimum,
}


def _reduction(name: str) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    if name not in REDUCTIONS:
        raise ValueError(f"reduction: got {name!r}; expected one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[name]


@operator("scatter_elements")
def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """A copy of ``data`` with ``updates`` written at ``indices`` along ``axis`` (ONNX's ScatterElements).

    For axis 0: ``result[indices[i, j], j] = reduce(result[indices[i, j], j], updates[i, j])``. indices: integers, as
    many axes as data, static sizes on the other axes at most data's; negative indices count from the end, those out of
    range are ignored. updates: the shape of indices, the dtype of data. reduction: ``update``, ``add``, ``mul``,
    ``max`` or ``min``. Repeated indices are applied in order: with ``update`` the last one is kept.
    """
    return scattered_lines(data, indices, updates, axis, reduction)


def scattered_lines(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str, columns: int = 1
) -> te.Tensor:
    """``scatter_elements``, whose iterations apply all updates of ``columns`` adjacent elements of the last axis.

    An iteration has one element, as on GPUs, if ``axis`` is the last axis.
    """
    reduce = _reduction(reduction)
    if indices.ndim != data.ndim or updates.ndim != data.ndim:
        shapes = " and ".join(show_shape(t.shape) for t in (indices, updates))
        raise ValueError(f"indices and updates: got shapes {shapes}; expected {data.ndim} axes")
    if updates.dtype != data.dtype:
        raise ValueError(f"updates: got {updates.dtype}; expected {data.dtype}, the dtype of data")
    at = normalize_axis(axis, data.ndim)
    for a in range(data.ndim):
        te.require_equal(indices.shape[a], updates.shape[a], f"sizes of indices and updates on axis {a}")
        if a != at and not is_shorter(indices.shape[a], data.shape[a]):
            te.require_equal(data.shape[a], indices.shape[a], f"sizes of data and indices on axis {a}")
    result, size, place = tir.buffer("scattered", data.shape, data.dtype), data.shape[at], te.Cell("place", INDEX_DTYPE)
    others = [a for a in range(data.ndim) if a != at]
    columns = 1 if at == data.ndim - 1 else columns

    def line(*lead: PrimExpr) -> tir.Stmt:
        """All elements along ``axis`` at the indices ``lead`` of the other axes, the last of which counts tiles."""
        copied, n = Var("copied"), Var("n")

        def copy(other: tuple[PrimExpr, ...]) -> tir.Stmt:
            source = (*other[:at], copied, *other[at:])
            return BufferStore(result, data.buffer[source], source)

        def write(other: tuple[PrimExpr, ...]) -> tir.Stmt:
            source, target = ((*other[:at], position, *other[at:]) for position in (n, place.value))
            step = seq(
                place.set(te.cast(indices.buffer[source], INDEX_DTYPE)),
                IfThenElse(place.value < 0, place.set(place.value + size)),
                IfThenElse(
                    logical_and(place.value >= 0, place.value < size),
                    BufferStore(result, reduce(result[target], updates.buffer[source]), target),
                ),
            )
            shorter = [
                (i, a) for i, a in zip(other, others, strict=True) if is_shorter(indices.shape[a], data.shape[a])
            ]
            return _when([i < indices.shape[a] for i, a in shorter], step)

        each = partial(_each_column, lead, columns, data.shape[-1])
        return seq(For(copied, size, each(copy)), For(n, indices.shape[at], each(write)))

    lead = [data.shape[a] for a in others]
    if columns > 1:
        lead[-1] = ceildiv(lead[-1], columns)
    return te.extern([result], [data, indices, updates], te.each(lead, "scatter_elements", line, [place.buffer]))[0]


@operator("scatter_nd")
def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str = "update") -> te.Tensor:
    """A copy of ``data`` with ``updates`` written at ``indices`` of its first axes (ONNX's ScatterND).

    For indices [n, k]: ``result[indices[i]] = reduce(result[indices[i]], updates[i])``, parts of the other axes.
    indices: integers [..., k]; negative ones count from the end, parts out of range are ignored. updates:
    ``indices.shape[:-1] + data.shape[k:]``, the dtype of data. reduction, repeated indices: as of ``scatter_elements``.
    """
    return scattered_parts(data, indices, updates, reduction)


def scattered_parts(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str, columns: int = 1
) -> te.Tensor:
    """``scatter_nd``, whose iterations apply all updates of ``columns`` adjacent elements of the last axis."""
    reduce = _reduction(reduction)
    count = static_size(indices.shape[-1]) if indices.ndim else None
    if count is None or not 0 < count <= data.ndim:
        raise ValueError(f"indices: got shape {show_shape(indices.shape)}; expected 1 to {data.ndim} on the last axis")
    outer, inner, each = data.shape[:count], data.shape[count:], indices.shape[:-1]
    _require_updates(updates, data, (*each, *inner))
    result = tir.buffer("scattered", data.shape, data.dtype)
    places = [te.Cell(f"place{n}", INDEX_DTYPE) for n in range(count)]

    def part(*lead: PrimExpr) -> tir.Stmt:
        """The elements at the indices ``lead`` of the inner axes, the last of which counts tiles."""
        copied, update = ([Var(f"{name}{n}") for n in range(len(of))] for name, of in (("copied", outer), ("n", each)))

        def copy(at: tuple[PrimExpr, ...]) -> tir.Stmt:
            return BufferStore(result, data.buffer[(*copied, *at)], (*copied, *at))

        def write(at: tuple[PrimExpr, ...]) -> tir.Stmt:
            target, source = (*(cell.value for cell in places), *at), (*update, *at)
            return BufferStore(result, reduce(result[target], updates.buffer[source]), target)

        found = [
            seq(
                cell.set(te.cast(indices.buffer[(*update, IntImm(n))], INDEX_DTYPE)),
                IfThenElse(cell.value < 0, cell.set(cell.value + outer[n])),
            )
            for n, cell in enumerate(places)
        ]
        inside = [b for n, cell in enumerate(places) for b in (cell.value >= 0, cell.value < outer[n])]
        step = seq(*found, _when(inside, _columns_of_tile(lead, columns, data.shape[-1], write)))
        first = _columns_of_tile(lead, columns, data.shape[-1], copy)
        return seq(
            tir.loop_nest(zip(copied, outer, strict=True), first), tir.loop_nest(zip(update, each, strict=True), step)
        )

    extents = list(inner)
    if columns > 1 and extents:
        extents[-1] = ceildiv(extents[-1], columns)
    cells = [cell.buffer for cell in places]
    return te.extern([result], [data, indices, updates], te.each(extents, "scatter_nd", part, cells))[0]


def _require_updates(updates: te.Tensor, data: te.Tensor, shape: tuple[PrimExpr, ...]) -> None:
    if updates.ndim != len(shape):
        raise ValueError(f"updates: got shape {show_shape(updates.shape)}; expected {show_shape(shape)}")
    for axis, (size, expected) in enumerate(zip(updates.shape, shape, strict=True)):
        te.require_equal(size, expected, f"sizes of updates on axis {axis}")
    if updates.dtype != data.dtype:
        raise ValueError(f"updates: got {updates.dtype}; expected {data.dtype}, the dtype of data")


def _columns_of_tile(
    lead: tuple[PrimExpr, ...], columns: int, size: PrimExpr, body: Callable[[tuple[PrimExpr, ...]], tir.Stmt]
) -> tir.Stmt:
    """Run ``body`` at the indices of each column that tile ``lead[-1]`` has of a row of ``size``."""
    if columns == 1 or not lead:
        return body(lead)
    lane, begin = Var("lane"), lead[-1] * columns
    return For(lane, minimum(IntImm(columns), size - begin), body((*lead[:-1], begin + lane)))


def _each_column(
    lead: tuple[PrimExpr, ...], columns: int, size: PrimExpr, body: Callable[[tuple[PrimExpr, ...]], tir.Stmt]
) -> tir.Stmt:
    """Run ``body`` at the indices of each of the columns in tile ``lead[-1]``."""
    if columns == 1:
        return body(lead)
    lane = Var("lane")
    column, known = lead[-1] * columns + lane, static_size(size)
    inside = [] if known is not None and known % columns == 0 else [column < size]
    return For(lane, IntImm(columns), _when(inside, body((*lead[:-1], column))))


def _when(conditions: list[PrimExpr], body: tir.Stmt) -> tir.Stmt:
    return IfThenElse(logical_and(*conditions), body) if conditions else body
