"""Scalar arithmetic with one rounding per operation.

Integers are Python ints in the range of their dtype (results wrap around), ``bool`` values are Python bools, and floats
are numpy or ml_dtypes scalars of their dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..ir import dtype as dt


@cache
def wrapper(dtype: str) -> Callable[[int], int]:
    """Return a function that wraps an integer around to the range of ``dtype``."""
    width = dt.bits(dtype)
    low = -(1 << (width - 1)) if dt.is_signed(dtype) else 0
    high, size = low + (1 << width), 1 << width

    def wrap(value: int) -> int:
        return value if low <= value < high else (value - low) % size + low

    return wrap


@cache
def float_type(dtype: str) -> Callable[[Any], Any]:
    """The numpy scalar type of a floating dtype; calling it rounds a Python float."""
    return dt.to_numpy(dtype).type


@cache
def converter(source: str, target: str) -> Callable[[Any], Any]:
    """Return a function that implements ``Cast``.

    Float to float rounds to nearest even; float to integer truncates and saturates, NaN gives 0; integer to integer
    wraps around; to bool compares with zero.
    """
    if target == "bool":
        return lambda value: bool(value != 0)
    if dt.is_float(target):
        return _to_float(source, target)
    if not dt.is_float(source):
        wrap = wrapper(target)
        return lambda value: wrap(int(value))
    return _float_to_int(target)


def _to_float(source: str, target: str) -> Callable[[Any], Any]:
    make = float_type(target)
    if dt.is_float(source) or source == "bool":
        return lambda value: make(float(value))
    wide = np.int64 if dt.is_signed(source) else np.uint64
    to = dt.to_numpy(target)
    return lambda value: wide(value).astype(to)


def _float_to_int(target: str) -> Callable[[Any], int]:
    width, signed = dt.bits(target), dt.is_signed(target)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)

    def convert(value: Any) -> int:
        number = float(value)
        if math.isnan(number):
            return 0
        return min(max(math.trunc(number), low), high) if math.isfinite(number) else (low if number < 0 else high)

    return convert


def minimum(a: Any, b: Any) -> Any:
    """``min``: the second operand when the two are equal or unordered."""
    return a if a < b else b


def maximum(a: Any, b: Any) -> Any:
    """``max``: the second operand when the two are equal or unordered."""
    return a if a > b else b


def select(condition: Any, true_value: Any, false_value: Any) -> Any:
    """``T.Select``: both values are evaluated."""
    return true_value if condition else false_value


def truncating_division(a: int, b: int) -> int:
    """The quotient rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def shift_left(a: int, b: int) -> int:
    """``a << b``; 0 unless ``0 <= b < 64``."""
    return a << b if 0 <= b < 64 else 0


def shift_right(a: int, b: int) -> int:
    """``a >> b``, an arithmetic shift; 0 or -1, by the sign of a, unless ``0 <= b < 64``."""
    return a >> (b if 0 <= b < 64 else 64)
