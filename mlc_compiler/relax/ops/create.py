"""Operators that make tensors from nothing."""

from __future__ import annotations

from ...ir.expr import PrimExpr, const
from ...ir.simplify import simplify
from ...tir import te
from .registry import Shape, operator


@operator("full")
def full(shape: Shape, fill_value: te.Tensor, *, dtype: str) -> te.Tensor:
    """Every element ``fill_value`` (a scalar)."""
    value = fill_value[()] if isinstance(fill_value, te.Tensor) else fill_value
    return te.compute(shape, lambda *_: te.cast(value, dtype), name="full")


@operator("zeros")
def zeros(shape: Shape, *, dtype: str) -> te.Tensor:
    """Every element 0."""
    return te.compute(shape, lambda *_: const(0, dtype), name="zeros")


@operator("ones")
def ones(shape: Shape, *, dtype: str) -> te.Tensor:
    """Every element 1."""
    return te.compute(shape, lambda *_: const(1, dtype), name="ones")


@operator("arange")
def arange(start: PrimExpr, end: PrimExpr, step: PrimExpr, *, dtype: str) -> te.Tensor:
    """``start, start + step, …`` below ``end``; integers, ``step`` positive."""
    size = simplify((end - start + (step - 1)) // step)
    return te.compute((size,), lambda i: te.cast(start + i * step, dtype), name="arange")
