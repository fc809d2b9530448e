"""ONNX's conversions between floats and integers with scales."""

from __future__ import annotations

import ml_dtypes

from ...ir import dtype as dt
from ...relax import ops
from ...relax.nodes import Expr
from ..values import axis_of, cast, constant_size, dtype_of, rank
from .arrays import Row, dtype_named


def _dequantized(
    x: Expr, scale: Expr, zero: Expr | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Expr:
    """``(x - zero) * scale``; scale and zero: one number, or one for each index along ``axis``."""
    _require_no_blocks(block_size)
    wide = "int32" if dt.is_int(dtype_of(x)) else dtype_of(scale)
    codes = cast(x, wide) if zero is None else ops.subtract(cast(x, wide), _along(cast(zero, wide), x, axis))
    y = ops.multiply(cast(codes, dtype_of(scale)), _along(scale, x, axis))
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
    _require_no_blocks(block_size)
    dtype = dtype_of(zero) if zero is not None else dtype_named(output_dtype) if output_dtype else "uint8"
    if not dt.is_int(dtype):
        raise ValueError(f"the result's dtype: got {dtype}; expected an integer dtype")
    codes = ops.round(ops.divide(cast(x, dtype_of(scale)), _along(scale, x, axis)))
    codes = codes if zero is None else ops.add(codes, _along(cast(zero, dtype_of(scale)), x, axis))
    limits = ml_dtypes.iinfo(dt.to_numpy(dtype))
    return cast(ops.clip(codes, min=float(limits.min), max=float(limits.max)), dtype)


def _require_no_blocks(block_size: int) -> None:
    if block_size:
        raise ValueError(f"block_size: got {block_size}; expected 0")


def _along(v: Expr, x: Expr, axis: int) -> Expr:
    """[C] -> [C, 1, ...], for broadcasting along ``axis`` of ``x``."""
    if rank(v) == 0 or constant_size(v, 0) == 1:
        return v
    return ops.reshape(v, (constant_size(v, 0), *[1] * (rank(x) - axis_of(x, axis) - 1)))


QUANTIZATION: dict[str, Row] = {
    "DequantizeLinear": _dequantized,
    "QuantizeLinear": _quantized,
}
