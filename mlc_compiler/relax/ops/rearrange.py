"""Operators that repeat, reverse, stack, pad and gather elements. Each is one injective compute."""

from __future__ import annotations

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, logical_and
from ...ir.simplify import simplify
from ...tir import te
from ..info import is_shorter, show_shape
from .axes import normalize_axis
from .manipulate import clipped_element, flattened
from .registry import Tensors, operator


@operator("repeat")
def repeat(data: te.Tensor, *, repeats: int, axis: int | None = None) -> te.Tensor:
    """Repeat each element ``repeats`` times along ``axis``; None: ``data`` is flattened first."""
    if repeats < 0:
        raise ValueError(f"repeats: got {repeats}; expected 0 or more")
    x, at = (flattened(data), 0) if axis is None else (data, normalize_axis(axis, data.ndim))
    shape = [*x.shape[:at], simplify(x.shape[at] * repeats), *x.shape[at + 1 :]]
    return te.compute(shape, lambda *i: x[(*i[:at], i[at] // repeats, *i[at + 1 :])], name="repeat")


@operator("tile")
def tile(data: te.Tensor, *, repeats: int | tuple[int, ...]) -> te.Tensor:
    """Repeat the tensor along its axes, as ``numpy.tile``; the last element of ``repeats`` is for the last axis."""
    times = (repeats,) if isinstance(repeats, int) else repeats
    rank = max(data.ndim, len(times))
    times = (1,) * (rank - len(times)) + tuple(times)
    sizes = (*(IntImm(1) for _ in range(rank - data.ndim)), *data.shape)

    def element(*i: PrimExpr) -> PrimExpr:
        return data[tuple(i[a] % sizes[a] for a in range(rank - data.ndim, rank))]

    return te.compute([simplify(s * t) for s, t in zip(sizes, times, strict=True)], element, name="tile")


@operator("flip")
def flip(data: te.Tensor, *, axis: int) -> te.Tensor:
    """The elements in reverse order along ``axis``."""
    at = normalize_axis(axis, data.ndim)
    last = data.shape[at] - 1
    return te.compute(data.shape, lambda *i: data[(*i[:at], last - i[at], *i[at + 1 :])], name="flip")


@operator("stack")
def stack(tensors: Tensors, *, axis: int = 0) -> te.Tensor:
    """Stack tensors of the same shape along a new axis."""
    if not tensors or any(t.ndim != tensors[0].ndim for t in tensors):
        raise ValueError(f"got shapes {', '.join(show_shape(t.shape) for t in tensors)}; expected equal ones")
    for tensor in tensors[1:]:
        for a, (size, first) in enumerate(zip(tensor.shape, tensors[0].shape, strict=True)):
            te.require_equal(size, first, f"sizes on axis {a}")
    at = normalize_axis(axis, tensors[0].ndim + 1)
    shape = [*tensors[0].shape[:at], IntImm(len(tensors)), *tensors[0].shape[at:]]

    def element(*i: PrimExpr) -> PrimExpr:
        place = (*i[:at], *i[at + 1 :])
        value: PrimExpr = tensors[-1][place]
        for n in reversed(range(len(tensors) - 1)):
            value = te.if_then_else(i[at] < n + 1, tensors[n][place], value)
        return value

    return te.compute(shape, element, name="stack")


@operator("nn.pad")
def pad(
    data: te.Tensor, *, pad_width: tuple[int, ...], pad_mode: str = "constant", pad_value: float = 0.0
) -> te.Tensor:
    """Pad with ``pad_value``. ``pad_width``: the numbers of elements before and after, for each axis in turn."""
    if pad_mode != "constant":
        raise ValueError(f"pad_mode: got {pad_mode!r}; expected 'constant'")
    if len(pad_width) != 2 * data.ndim or min(pad_width, default=0) < 0:
        raise ValueError(f"pad_width: got {list(pad_width)}; expected {2 * data.ndim} numbers, none negative")
    before, after = pad_width[::2], pad_width[1::2]

    def element(*i: PrimExpr) -> PrimExpr:
        places = [v - b if b else v for v, b in zip(i, before, strict=True)]
        inside = [v >= b for v, b in zip(i, before, strict=True) if b]
        inside += [p < s for p, s, a in zip(places, data.shape, after, strict=True) if a]
        if not inside:
            return data[tuple(places)]
        return te.if_then_else(logical_and(*inside), data[tuple(places)], te.cast(pad_value, data.dtype))

    shape = [simplify(s + b + a) for s, b, a in zip(data.shape, before, after, strict=True)]
    return te.compute(shape, element, name="pad")


@operator("gather_elements")
def gather_elements(data: te.Tensor, indices: te.Tensor, *, axis: int = 0) -> te.Tensor:
    """``data`` with the index along ``axis`` replaced by ``indices`` (integers), as ``numpy.take_along_axis``.

    indices: as many axes as data, sizes on the other axes at most data's. Returns the shape of ``indices``. Indices
    are clipped to the valid range; for an axis of size 0 the result is 0.
    """
    if indices.ndim != data.ndim:
        raise ValueError(f"indices: got shape {show_shape(indices.shape)}; expected {data.ndim} axes")
    at = normalize_axis(axis, data.ndim)
    for a, (size, count) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if a != at and not is_shorter(count, size):
            te.require_equal(size, count, f"sizes on axis {a}")

    def element(*i: PrimExpr) -> PrimExpr:
        return clipped_element(data, (*i[:at], te.cast(indices[i], INDEX_DTYPE), *i[at + 1 :]), at)

    return te.compute(indices.shape, element, name="gather_elements")
