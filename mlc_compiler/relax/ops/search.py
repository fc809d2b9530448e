"""Operators that look for elements."""

from __future__ import annotations

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Select, binary, logical_and, max_value, min_value
from ...tir import te
from ..info import static_size
from .registry import operator

RESULTS = ("both", "values", "indices")


@operator("topk")
def topk(
    data: te.Tensor, *, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> te.Tensor | list[te.Tensor]:
    """The ``k`` greatest (or least) elements along ``axis``, the best first, and where they are, in ``dtype``.

    Of equal elements the first comes first; k below 1 stands for all. ret_type: ``both``, ``values`` or ``indices``.
    Every element is compared with every other: for axes of some hundred elements.
    """
    if ret_type not in RESULTS:
        raise ValueError(f"ret_type: got {ret_type!r}; expected one of {', '.join(RESULTS)}")
    axis %= data.ndim
    size = data.shape[axis]
    count = IntImm(k) if k >= 1 else size
    if (static_size(size) or k) < k:
        raise ValueError(f"k: got {k}; expected at most {static_size(size)}, the size of axis {axis}")
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    other, place = te.reduce_axis(size, "other"), te.reduce_axis(size, "place")

    def at(i: tuple[PrimExpr, ...], position: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*i[:axis], position, *i[axis + 1 :])

    def better(*i: PrimExpr) -> PrimExpr:
        mine, theirs = data[i], data[at(i, other)]
        ahead = binary(">" if largest else "<", theirs, mine)
        earlier = logical_and(binary("==", theirs, mine), other < i[axis])
        return te.sum(te.cast(binary("or", ahead, earlier), "int32"), axis=other)

    rank = te.compute(data.shape, better, name="rank")

    def chosen(i: tuple[PrimExpr, ...]) -> PrimExpr:
        return binary("==", te.cast(rank[at(i, place)], INDEX_DTYPE), i[axis])

    def value(*i: PrimExpr) -> PrimExpr:
        return te.max(Select(chosen(i), data[at(i, place)], min_value(data.dtype)), axis=place)

    def index(*i: PrimExpr) -> PrimExpr:
        return te.min(Select(chosen(i), place, max_value(INDEX_DTYPE)), axis=place)

    indices = te.elementwise("indices", lambda v: te.cast(v, dtype), te.compute(shape, index, name="found"))
    results = [te.compute(shape, value, name="values"), indices]
    return results if ret_type == "both" else results[RESULTS.index(ret_type) - 1]
