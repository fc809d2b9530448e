"""Operators that repeat, reverse, stack, pad, gather and sort elements."""

from __future__ import annotations

from mlc_compiler.ir import dtype as dt
from mlc_compiler.relax import ops
from tests.compiler.fuzz.values import Builder, Value, action, axis_of, converted, exact_action


@action
def repeated(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    axis = axis_of(x, extra) if x.rank and extra % 3 else None
    return b.emit(ops.repeat, x.expr, limit=x.limit, error=x.error, repeats=extra % 4, axis=axis)


@action
def tiled(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    times = tuple(1 + (extra >> a) % 2 for a in range(max(1, x.rank + extra % 3 - 1)))
    return b.emit(ops.tile, x.expr, limit=x.limit, error=x.error, repeats=times)


@action
def flipped(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    return b.emit(ops.flip, x.expr, limit=x.limit, error=x.error, axis=axis_of(x, extra)) if x.rank else None


@action
def stacked(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    other = converted(b, y, x.dtype) if extra % 2 and y.rank == x.rank else x
    other = other or x
    limit, error = max(x.limit, other.limit), max(x.error, other.error)
    return b.emit(ops.stack, [x.expr, other.expr, x.expr], limit=limit, error=error, axis=extra % (x.rank + 1))


@action
def padded(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.dtype == "bool":
        return None
    width = tuple((extra >> a) % 3 for a in range(2 * x.rank))
    return b.emit(ops.pad, x.expr, limit=max(x.limit, 2), error=x.error, pad_width=width, pad_value=2.0)


@action
def gathered(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """``gather_elements`` with indices made from the value itself or another one."""
    places = converted(b, y if y.rank == x.rank and extra % 2 else x, ("int32", "int64")[extra % 2])
    if places is None or not x.rank or _leaves(b, x, places, axis_of(x, extra)):
        return None
    return b.emit(ops.gather_elements, x.expr, places.expr, limit=x.limit, error=x.error, axis=axis_of(x, extra))


def _leaves(b: Builder, x: Value, places: Value, axis: int) -> bool:
    """Whether the indices have a larger size than the value on an axis other than ``axis``."""
    sizes = [list(zip(b.sizes(x, n), b.sizes(places, n), strict=True)) for n in (0, 1, 24)]
    return any(p > s for pairs in sizes for a, (s, p) in enumerate(pairs) if a != axis)


@exact_action
def ordered(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """``sort`` or ``argsort``."""
    if not x.rank or x.dtype == "bool":
        return None
    axis, descending = axis_of(x, extra), bool(extra % 2)
    if extra % 3:
        return b.emit(ops.sort, x.expr, limit=x.limit, axis=axis, descending=descending)
    return b.emit(ops.argsort, x.expr, limit=1000, axis=axis, descending=descending)


@exact_action
def bits(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """Bitwise operators, and shifts by 0 to 3."""
    x = x if dt.is_int(x.dtype) or x.dtype == "bool" else converted(b, x, "int32") or x
    other = converted(b, y, x.dtype) or x
    if extra % 5 < 3:
        operator = (ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor)[extra % 5]
        return b.emit(operator, x.expr, other.expr, limit=2 * max(x.limit, other.limit))
    places = b.emit(ops.clip, other.expr, limit=3, min=0, max=3) if x.dtype != "bool" else None
    operator = (ops.left_shift, ops.right_shift)[extra % 2]
    return b.emit(operator, x.expr, places.expr, limit=8 * x.limit) if places is not None else None
