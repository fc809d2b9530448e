"""ONNX's conversions between floats and integers with scales, and matmuls and convolutions of such integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from ...ir import dtype as dt
from ...relax import ops
from ...relax.nodes import Expr
from .. import blocks
from ..values import axis_of, cast, constant_size, dtype_of, rank, size_of
from .arrays import Row, dtype_named
from .windows import convolution


def _dequantized(
    x: Expr, scale: Expr, zero: Expr | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Expr:
    """``(x - zero) * scale``; scale and zero: one number, or one for each index or block of indices along ``axis``."""
    codes = _centered(x, zero, axis, "int32" if dt.is_int(dtype_of(x)) else dtype_of(scale), block_size)
    y = ops.multiply(cast(codes, dtype_of(scale)), _along(scale, x, axis, block_size))
    return cast(y, dtype_named(output_dtype)) if output_dtype else y


def _quantized(
    x: Expr,
    scale: Expr,
    zero: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Expr:
    """``round(x / scale) + zero``, limited to the range of the result's dtype: that of ``zero``, by default uint8."""
    dtype = dtype_of(zero) if zero is not None else dtype_named(output_dtype) if output_dtype else "uint8"
    if not dt.is_int(dtype):
        raise ValueError(f"the result's dtype: got {dtype}; expected an integer dtype")
    codes = ops.round(ops.divide(cast(x, dtype_of(scale)), _along(scale, x, axis, block_size)))
    codes = codes if zero is None else ops.add(codes, _along(cast(zero, dtype_of(scale)), x, axis, block_size))
    limits = ml_dtypes.iinfo(dt.to_numpy(dtype))
    return cast(ops.clip(codes, min=float(limits.min), max=float(limits.max)), dtype)


def _integer_matmul(a: Expr, b: Expr, a_zero: Expr | None = None, b_zero: Expr | None = None) -> Expr:
    """The product of ``a - a_zero`` and ``b - b_zero``, int32; zeros may be those of rows of a, and of columns of b."""
    return ops.matmul(_centered(a, a_zero, -2), _centered(b, b_zero, -1))


def _integer_convolution(
    x: Expr, weight: Expr, x_zero: Expr | None = None, weight_zero: Expr | None = None, **how: Any
) -> Expr:
    """The convolution of ``x - x_zero`` by ``weight - weight_zero``, int32."""
    return convolution(_centered(x, x_zero, 1), _centered(weight, weight_zero, 0), **how)


def _quantized_matmul(
    a: Expr, a_scale: Expr, a_zero: Expr, b: Expr, b_scale: Expr, b_zero: Expr, y_scale: Expr, y_zero: Expr
) -> Expr:
    total = cast(_integer_matmul(a, b, a_zero, b_zero), dtype_of(a_scale))
    product = ops.multiply(ops.multiply(total, _along(a_scale, total, -2)), _along(b_scale, total, -1))
    return _quantized(product, y_scale, y_zero)


def _quantized_convolution(
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    weight: Expr,
    weight_scale: Expr,
    weight_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
    bias: Expr | None = None,
    **how: Any,
) -> Expr:
    """bias: int32, in units of ``x_scale * weight_scale``."""
    total = _integer_convolution(x, weight, x_zero, weight_zero, **how)
    total = total if bias is None else ops.add(total, _along(bias, total, 1))
    scale = ops.multiply(x_scale, _along(weight_scale, total, 1))
    return _quantized(ops.multiply(cast(total, dtype_of(x_scale)), scale), y_scale, y_zero)


def _centered(x: Expr, zero: Expr | None, axis: int, dtype: str = "int32", block_size: int = 0) -> Expr:
    """``x - zero`` in a wider dtype."""
    wide = cast(x, dtype)
    return wide if zero is None else ops.subtract(wide, _along(cast(zero, dtype), x, axis, block_size))


def _along(v: Expr, x: Expr, axis: int, block_size: int = 0) -> Expr:
    """Numbers of indices, [C] -> [C, 1, ...], or of blocks along ``axis``, for broadcasting with ``x``."""
    if block_size:
        repeated = ops.repeat(v, repeats=block_size, axis=axis_of(x, axis))
        return ops.strided_slice(repeated, (axis,), (0,), (size_of(x, axis),), (1,))
    if rank(v) != 1 or constant_size(v, 0) == 1:
        return v
    return blocks.along_axis(v, x, axis)


QUANTIZATION: dict[str, Row] = {
    "ConvInteger": _integer_convolution,
    "DequantizeLinear": _dequantized,
    "MatMulInteger": _integer_matmul,
    "QLinearConv": _quantized_convolution,
    "QLinearMatMul": _quantized_matmul,
    "QuantizeLinear": _quantized,
}
