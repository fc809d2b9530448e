"""Helpers for structure info, and graph values made from Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import ExprLike, IntImm, PrimExpr, as_expr
from .nodes import (
    Constant,
    Expr,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
)


class StructInfoError(MLCError, ValueError):
    """A value whose shape or dtype is unknown or not as required."""


def tensor_info(shape: Sequence[ExprLike], dtype: str) -> TensorStructInfo:
    """Struct info of a tensor of known shape; sizes are integers or symbolic. Raises StructInfoError otherwise."""
    try:
        sizes = tuple(as_expr(s) for s in shape)
        dt.bits(dtype)
    except (TypeError, ValueError) as error:
        raise StructInfoError(f"got a tensor of shape {shape} and dtype {dtype!r}: {error}") from error
    return TensorStructInfo(sizes, dtype)


def info_of(expr: Expr) -> StructInfo:
    """The structure info of a graph value. Raises StructInfoError when it has none."""
    if expr.struct_info is None:
        raise StructInfoError(f"{type(expr).__name__} {getattr(expr, 'name', '')} has no structure info")
    return expr.struct_info


def tensor_info_of(expr: Expr) -> TensorStructInfo:
    """The structure info of a tensor with known shape. Raises StructInfoError for anything else."""
    info = info_of(expr)
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        got = f"{type(expr).__name__} with {type(info).__name__}"
        raise StructInfoError(f"expected a tensor of known shape, got {got}")
    return info


def is_void(info: StructInfo | None) -> bool:
    """Whether a call returns nothing (an empty tuple) and is made for its side effects."""
    return isinstance(info, TupleStructInfo) and not info.fields


def shape_of(expr: Expr) -> tuple[PrimExpr, ...]:
    """The shape of a tensor, sizes integer or symbolic. Raises StructInfoError when it is unknown."""
    shape = tensor_info_of(expr).shape
    assert shape is not None
    return shape


def shape_expr(values: Sequence[ExprLike]) -> ShapeExpr:
    """``R.shape([...])``"""
    exprs = tuple(as_expr(v) for v in values)
    return ShapeExpr(exprs, ShapeStructInfo(exprs, len(exprs)))


def prim_value(value: ExprLike) -> PrimValue:
    """``R.prim_value(...)``"""
    expr = as_expr(value)
    return PrimValue(expr, PrimStructInfo(expr.dtype, expr))


def make_tuple(fields: Sequence[Expr]) -> Tuple:
    """A tuple with its structure info."""
    return Tuple(tuple(fields), TupleStructInfo(tuple(info_of(f) for f in fields)))


def get_item(value: Expr, index: int) -> Expr:
    """Field ``index`` of a tuple-valued expression; for a ``Tuple`` the field itself."""
    if isinstance(value, Tuple):
        return value.fields[index]
    info = info_of(value)
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"expected a tuple to take item {index} of, got {type(info).__name__}")
    return TupleGetItem(value, index, info.fields[index])


def scalar_constant(value: float | int | bool, dtype: str) -> Constant:
    """``R.const(value, dtype)``: a tensor of shape ()."""
    return Constant(np.array(value, dt.to_numpy(dtype)), TensorStructInfo((), dtype))


def static_size(size: Any) -> int | None:
    """The value of a constant size; None for a symbolic one."""
    return size.value if isinstance(size, IntImm) else None


def is_shorter(a: Any, b: Any) -> bool:
    """Whether both sizes are constant and the first is the smaller one."""
    known_a, known_b = static_size(a), static_size(b)
    return known_a is not None and known_b is not None and known_a < known_b


def show_shape(shape: Sequence[Any]) -> str:
    """A shape for messages: ``(1, seq_len, 64)``."""
    return "(" + ", ".join(str(s.value) if isinstance(s, IntImm) else getattr(s, "name", "?") for s in shape) + ")"
