"""Writing elements at computed indices."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.expr import INDEX_DTYPE, PrimExpr, Var, logical_and, maximum, minimum
from ...tir import nodes as tir
from ...tir import te
from ...tir.nodes import BufferStore, For, IfThenElse, seq
from ..info import is_shorter, show_shape
from .axes import normalize_axis
from .registry import operator

REDUCTIONS: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": maximum,
    "min": minimum,
}


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
    reduce = REDUCTIONS.get(reduction)
    if reduce is None:
        raise ValueError(f"reduction: got {reduction!r}; expected one of {', '.join(REDUCTIONS)}")
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

    def line(*lead: PrimExpr) -> tir.Stmt:
        """All elements along ``axis`` at the indices ``lead`` of the other axes."""
        copied, n = Var("copied"), Var("n")

        def index(position: PrimExpr) -> tuple[PrimExpr, ...]:
            return (*lead[:at], position, *lead[at:])

        target = index(place.value)
        inside = logical_and(place.value >= 0, place.value < size)
        write = seq(
            place.set(te.cast(indices.buffer[index(n)], INDEX_DTYPE)),
            IfThenElse(place.value < 0, place.set(place.value + size)),
            IfThenElse(inside, BufferStore(result, reduce(result[target], updates.buffer[index(n)]), target)),
        )
        scan: tir.Stmt = For(n, indices.shape[at], write)
        ends = [
            i < indices.shape[a]
            for i, a in zip(lead, others, strict=True)
            if is_shorter(indices.shape[a], data.shape[a])
        ]
        copy = For(copied, size, BufferStore(result, data.buffer[index(copied)], index(copied)))
        return seq(copy, IfThenElse(logical_and(*ends), scan) if ends else scan)

    lead = [data.shape[a] for a in others]
    return te.extern([result], [data, indices, updates], te.each(lead, "scatter_elements", line, [place.buffer]))[0]
