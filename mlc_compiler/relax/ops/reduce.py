"""Reductions over axes. Floats below 32 bits are reduced in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Select, Var, binary, const, max_value, product
from ...tir import nodes as tir
from ...tir import te
from .axes import normalize_axes, normalize_axis
from .elementwise import wide
from .manipulate import flattened
from .registry import Operator, operator

Axis = int | tuple[int, ...] | None


class _Axes:
    """The reduced axes of a tensor, and the map from indices of the result to indices of the operand."""

    def __init__(self, x: te.Tensor, axis: Axis, keepdims: bool):
        self.reduced = sorted(normalize_axes(range(x.ndim) if axis is None else axis, x.ndim))
        self.keepdims = keepdims
        names = ["k"] if len(self.reduced) == 1 else [f"k{n}" for n in range(len(self.reduced))]
        self.k = [te.reduce_axis(x.shape[a], name) for a, name in zip(self.reduced, names, strict=True)]
        self.shape = [
            IntImm(1) if a in self.reduced else s for a, s in enumerate(x.shape) if keepdims or a not in self.reduced
        ]
        self.ndim = x.ndim

    def index(self, i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if self.keepdims:
            return tuple(self.k[self.reduced.index(a)] if a in self.reduced else i[a] for a in range(self.ndim))
        kept = iter(i)
        return tuple(self.k[self.reduced.index(a)] if a in self.reduced else next(kept) for a in range(self.ndim))

    def count(self) -> PrimExpr:
        return product(axis.extent for axis in self.k)


def _reduction(name: str, combine: Callable[..., Any], what: str) -> Operator:
    def definition(x: te.Tensor, *, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
        axes = _Axes(x, axis, keepdims)
        result = te.compute(axes.shape, lambda *i: combine(wide(x[axes.index(i)]), axis=axes.k), name=name)
        return result if result.dtype == x.dtype else te.elementwise("cast", lambda v: te.cast(v, x.dtype), result)

    definition.__doc__ = f"The {what} over ``axis`` (None: all axes)."
    return operator(name)(definition)


sum = _reduction("sum", te.sum, "sum")
max = _reduction("max", te.max, "maximum")
min = _reduction("min", te.min, "minimum")
prod = _reduction("prod", te.prod, "product")


@operator("mean")
def mean(x: te.Tensor, *, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The arithmetic mean over ``axis`` (None: all axes), summed in float32."""
    axes = _Axes(x, axis, keepdims)
    total = te.compute(axes.shape, lambda *i: te.sum(te.f32(x[axes.index(i)]), axis=axes.k), name="sum")
    return te.elementwise("mean", lambda v: te.cast(v / te.f32(axes.count()), x.dtype), total)


@operator("variance")
def variance(x: te.Tensor, *, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The mean squared deviation from the mean over ``axis`` (None: all axes), summed in float32."""
    axes = _Axes(x, axis, keepdims)
    count = te.f32(axes.count())
    total = te.compute(axes.shape, lambda *i: te.sum(te.f32(x[axes.index(i)]), axis=axes.k), name="sum")

    def square(*i: PrimExpr) -> PrimExpr:
        centered = te.f32(x[axes.index(i)]) - total[i] / count
        return te.sum(centered * centered, axis=axes.k)

    squares = te.compute(axes.shape, square, name="square_sum")
    return te.elementwise("variance", lambda v: te.cast(v / count, x.dtype), squares)


@operator("std")
def std(x: te.Tensor, *, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
    """The square root of ``variance`` over ``axis`` (None: all axes)."""
    return te.elementwise(
        "std", lambda v: te.cast(te.sqrt(wide(v)), v.dtype), variance.te(x, axis=axis, keepdims=keepdims)
    )


def _position(name: str, best: Callable[..., Any], what: str) -> Operator:
    def definition(x: te.Tensor, *, axis: int | None = -1, keepdims: bool = False) -> te.Tensor:
        if axis is not None:
            return _first_best(name, best, x, normalize_axis(axis, x.ndim), keepdims)
        place = _first_best(name, best, flattened(x), 0, False)
        return te.compute((1,) * x.ndim, lambda *_: place[()], name=name) if keepdims else place

    definition.__doc__ = f"The int64 index along ``axis`` of the first {what}. None: the index in the flattened tensor."
    return operator(name)(definition)


def _first_best(name: str, best: Callable[..., Any], x: te.Tensor, axis: int, keepdims: bool) -> te.Tensor:
    """The first index along ``axis`` of the element that the reduction ``best`` selects."""
    axes, again = _Axes(x, axis, keepdims), _Axes(x, axis, keepdims)
    extreme = te.compute(axes.shape, lambda *i: best(x[axes.index(i)], axis=axes.k), name="extreme")

    def first(*i: PrimExpr) -> PrimExpr:
        found = binary("==", x[again.index(i)], extreme[i])
        return te.min(Select(found, again.k[0], max_value(INDEX_DTYPE)), axis=again.k)

    return te.compute(axes.shape, first, name=name)


argmax = _position("argmax", te.max, "maximum")
argmin = _position("argmin", te.min, "minimum")


@operator("cumsum")
def cumsum(x: te.Tensor, *, axis: int | None = None, dtype: str | None = None, exclusive: bool = False) -> te.Tensor:
    """The cumulative sum along ``axis``. exclusive: exclude the element itself.

    axis None: ``x`` is flattened first. dtype: dtype of the result; None: that of ``x``.
    """
    return _cumulative("cumsum", lambda total, value: total + value, 0, x, axis, dtype or x.dtype, exclusive)


@operator("cumprod")
def cumprod(x: te.Tensor, *, axis: int | None = None, dtype: str | None = None, exclusive: bool = False) -> te.Tensor:
    """The cumulative product along ``axis``. exclusive: exclude the element itself.

    axis None: ``x`` is flattened first. dtype: dtype of the result; None: that of ``x``.
    """
    return _cumulative("cumprod", lambda total, value: total * value, 1, x, axis, dtype or x.dtype, exclusive)


def _cumulative(
    name: str,
    combine: Callable[[Any, Any], PrimExpr],
    first: int,
    x: te.Tensor,
    axis: int | None,
    dtype: str,
    exclusive: bool,
) -> te.Tensor:
    """The cumulative ``combine`` of each row, in one pass; floats below 32 bits are accumulated in float32."""
    x, axis = (flattened(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    start = wide(const(first, dtype))
    out, so_far = tir.buffer(name, x.shape, dtype), te.Cell("so_far", start.dtype)

    def row(*lead: PrimExpr) -> tir.Stmt:
        k = Var("k")
        place = (*lead[:axis], k, *lead[axis:])
        step = so_far.set(combine(so_far.value, te.cast(te.cast(x[place], dtype), start.dtype)))
        store = tir.BufferStore(out, te.cast(so_far.value, dtype), place)
        both = (store, step) if exclusive else (step, store)
        return tir.seq(so_far.set(start), tir.For(k, x.shape[axis], tir.seq(*both)))

    lead = x.shape[:axis] + x.shape[axis + 1 :]
    return te.extern([out], [x], te.each(lead, name, row, [so_far.buffer]))[0]
