"""Operators that create tensors."""

from __future__ import annotations

from ...ir.expr import PrimExpr, const
from ...ir.simplify import simplify
from ...tir import te
from .registry import Shape, operator


@operator("full")
def full(shape: Shape, fill_value: te.Tensor, *, dtype: str) -> te.Tensor:
    """Every element ``fill_value`` (a scalar)."""
    return te.compute(shape, lambda *_: te.cast(fill_value[()], dtype), name="full")


@operator("zeros")
def zeros(shape: Shape, *, dtype: str) -> te.Tensor:
    """Every element 0."""
    return te.compute(shape, lambda *_: const(0, dtype), name="zeros")


@operator("ones")
def ones(shape: Shape, *, dtype: str) -> te.Tensor:
    """Every element 1."""
    return te.compute(shape, lambda *_: const(1, dtype), name="ones")


@operator("full_like")
def full_like(x: te.Tensor, fill_value: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """``fill_value`` (a scalar) in the shape of ``x``, and in its type when ``dtype`` is None."""
    return full.te(x.shape, fill_value, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("zeros_like")
def zeros_like(x: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """0 in the shape of ``x``, and in its type when ``dtype`` is None."""
    return zeros.te(x.shape, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("ones_like")
def ones_like(x: te.Tensor, *, dtype: str | None = None) -> te.Tensor:
    """1 in the shape of ``x``, and in its type when ``dtype`` is None."""
    return ones.te(x.shape, dtype=dtype or x.dtype)  # type: ignore[return-value]


@operator("arange")
def arange(start: PrimExpr, end: PrimExpr, step: PrimExpr, *, dtype: str) -> te.Tensor:
    """``start, start + step, …`` below ``end``; integers, ``step`` positive."""
    size = simplify((end - start + (step - 1)) // step)
    return te.compute((size,), lambda i: te.cast(start + i * step, dtype), name="arange")
