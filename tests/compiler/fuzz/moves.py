"""Operators that rearrange elements."""

from __future__ import annotations

import numpy as np

from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.info import get_item, make_tuple
from mlc_compiler.relax.nodes import Call
from tests.compiler.fuzz.values import SYMBOLIC, Builder, Value, action, axis_of, converted


def item_of(b: Builder, call: Call, index: int, like: Value) -> Value | None:
    """One result of an operator with several results, with the limit and error of ``like``."""
    parts = BlockBuilder.current().emit(call)
    return b.checked(BlockBuilder.current().emit(get_item(parts, index)), like.limit, like.error)


@action
def transpose(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    axes = tuple(int(a) for a in np.roll(range(x.rank), extra)) if extra % 2 else None
    return b.emit(ops.permute_dims, x.expr, limit=x.limit, error=x.error, axes=axes)


@action
def reshape(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    shape = x.shape
    if extra % 3 == 0:
        return b.emit(ops.reshape, x.expr, (-1,), limit=x.limit, error=x.error)
    if extra % 3 == 1 and x.rank >= 2:
        at = extra % (x.rank - 1)
        joined = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        return b.emit(ops.reshape, x.expr, joined, limit=x.limit, error=x.error)
    last = b.fixed(x, -1) if x.rank else None
    if last is None or last % 2:
        return None
    return b.emit(ops.reshape, x.expr, (*shape[:-1], last // 2, 2), limit=x.limit, error=x.error)


@action
def with_axis(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.rank >= 4:
        return None
    return b.emit(ops.expand_dims, x.expr, limit=x.limit, error=x.error, axis=extra % (x.rank + 1))


@action
def without_axes(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    axis = None if extra % 2 or not x.rank else axis_of(x, extra)
    return b.emit(ops.squeeze, x.expr, limit=x.limit, error=x.error, axis=axis)


@action
def broadcast(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    shape = (2, *x.shape) if extra % 2 else y.shape
    return b.emit(ops.broadcast_to, x.expr, shape, limit=x.limit, error=x.error)


@action
def concat(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    if not x.rank:
        return None
    other = converted(b, y, x.dtype) if extra % 2 else x
    other = other or x
    limit, error = max(x.limit, other.limit), max(x.error, other.error)
    return b.emit(ops.concat, [x.expr, other.expr], limit=limit, error=error, axis=axis_of(x, extra // 2))


@action
def split(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    size = b.fixed(x, axis_of(x, extra)) if x.rank else None
    if size is None or size < 2:
        return None
    sections = 2 if extra % 2 and size % 2 == 0 else (size // 2,)
    call = ops.split(x.expr, indices_or_sections=sections, axis=axis_of(x, extra))
    return item_of(b, call, extra // 2 % 2, x)


@action
def part(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    size = b.fixed(x, axis_of(x, extra)) if x.rank else None
    if not size:
        return None
    begin, step = extra // 4 % size, 1 + extra % 3
    bounds = (axis_of(x, extra),), (begin,), (size,), (step,)
    return b.emit(ops.strided_slice, x.expr, *bounds, limit=x.limit, error=x.error)


@action
def rows(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    indices = converted(b, y, ("int32", "int64")[extra % 2])
    if not x.rank or indices is None:
        return None
    return b.emit(
        ops.take, x.expr, indices.expr, limit=x.limit, error=x.error, axis=axis_of(x, extra // 2), mode="clip"
    )


@action
def triangle(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.rank < 2 or x.dtype == "bool":
        return None
    return b.emit((ops.tril, ops.triu)[extra % 2], x.expr, limit=x.limit, error=x.error, k=extra % 5 - 2)


@action
def rotated(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """The halves of the last axis swapped and one negated, as in RoPE."""
    size = b.fixed(x, -1) if x.rank and x.is_float else None
    if size is None or size < 2:
        return None
    halves = BlockBuilder.current().emit(ops.split(x.expr, indices_or_sections=(size // 2,), axis=-1))
    first, second = (BlockBuilder.current().emit(get_item(halves, i)) for i in range(2))
    turned = BlockBuilder.current().emit(ops.negative(second))
    return b.emit(ops.concat, [turned, first], limit=x.limit, error=x.error, axis=-1)


@action
def through_tuple(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """A field of a tuple of tuples."""
    emit = BlockBuilder.current().emit
    inner = emit(make_tuple([y.expr, x.expr]))
    outer = emit(make_tuple([x.expr, inner, y.expr] if extra % 2 else [inner, inner]))
    return b.checked(emit(get_item(emit(get_item(outer, 1)), 1)), x.limit, x.error)


@action
def created(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """A tensor that depends on sizes only."""
    if extra % 2 and x.rank:
        end = x.shape[axis_of(x, extra)]
        return b.emit(ops.arange, 0, end, 1 + extra % 3, limit=3 * max(SYMBOLIC) * 8, dtype="int64")
    return b.emit(ops.full, x.shape, 2, limit=2, dtype="float32")
