"""Interval arithmetic on integers: pairs of inclusive bounds, None for an unknown bound."""

from __future__ import annotations

from . import dtype as dt

Interval = tuple[int | None, int | None]

UNKNOWN: Interval = (None, None)


def of_dtype(dtype: str) -> Interval:
    """The range of an integer dtype or bool; bounds beyond 32 bits, and those of floats, are None."""
    if dtype == "bool":
        return 0, 1
    if not dt.is_int(dtype) or dt.bits(dtype) > 32:
        return UNKNOWN if not dt.is_int(dtype) or dt.is_signed(dtype) else (0, None)
    width = dt.bits(dtype)
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if dt.is_signed(dtype) else (0, (1 << width) - 1)


def add(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def scale(a: Interval, factor: int) -> Interval:
    low, high = a if factor >= 0 else (a[1], a[0])
    return (None if low is None else low * factor), (None if high is None else high * factor)


def multiply(a: Interval, b: Interval) -> Interval:
    if None not in (*a, *b):
        corners = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(corners), max(corners)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    return UNKNOWN


def minimum(a: Interval, b: Interval) -> Interval:
    """The range of ``min(x, y)``."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    known = [x for x in (a[1], b[1]) if x is not None]
    return low, min(known) if known else None


def maximum(a: Interval, b: Interval) -> Interval:
    """The range of ``max(x, y)``."""
    low, high = minimum(scale(a, -1), scale(b, -1))
    return scale((low, high), -1)


def quotient(a: Interval, b: Interval) -> Interval:
    """The range of ``x // y``, 0 where y is 0."""
    if b[0] is None or b[0] < 0:
        return UNKNOWN
    if b[0] == b[1] and b[0] > 0:
        return (None if a[0] is None else a[0] // b[0]), (None if a[1] is None else a[1] // b[0])
    smallest = max(b[0], 1)
    low = None if a[0] is None else min(a[0] // smallest, 0)
    high = None if a[1] is None else max(a[1] // smallest, 0)
    return low, high


def remainder(a: Interval, b: Interval) -> Interval:
    """The range of ``x % y``, 0 where y is 0."""
    if b[0] is None or b[0] < 0:
        return UNKNOWN
    high = None if b[1] is None else max(b[1] - 1, 0)
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        high = a[1] if high is None else min(a[1], high)
    return 0, high


def union(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def intersection(a: Interval, b: Interval) -> Interval:
    low = [x for x in (a[0], b[0]) if x is not None]
    high = [x for x in (a[1], b[1]) if x is not None]
    return max(low) if low else None, min(high) if high else None
