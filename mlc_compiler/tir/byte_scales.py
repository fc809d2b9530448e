"""Scales of quantization groups in one byte: the five exponent bits and the upper three mantissa bits of a float16.

A scale is positive, so its sign is not stored. The relative rounding error is at most 2 ** -4.
"""

from __future__ import annotations

import numpy as np

from ..ir.expr import Call, PrimExpr, cast, const

DTYPE = "uint8"
SHIFT = 7  # mantissa bits of float16 that are not stored
_SHIFT = const(SHIFT, "uint16")


def scale_value(scale: PrimExpr) -> PrimExpr:
    """The value of a stored scale: float16 for one byte, else the scale as it is."""
    if scale.dtype != DTYPE:
        return scale
    return Call("reinterpret", (cast("uint16", scale) << _SHIFT,), "float16")


def rounded_value(scale: PrimExpr) -> PrimExpr:
    """As ``rounded``, for an expression."""
    bits = Call("reinterpret", (scale,), "uint16") + const(1 << (SHIFT - 1), "uint16")
    return Call("reinterpret", (bits >> _SHIFT << _SHIFT,), "float16")


def rounded(scales: np.ndarray) -> np.ndarray:
    """Round float16 scales of either sign to three mantissa bits, halves away from zero; overflow gives infinity."""
    half = np.uint16(1 << (SHIFT - 1))
    return ((scales.astype(np.float16).view(np.uint16) + half) >> np.uint16(SHIFT) << np.uint16(SHIFT)).view(np.float16)


def to_bytes(scales: np.ndarray) -> np.ndarray:
    """Store positive float16 scales that ``rounded`` returned."""
    return (scales.view(np.uint16) >> np.uint16(SHIFT)).astype(np.uint8)


def from_bytes(stored: np.ndarray) -> np.ndarray:
    """The float16 values of stored scales."""
    return (stored.astype(np.uint16) << np.uint16(SHIFT)).view(np.float16)
