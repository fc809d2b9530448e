"""Scales of quantization groups in one byte: a sign, and the bits of a float16 in units of ``STEP``.

The magnitude m, 0 to 127, stands for the float16 with the bits ``m * STEP``. These are 10 or 11 values per octave, up
to 0.119; with levels up to 127, weights up to 15.1 can be stored. Below 2 ** -14 float16 is subnormal, and values are
multiples of ``STEP * 2 ** -24``.
"""

from __future__ import annotations

import numpy as np

from ..ir.expr import Call, PrimExpr, cast, const, minimum

DTYPE = "int8"
"""dtype of stored scales: bit 7 is the sign, the others are the magnitude."""
STEP = 96
LARGEST = 127  # of the magnitudes
_SIGN, _MAGNITUDE = 0x8000, 0x7FFF


def scale_value(scale: PrimExpr) -> PrimExpr:
    """The value of a stored scale: float16 for one byte, else the scale as it is."""
    if scale.dtype != DTYPE:
        return scale
    byte = cast("uint16", cast("int16", scale))  # bit 15 is the sign, too
    return Call("reinterpret", ((byte & _u16(_SIGN)) | (byte & _u16(LARGEST)) * _u16(STEP),), "float16")


def rounded_value(scale: PrimExpr) -> PrimExpr:
    """As ``rounded``, for an expression."""
    bits = Call("reinterpret", (scale,), "uint16")
    magnitude = ((bits & _u16(_MAGNITUDE)) + _u16(STEP // 2)) // _u16(STEP)
    least = minimum(magnitude, _u16(LARGEST))
    return Call("reinterpret", ((bits & _u16(_SIGN)) | least * _u16(STEP),), "float16")


def largest_value() -> float:
    """The largest scale."""
    return float(from_bytes(np.array([LARGEST], np.int8))[0])


def _u16(value: int) -> PrimExpr:
    return const(value, "uint16")


def rounded(scales: np.ndarray) -> np.ndarray:
    """Round float16 scales to values that one byte holds, halves away from zero; larger ones become the largest."""
    return from_bytes(to_bytes(scales))


def to_bytes(scales: np.ndarray) -> np.ndarray:
    """Store float16 scales as the nearest values."""
    bits = scales.astype(np.float16).view(np.uint16)
    magnitude = np.minimum(
        ((bits & np.uint16(_MAGNITUDE)) + np.uint16(STEP // 2)) // np.uint16(STEP), np.uint16(LARGEST)
    )
    return (magnitude | bits >> np.uint16(8) & np.uint16(128)).astype(np.uint8).view(np.int8)


def from_bytes(stored: np.ndarray) -> np.ndarray:
    """The float16 values of stored scales."""
    byte = stored.view(np.uint8).astype(np.uint16)
    return ((byte & np.uint16(128)) << np.uint16(8) | (byte & np.uint16(LARGEST)) * np.uint16(STEP)).view(np.float16)
