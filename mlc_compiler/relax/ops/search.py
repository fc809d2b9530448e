"""Sorting and selection operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir import dtype as dt
from ...ir.expr import (
    INDEX_DTYPE,
    IntImm,
    Not,
    PrimExpr,
    Var,
    binary,
    const,
    logical_and,
    logical_or,
    max_value,
    min_value,
    minimum,
)
from ...tir import nodes as tir
from ...tir import te
from ...tir.nodes import BufferStore, For, IfThenElse, While, seq
from ..info import static_size
from .axes import normalize_axis
from .registry import operator

RESULTS = ("both", "values", "indices")
NO = const(0, "bool")

Comparison = Callable[[PrimExpr, PrimExpr], PrimExpr]
Order = Callable[[te.Tensor, int, bool, str], te.Tensor]
"""``order(data, axis, descending, dtype)``: the sorted indices along an axis."""


@operator("topk")
def topk(
    data: te.Tensor, *, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> te.Tensor | list[te.Tensor]:
    """The ``k`` largest (or smallest) elements along ``axis``, sorted, and their indices in ``dtype``.

    Equal elements keep their order; NaN are greater than numbers; k < 1 selects all. ret_type: ``both``, ``values`` or
    ``indices``. When a symbolic axis has fewer than k elements, the rest of the values are the dtype's minimum (or
    maximum), the indices -1.
    """
    return best_elements(data, k, axis, ret_type, largest, dtype, _order if k < 1 else None)


def best_elements(
    data: te.Tensor, k: int, axis: int, ret_type: str, largest: bool, dtype: str, order: Order | None
) -> te.Tensor | list[te.Tensor]:
    """The operator ``topk``. order: sorts all elements; None: the best ones are inserted into a sorted list."""
    if ret_type not in RESULTS:
        raise ValueError(f"ret_type: got {ret_type!r}; expected one of {', '.join(RESULTS)}")
    axis = normalize_axis(axis, data.ndim)
    size = static_size(data.shape[axis])
    if size is not None and k > size:
        raise ValueError(f"k: got {k}; expected at most {size}, the size of axis {axis}")
    if order is not None:
        places = order(data, axis, largest, dtype)
        if k > 0:
            first = (*data.shape[:axis], IntImm(k), *data.shape[axis + 1 :])
            every = places
            places = te.compute(first, lambda *i: every[i], name="first")
        results = [_gather(data, axis, places), places]
    else:
        results = list(_best(data, axis, k, largest, dtype))
    return results if ret_type == "both" else results[RESULTS.index(ret_type) - 1]


@operator("argsort")
def argsort(data: te.Tensor, *, axis: int = -1, descending: bool = False, dtype: str = "int32") -> te.Tensor:
    """The indices that sort the elements along ``axis`` in ascending (or descending) order.

    The sort is stable; NaN are greater than numbers.
    """
    return sorted_places(data, axis, descending, dtype, _order)


@operator("sort")
def sort(data: te.Tensor, *, axis: int = -1, descending: bool = False) -> te.Tensor:
    """The elements in ascending (or descending) order along ``axis``, with the order of ``argsort``."""
    return sorted_elements(data, axis, descending, _order)


def sorted_places(data: te.Tensor, axis: int, descending: bool, dtype: str, order: Order) -> te.Tensor:
    """The operator ``argsort`` by ``order``."""
    return order(data, normalize_axis(axis, data.ndim), descending, dtype)


def sorted_elements(data: te.Tensor, axis: int, descending: bool, order: Order) -> te.Tensor:
    """The operator ``sort`` by ``order``."""
    axis = normalize_axis(axis, data.ndim)
    return _gather(data, axis, order(data, axis, descending, INDEX_DTYPE))


class _Row:
    """The row along ``axis`` at indices ``lead`` of the other axes; loads and stores its elements."""

    def __init__(self, lead: Sequence[PrimExpr], axis: int):
        self.lead, self.axis = tuple(lead), axis

    def index(self, at: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*self.lead[: self.axis], at, *self.lead[self.axis :])

    def load(self, buffer: tir.Buffer, at: PrimExpr) -> PrimExpr:
        return buffer[self.index(at)]

    def store(self, buffer: tir.Buffer, at: PrimExpr, value: PrimExpr) -> tir.Stmt:
        return BufferStore(buffer, te.cast(value, buffer.dtype), self.index(at))


def _better(largest: bool) -> Comparison:
    return lambda a, b: binary(">" if largest else "<", a, b)


def _before(descending: bool, dtype: str) -> Comparison:
    """Whether an element is before another one in a sorted row; NaN are greater than numbers."""
    better = _better(descending)
    if not dt.is_float(dtype):
        return better

    def is_nan(value: PrimExpr) -> PrimExpr:
        return binary("!=", value, value)

    def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        greatest, number = (a, b) if descending else (b, a)
        return logical_or(better(a, b), logical_and(is_nan(greatest), Not(is_nan(number))))

    return before


def _gather(data: te.Tensor, axis: int, places: te.Tensor) -> te.Tensor:
    def element(*i: PrimExpr) -> PrimExpr:
        return data[(*i[:axis], te.cast(places[i], INDEX_DTYPE), *i[axis + 1 :])]

    return te.compute(places.shape, element, name="values")


def _best(data: te.Tensor, axis: int, k: int, largest: bool, dtype: str) -> tuple[te.Tensor, ...]:
    """The k best elements of each row and their indices, by insertion into a sorted list."""
    better, size = _before(largest, data.dtype), data.shape[axis]
    shape = (*data.shape[:axis], IntImm(k), *data.shape[axis + 1 :])
    values, places = tir.buffer("values", shape, data.dtype), tir.buffer("indices", shape, dtype)
    element, slot = te.Cell("element", data.dtype), te.Cell("slot", INDEX_DTYPE)

    def row(*lead: PrimExpr) -> tir.Stmt:
        r, at, free = _Row(lead, axis), Var("at"), Var("free")
        before = slot.value - 1
        shift = seq(
            r.store(values, slot.value, r.load(values, before)),
            r.store(places, slot.value, r.load(places, before)),
            slot.set(before),
        )
        is_ahead = te.if_then_else(slot.value > 0, better(element.value, r.load(values, before)), NO)
        insert = seq(
            slot.set(minimum(at, k - 1)),
            While(is_ahead, shift),
            r.store(values, slot.value, element.value),
            r.store(places, slot.value, at),
        )
        belongs = te.if_then_else(at < k, const(1, "bool"), better(element.value, r.load(values, IntImm(k - 1))))
        scan = For(at, size, seq(element.set(r.load(data.buffer, at)), IfThenElse(belongs, insert)))
        if static_size(size) is not None:
            return scan
        worst = min_value(data.dtype) if largest else max_value(data.dtype)
        return seq(
            For(free, IntImm(k), seq(r.store(values, free, worst), r.store(places, free, const(-1, dtype)))), scan
        )

    lead = data.shape[:axis] + data.shape[axis + 1 :]
    return te.extern([values, places], [data], te.each(lead, "topk", row, [element.buffer, slot.buffer]))


def _order(data: te.Tensor, axis: int, descending: bool, dtype: str) -> te.Tensor:
    """The sorted indices of each row, by a bottom-up merge sort."""
    before, size = _before(descending, data.dtype), data.shape[axis]
    places = tir.buffer("indices", data.shape, dtype)
    merged = tir.buffer("merged", (size,), dtype)
    cells = [te.Cell(name, INDEX_DTYPE) for name in ("width", "start", "left", "right", "out")]
    width, start, left, right, out = cells

    def row(*lead: PrimExpr) -> tir.Stmt:
        r, at, copied = _Row(lead, axis), Var("at"), Var("copied")
        middle, end = minimum(start.value + width.value, size), minimum(start.value + width.value * 2, size)

        def element(cell: te.Cell) -> PrimExpr:
            return r.load(data.buffer, te.cast(r.load(places, cell.value), INDEX_DTYPE))

        def take(cell: te.Cell) -> tir.Stmt:
            store = BufferStore(merged, r.load(places, cell.value), (out.value,))
            return seq(store, cell.set(cell.value + 1))

        both = te.if_then_else(left.value < middle, before(element(right), element(left)), const(1, "bool"))
        from_right = te.if_then_else(right.value < end, both, NO)
        merge = While(out.value < end, seq(IfThenElse(from_right, take(right), take(left)), out.set(out.value + 1)))
        pair = seq(left.set(start.value), right.set(middle), out.set(start.value), merge)
        pairs = While(start.value < size, seq(pair, start.set(start.value + width.value * 2)))
        keep = For(copied, size, r.store(places, copied, merged[copied]))
        rounds = While(width.value < size, seq(start.set(0), pairs, keep, width.set(width.value * 2)))
        return seq(For(at, size, r.store(places, at, at)), width.set(1), rounds)

    lead = data.shape[:axis] + data.shape[axis + 1 :]
    scratch = [merged, *(cell.buffer for cell in cells)]
    return te.extern([places], [data], te.each(lead, "argsort", row, scratch))[0]
