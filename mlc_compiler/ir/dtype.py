"""Data types, named by strings as in numpy and TVMScript: ``"float32"``, ``"bfloat16"``, ``"uint4"``, ``"bool"``."""

from __future__ import annotations

import math
import re
from functools import cache

import ml_dtypes
import numpy as np

_PATTERN = re.compile(r"(int|uint|float)(\d+)$")
_FLOATS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "float8_e4m3fn": 8, "float8_e5m2": 8}
_INT_BITS = (1, 2, 4, 8, 16, 32, 64)


@cache
def bits(dtype: str) -> int:
    """Width of one element in bits; ``bool`` has 8, as stored. Raises ValueError for an unknown name."""
    if dtype == "bool":
        return 8
    if dtype == "handle":
        return 64
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    match = _PATTERN.match(dtype)
    if match and match[1] != "float" and int(match[2]) in _INT_BITS:
        return int(match[2])
    raise ValueError(f"unknown dtype {dtype!r}; known: bool, int4..int64, uint4..uint64, {', '.join(_FLOATS)}")


@cache
def nbytes(dtype: str) -> int:
    """Bytes of one stored element; types narrower than a byte occupy one byte."""
    return max(1, bits(dtype) // 8)


def is_float(dtype: str) -> bool:
    return dtype in _FLOATS


@cache
def max_float(dtype: str) -> float:
    """Infinity, or the maximum finite value of a floating dtype without infinity (``float8_e4m3fn``: 448)."""
    return float(ml_dtypes.finfo(dtype).max) if dtype == "float8_e4m3fn" else math.inf


@cache
def is_int(dtype: str) -> bool:
    """Signed or unsigned integer; ``bool`` is not an integer."""
    return dtype.startswith(("int", "uint"))


@cache
def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


def is_known(dtype: str) -> bool:
    try:
        bits(dtype)
    except ValueError:
        return False
    return True


def to_numpy(dtype: str) -> np.dtype:
    """The numpy (or ml_dtypes) type that holds one element."""
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "int2", "uint2"):
        return np.dtype(getattr(ml_dtypes, dtype))
    bits(dtype)
    return np.dtype(dtype)


@cache
def promote(a: str, b: str) -> str:
    """The common type of two operands: float over int over bool, then the wider; float16 with bfloat16 is float32."""
    if a == b:
        return a
    if is_float(a) and is_float(b):
        if bits(a) == bits(b):
            return "float32"
        return a if bits(a) > bits(b) else b
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    if "bool" in (a, b):
        return b if a == "bool" else a
    if bits(a) == bits(b):
        return a if is_signed(a) else b
    return a if bits(a) > bits(b) else b
