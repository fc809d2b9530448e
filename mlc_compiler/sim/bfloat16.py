"""bfloat16 values as uint16 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def bf16_to_f32(values: Array) -> Array:
    """Convert bfloat16 to float32 (exact)."""
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: Array, towards_zero: bool = False) -> Array:
    """Round float32 to bfloat16, to nearest even or towards zero; NaN becomes 0x7fff."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if not towards_zero:
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.where(np.isnan(values), np.uint16(0x7FFF), (bits >> np.uint32(16)).astype(np.uint16))


def f64_to_bf16(values: Array) -> Array:
    """Round float64 to bfloat16 once, by way of a float32 rounded to odd."""
    return f32_to_bf16(f64_to_f32_odd(values))


def f64_to_f32_odd(values: Array) -> Array:
    """Round float64 to float32 to odd, so that a later rounding to fewer bits is correct."""
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    inexact = (back != values) & np.isfinite(near)
    bits = near.view(np.uint32)
    larger = np.abs(back) > np.abs(values)
    truncated = np.where(larger & inexact, bits - np.uint32(1), bits)
    return np.where(inexact, truncated | np.uint32(1), bits).astype(np.uint32).view(np.float32)
