"""Operators that rearrange elements: shapes, axes, slices, gathers. Each is one injective compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Var, const, is_const, maximum, minimum, product
from ...ir.simplify import Analyzer, simplify
from ...tir import te
from ..info import show_shape, static_size
from ..nodes import Expr, TensorStructInfo
from .axes import normalize_axes, normalize_axis
from .registry import Shape, Tensors, operator


def _product(sizes: Sequence[PrimExpr]) -> PrimExpr:
    return simplify(product(sizes))


def _target_shape(old: Shape, new: Shape) -> Shape:
    """``new`` with -1 inferred. Raises ValueError when the numbers of elements are known and differ."""
    open_axes = [i for i, s in enumerate(new) if is_const(s, -1)]
    if len(open_axes) > 1:
        raise ValueError(f"shape: got {show_shape(new)}; expected at most one -1")
    rest = _product([s for s in new if not is_const(s, -1)])
    if open_axes:
        filled = simplify(_product(old) // rest)
        return tuple(filled if i in open_axes else s for i, s in enumerate(new))
    before, after = static_size(_product(old)), static_size(rest)
    if before is not None and after is not None and before != after:
        raise ValueError(f"{show_shape(old)} has {before} elements, {show_shape(new)} has {after}")
    return new


def _source_index(indices: Sequence[Var], new: Shape, old: Shape) -> tuple[PrimExpr, ...]:
    """The index into the old shape of element ``indices`` of the new shape."""
    analyzer = Analyzer(dict(zip(indices, new, strict=True)))
    flat: PrimExpr = IntImm(0)
    for index, size in zip(indices, new, strict=True):
        flat = flat * size + index
    result: list[PrimExpr] = []
    remaining = [i for i, s in enumerate(old) if not is_const(s, 1)]
    for axis in reversed(range(len(old))):
        if axis not in remaining:
            result.append(IntImm(0))
            continue
        first = axis == remaining[0]
        result.append(analyzer.simplify(flat if first else flat % old[axis]))
        flat = analyzer.simplify(flat // old[axis])
    return tuple(reversed(result))


@operator("reshape")
def reshape(x: te.Tensor, shape: Shape) -> te.Tensor:
    """The same elements in row-major order with another shape; one size may be -1."""
    new = _target_shape(x.shape, shape)
    return te.compute(new, lambda *i: x[_source_index(i, new, x.shape)], name="reshape")


def flattened(x: te.Tensor) -> te.Tensor:
    """The elements in row-major order, as a vector."""
    return reshape.te(x, (_product(x.shape),))  # type: ignore[return-value]


@operator("permute_dims")
def permute_dims(x: te.Tensor, *, axes: tuple[int, ...] | None = None) -> te.Tensor:
    """Axis ``i`` of the result is axis ``axes[i]`` of ``x``; None reverses the axes."""
    order = tuple(reversed(range(x.ndim))) if axes is None else normalize_axes(axes, x.ndim)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"axes: got {list(order)}; expected each of the {x.ndim} axes once")
    shape = [x.shape[a] for a in order]
    return te.compute(shape, lambda *i: x[tuple(i[order.index(a)] for a in range(x.ndim))], name="transpose")


@operator("expand_dims")
def expand_dims(x: te.Tensor, *, axis: int | tuple[int, ...]) -> te.Tensor:
    """Insert axes of size 1; ``axis`` are their positions in the result."""
    ndim = x.ndim + (1 if isinstance(axis, int) else len(axis))
    new = set(normalize_axes(axis, ndim))
    old = iter(x.shape)
    shape = [IntImm(1) if a in new else next(old) for a in range(ndim)]
    return te.compute(shape, lambda *i: x[tuple(v for a, v in enumerate(i) if a not in new)], name="expand_dims")


def _axes_of_size_one(args: Sequence[Expr], attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """``squeeze(axis=None)`` with explicit axes: those of constant size 1, not symbolic ones."""
    info = args[0].struct_info if args else None
    if attrs["axis"] is not None or not isinstance(info, TensorStructInfo) or info.shape is None:
        return {}
    return {"axis": tuple(a for a, s in enumerate(info.shape) if is_const(s, 1))}


@operator("squeeze", explicit=_axes_of_size_one)
def squeeze(x: te.Tensor, *, axis: int | tuple[int, ...] | None = None) -> te.Tensor:
    """Remove axes of size 1; None removes all axes of constant size 1."""
    if axis is None:
        dropped = {a for a, s in enumerate(x.shape) if is_const(s, 1)}
    else:
        dropped = set(normalize_axes(axis, x.ndim))
    wrong = [a for a in dropped if not is_const(x.shape[a], 1)]
    if wrong:
        raise ValueError(f"axis: got {wrong} of shape {show_shape(x.shape)}; expected axes of size 1")

    def source(i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        kept = iter(i)
        return tuple(IntImm(0) if a in dropped else next(kept) for a in range(x.ndim))

    return te.compute([s for a, s in enumerate(x.shape) if a not in dropped], lambda *i: x[source(i)], name="squeeze")


@operator("broadcast_to")
def broadcast_to(x: te.Tensor, shape: Shape) -> te.Tensor:
    """Broadcast ``x`` to ``shape`` along axes of size 1 and new leading axes, as in numpy."""
    te.broadcast_shape([x.shape, shape])
    return te.compute(shape, lambda *i: x[te.broadcast_index(x.shape, i)], name="broadcast_to")


@operator("split")
def split(x: te.Tensor, *, indices_or_sections: int | tuple[int, ...], axis: int = 0) -> Tensors:
    """Split along ``axis`` into a number of equal parts, or at the given indices. Returns a tuple."""
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(indices_or_sections, int):
        known = static_size(size)
        if known is None or indices_or_sections < 1 or known % indices_or_sections:
            raise ValueError(f"axis {axis} of {show_shape(x.shape)} has no {indices_or_sections} equal parts")
        indices_or_sections = tuple(range(0, known, known // indices_or_sections))[1:]
    bounds = [IntImm(0), *(IntImm(i) for i in indices_or_sections), size]
    return tuple(_slice(x, axis, low, simplify(high - low), "split") for low, high in pairwise(bounds))


def _slice(x: te.Tensor, axis: int, low: PrimExpr, size: PrimExpr, name: str) -> te.Tensor:
    shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]
    return te.compute(shape, lambda *i: x[(*i[:axis], low + i[axis], *i[axis + 1 :])], name=name)


@operator("concat")
def concat(tensors: Tensors, *, axis: int = 0) -> te.Tensor:
    """Concatenate tensors along ``axis``; their other sizes must be equal."""
    if axis is None or not tensors:
        raise ValueError("concat needs at least one tensor and an axis")
    if len({tensor.ndim for tensor in tensors}) > 1 or not tensors[0].ndim:
        shapes = ", ".join(show_shape(tensor.shape) for tensor in tensors)
        raise ValueError(f"got shapes {shapes}; expected the same number of axes, at least one")
    axis = normalize_axis(axis, tensors[0].ndim)
    ends: list[PrimExpr] = [IntImm(0)]
    for tensor in tensors:
        for other in set(range(tensors[0].ndim)) - {axis}:
            te.require_equal(tensor.shape[other], tensors[0].shape[other], f"sizes on axis {other}")
        ends.append(simplify(ends[-1] + tensor.shape[axis]))
    shape = [*tensors[0].shape[:axis], ends[-1], *tensors[0].shape[axis + 1 :]]

    def element(*i: PrimExpr) -> PrimExpr:
        def inside(n: int) -> PrimExpr:
            return tensors[n][(*i[:axis], simplify(i[axis] - ends[n]), *i[axis + 1 :])]

        value = inside(len(tensors) - 1)
        for n in reversed(range(len(tensors) - 1)):
            value = te.if_then_else(i[axis] < ends[n + 1], inside(n), value)
        return value

    return te.compute(shape, element, name="concat")


def clipped_element(x: te.Tensor, place: Sequence[PrimExpr], axis: int) -> PrimExpr:
    """``x[place]`` with the index on ``axis`` clipped to the valid range; 0 when the axis is empty."""
    size = x.shape[axis]
    inside = maximum(minimum(place[axis], size - 1), 0)
    value = x[(*place[:axis], inside, *place[axis + 1 :])]
    return value if static_size(size) else te.if_then_else(size > 0, value, const(0, x.dtype))


@operator("take")
def take(x: te.Tensor, indices: te.Tensor, *, axis: int | None = None, mode: str = "clip") -> te.Tensor:
    """``x`` at ``indices`` (integers, any shape) along ``axis``; None: the only axis of a vector.

    mode "clip" clips indices to the valid range, and gives zeros for an axis of size 0; "fast" requires valid indices.
    """
    if mode not in ("clip", "fast"):
        raise ValueError(f"mode: got {mode!r}; expected 'clip' or 'fast'")
    if not x.ndim or (axis is None and x.ndim != 1):
        raise ValueError(f"axis: got None for shape {show_shape(x.shape)}; expected an axis")
    at = normalize_axis(axis or 0, x.ndim)
    lead, tail = x.shape[:at], x.shape[at + 1 :]

    def element(*i: PrimExpr) -> PrimExpr:
        index = te.cast(indices[i[at : len(i) - len(tail)]], INDEX_DTYPE)
        place = (*i[:at], index, *i[len(i) - len(tail) :])
        return x[place] if mode == "fast" else clipped_element(x, place, at)

    return te.compute((*lead, *indices.shape, *tail), element, name="take")


@operator("strided_slice")
def strided_slice(x: te.Tensor, axes: Shape, begin: Shape, end: Shape, strides: Shape = ()) -> te.Tensor:
    """``x[begin:end:stride]`` along ``axes``. Negative indices count from the end; strides are positive constants."""
    steps = [static_size(s) or 0 for s in strides] or [1] * len(axes)
    if min(steps) < 1:
        raise ValueError(f"strides: got {show_shape(strides)}; expected positive numbers")
    low: list[PrimExpr] = [IntImm(0)] * x.ndim
    step, shape = [1] * x.ndim, list(x.shape)
    places = normalize_axes([static_size(a) for a in axes], x.ndim)
    for a, first, last, stride in zip(places, begin, end, steps, strict=True):
        low[a], step[a] = _from_front(first, x.shape[a]), stride
        length = _from_front(last, x.shape[a]) - low[a]
        shape[a] = simplify(maximum(length + (stride - 1), 0) // stride)
    return te.compute(shape, lambda *i: x[tuple(low[a] + v * step[a] for a, v in enumerate(i))], name="strided_slice")


def _from_front(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    known = static_size(index)
    if known is None:
        return index
    return simplify(maximum(size + known, 0) if known < 0 else minimum(known, size))


@operator("triu")
def triu(x: te.Tensor, *, k: int = 0) -> te.Tensor:
    """Copy ``x`` with zeros below diagonal ``k`` of the last two axes."""
    return _triangle(x, "triu", lambda row, column: column - row >= k)


@operator("tril")
def tril(x: te.Tensor, *, k: int = 0) -> te.Tensor:
    """Copy ``x`` with zeros above diagonal ``k`` of the last two axes."""
    return _triangle(x, "tril", lambda row, column: column - row <= k)


def _triangle(x: te.Tensor, name: str, keep: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> te.Tensor:
    if x.ndim < 2:
        raise ValueError(f"got shape {show_shape(x.shape)}; expected at least two axes")
    return te.compute(x.shape, lambda *i: te.select(keep(i[-2], i[-1]), x[i], const(0, x.dtype)), name=name)
