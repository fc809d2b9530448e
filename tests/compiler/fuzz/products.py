"""Matmuls in the forms that schedule rules match: with constant, computed and quantized weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlc_compiler.ir import dtype as dt
from mlc_compiler.relax import ops
from mlc_compiler.relax.nodes import constant
from tests.compiler.fuzz.values import EXACT, INNER, ROUNDING, Builder, Value, action, converted, limited

COLUMNS = (1, 3, 8, 16, 17, 32, 40)
WEIGHT_DTYPES = ("float32", "float16", "bfloat16", "float32", "float8_e4m3fn")
GROUP = 32
LARGEST_CODE = 16
ACTIVATION = {16: 2.0**-16, 8: 0.5 / 127}
"""Error of an activation relative to the maximum of its group, when the weight is quantized, by the width of
activations: back ends round it to the sum of two bfloat16 numbers, or to a fixed-point number.
"""


def product_error(x: Value, y: Value, count: int) -> float:
    """The error bound of a sum of ``count`` products in any order."""
    if not (x.error or y.error):
        return 0.0
    each = x.limit * y.error + y.limit * x.error + x.error * y.error
    return count * (each + 2 * (count + 1) * INNER * x.limit * y.limit)


@action
def product(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """The matmul of two values if their shapes match, otherwise of one value and its transpose."""
    left = limited(b, x, 4) if x.is_float else converted(b, x, "float32")
    if left is None or not left.rank:
        return None
    count, right = b.sizes(left)[-1], converted(b, y, left.dtype) or left
    limit, error = left.limit * right.limit * max(count, 1), product_error(left, right, count)
    found = b.emit((ops.linear, ops.matmul)[extra % 2], left.expr, right.expr, limit=limit, error=error)
    if found is not None or left.rank < 2:
        return found
    axes = (*range(left.rank - 2), left.rank - 1, left.rank - 2)
    turned = b.emit(ops.permute_dims, left.expr, limit=left.limit, error=left.error, axes=axes)
    limit, error = left.limit**2 * max(count, 1), product_error(left, left, count)
    return b.emit(ops.matmul, left.expr, turned.expr, limit=limit, error=error) if turned is not None else None


def _matrix(b: Builder, x: Value) -> Value | None:
    """The value as small floats with at least two axes."""
    number = x if x.is_float else converted(b, x, "float32")
    small = limited(b, number, 4) if number is not None else None
    if small is None or small.rank >= 2:
        return small
    axes = tuple(range(2 - small.rank))
    return b.emit(ops.expand_dims, small.expr, limit=small.limit, error=small.error, axis=axes)


@action
def with_constant(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """``linear`` with a constant weight, which is packed while compiling."""
    value = _matrix(b, x)
    inner = b.fixed(value, -1) if value is not None else None
    if value is None or inner is None:
        return None
    columns, dtype = COLUMNS[extra % len(COLUMNS)], WEIGHT_DTYPES[extra % len(WEIGHT_DTYPES)]
    numbers = (np.arange(columns * inner) % 5 - 2).reshape(columns, inner)
    return _linear(b, value, Value(constant(numbers.astype(dt.to_numpy(dtype))), 2.0), inner, extra)


def _linear(b: Builder, x: Value, weight: Value, inner: int, extra: int) -> Value | None:
    bias = constant((np.arange(b.sizes(weight)[0]) % 3 - 1).astype(np.float32))
    given = (x.expr, weight.expr, bias) if extra % 3 else (x.expr, weight.expr)
    limit, error = x.limit * weight.limit * max(inner, 1) + 1, product_error(_rounded(b, x, weight), weight, inner)
    return b.emit(ops.linear, *given, limit=limit, error=error)


def _rounded(b: Builder, x: Value, weight: Value) -> Value:
    """The value as CPUs that multiply pairs of bfloat16 numbers may round it."""
    if weight.dtype != "bfloat16" or b.activation_bits != 8 or not (x.error or x.limit > EXACT["bfloat16"]):
        return x
    return replace(x, error=x.error + ROUNDING["bfloat16"] * (x.limit + x.error))


@action
def with_computed(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """``linear`` with a weight that is computed or a parameter, packed at run time."""
    value, small = _matrix(b, x), limited(b, y, 4)
    weight = converted(b, small, WEIGHT_DTYPES[extra % len(WEIGHT_DTYPES)]) if small is not None else None
    inner = b.fixed(value, -1) if value is not None else None
    if value is None or weight is None or inner is None:
        return None
    taken = _gathered(b, weight, (COLUMNS[extra % len(COLUMNS)], inner))
    return _linear(b, value, taken, inner, extra) if taken is not None else None


def _gathered(b: Builder, x: Value, shape: tuple[int, int]) -> Value | None:
    """A matrix of elements of the value."""
    flat = b.emit(ops.reshape, x.expr, (-1,), limit=x.limit, error=x.error)
    if flat is None:
        return None
    places = constant((np.arange(shape[0] * shape[1]) % 11).reshape(shape).astype(np.int32))
    return b.emit(ops.take, flat.expr, places, limit=x.limit, error=x.error, axis=0, mode="clip")


@action
def with_quantized(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """``linear`` with 4-bit codes in groups of 32, which some targets compute in low precision."""
    number = _matrix(b, x)
    value = converted(b, number, ("float32", "float32", "float16")[extra // 6 % 3]) if number is not None else None
    if value is None:
        return None
    places = constant((np.arange(GROUP) % 11).astype(np.int32))
    wide = b.emit(ops.take, value.expr, places, limit=value.limit, error=value.error, axis=-1, mode="clip")
    if wide is not None and extra % 2:
        wide = b.emit(ops.strided_slice, wide.expr, (0,), (0,), (1,), limit=wide.limit, error=wide.error)
    columns = (32, 32, 24)[extra // 2 % 3]
    words = (np.arange(columns * 4, dtype=np.uint64) * 2654435761 % 2**32).astype(np.uint32)
    codes = constant(words.reshape(columns, 4))
    scale = constant((np.arange(columns) % 2 + 1).reshape(columns, 1).astype(np.float16))
    if wide is None:
        return None
    call = ops.dequantize(codes, scale, bits=4, group=GROUP, k=GROUP, dtype=wide.dtype)
    limit = wide.limit * LARGEST_CODE * GROUP
    error = (wide.error + (ACTIVATION[b.activation_bits] + 2 * GROUP * INNER) * wide.limit) * LARGEST_CODE * GROUP
    return b.emit(ops.linear, wide.expr, call, limit=limit, error=error)
