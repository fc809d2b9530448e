"""Operators that create tensors."""

from __future__ import annotations

from ...ir.expr import IntImm, PrimExpr, const
from ...ir.simplify import simplify
from ...tir import te
from .registry import Shape, operator


@operator("full")
def full(shape: Shape, fill_value: te.Tensor, *, dtype: str) -> te.Tensor:
    """A tensor of ``shape`` filled with ``fill_value`` (a scalar)."""
    return te.compute(shape, lambda *_: te.cast(fill_value[()], dtype), name="full")


@operator("zeros")
def zeros(shape: Shape, *, dtype: str) -> te.Tensor:
    """A tensor of ``shape`` filled with 0."""
    return te.compute(shape, lambda *_: const(0, dtype), name="zeros")


@operator("ones")
def ones(shape: Shape, *, dtype: str) -> te.Tensor:
    """A tensor of ``shape`` filled with 1."""
    return te.compute(shape, lambda *_: const(1, dtype), name="ones")


@operator("full_like")
def full_like(x: te.Tensor, fill_value: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """A tensor filled with ``fill_value`` (a scalar), with the shape of ``x``, and its dtype when ``dtype`` is None."""
    return full.te(x.shape, fill_value, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("zeros_like")
def zeros_like(x: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """A tensor filled with 0, with the shape of ``x``, and its dtype when ``dtype`` is None."""
    return zeros.te(x.shape, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("ones_like")
def ones_like(x: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """A tensor filled with 1, with the shape of ``x``, and its dtype when ``dtype`` is None."""
    return ones.te(x.shape, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("arange")
def arange(start: PrimExpr, end: PrimExpr, step: PrimExpr, *, dtype: str) -> te.Tensor:
    """The integers ``start, start + step, …`` before ``end``, in ``dtype``; a symbolic ``step`` is positive."""
    sign = step.value if isinstance(step, IntImm) else 1
    if sign == 0:
        raise ValueError("step: got 0; expected another integer")
    length, stride = (end - start, step) if sign > 0 else (start - end, -step)
    size = simplify((length + (stride - 1)) // stride)
    if isinstance(size, IntImm):
        size = const(max(size.value, 0), size.dtype)
    return te.compute((size,), lambda i: te.cast(start + i * step, dtype), name="arange")
