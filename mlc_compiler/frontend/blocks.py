"""Operators shared by the importers, composed of graph operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir import dtype as dt
from ..ir.expr import as_expr
from ..ir.structural import structural_equal
from ..relax import ops
from ..relax.info import shape_of
from ..relax.nodes import Constant, Expr, constant
from .values import ImportModelError, Number, Size, axis_of, cast, constant_size, dtype_of, plain, rank, size_of

CONVOLUTIONS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def filled(shape: Sequence[Size], value: Number, dtype: str) -> Expr:
    """A tensor filled with ``value``."""
    return ops.full(tuple(shape), cast(value, dtype), dtype=dtype)


def truncated_quotient(x: Expr, y: Expr) -> Expr:
    """The integer quotient ``x / y``, rounded towards zero."""
    return ops.multiply(ops.floor_divide(ops.abs(x), ops.abs(y)), ops.multiply(ops.sign(x), ops.sign(y)))


def truncated_remainder(x: Expr, y: Expr) -> Expr:
    """``x - y * q``, for the quotient q rounded towards zero."""
    if not dt.is_float(dtype_of(x)):
        return ops.subtract(x, ops.multiply(truncated_quotient(x, y), y))
    quotient = ops.divide(x, y)
    return ops.subtract(x, ops.multiply(ops.multiply(ops.sign(quotient), ops.floor(ops.abs(quotient))), y))


def reshape(x: Expr, sizes: Sequence[Size]) -> Expr:
    """Reshape ``x``; one size may be -1. Equal symbolic sizes of both shapes cancel."""
    new, left = [plain(s) for s in sizes], [plain(s) for s in shape_of(x)]
    if -1 not in [s for s in new if isinstance(s, int)]:
        return ops.reshape(x, tuple(new))
    divisor: list[Size] = []
    for size in new:
        same = next((i for i, other in enumerate(left) if structural_equal(size, other)), None)
        if isinstance(size, int):
            divisor += [size] if size != -1 else []
        elif same is None:
            divisor.append(size)
        else:
            left.pop(same)
    rest = plain(as_expr(math.prod(left)) // as_expr(math.prod(divisor)))
    return ops.reshape(x, tuple(rest if isinstance(s, int) and s == -1 else s for s in new))


def along_axis(x: Expr, like: Expr, axis: int = 1) -> Expr:
    """Reshape [C] to [C, 1, …], for broadcasting along an axis of ``like``, by default that of channels."""
    return ops.reshape(x, (size_of(x, 0), *(1 for _ in range(rank(like) - axis_of(like, axis) - 1))))


def places_along(x: Expr, axis: int) -> Expr:
    """The index of each element along an axis, int64, for broadcasting with ``x``."""
    return along_axis(ops.arange(0, size_of(x, axis_of(x, axis)), 1, dtype="int64"), x, axis)


def batch_norm(x: Expr, mean: Expr, variance: Expr, gamma: Expr | None, beta: Expr | None, epsilon: float) -> Expr:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` per channel (Ioffe & Szegedy 2015); x: [N, C, …]."""
    scale = ops.rsqrt(ops.add(variance, epsilon))
    scale = scale if gamma is None else ops.multiply(scale, gamma)
    y = ops.multiply(ops.subtract(x, along_axis(mean, x)), along_axis(scale, x))
    return y if beta is None else ops.add(y, along_axis(beta, x))


def layer_norm(x: Expr, count: int, gamma: Expr | None, beta: Expr | None, epsilon: float) -> Expr:
    """Layer normalization over the last ``count`` axes."""
    shape = shape_of(x)[rank(x) - count :]
    gamma = filled(shape, 1.0, dtype_of(x)) if gamma is None else gamma
    return ops.layer_norm(x, gamma, beta, axes=tuple(range(-count, 0)), epsilon=epsilon)


def convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Expr:
    """A convolution over one to three spatial axes, plus a bias per output channel."""
    axes = rank(weight) - 2
    if axes not in CONVOLUTIONS:
        raise ImportModelError(f"convolution: got a weight with {axes + 2} axes; expected 3, 4 or 5")
    y = CONVOLUTIONS[axes](
        x, weight, strides=tuple(strides), padding=tuple(padding), dilation=tuple(dilation), groups=groups
    )
    return y if bias is None else ops.add(y, along_axis(bias, y))


def transposed_convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Expr:
    """The transpose of a convolution on one to three axes, plus a bias for each output channel.

    x: [N, C, ...], weight: [C, K / groups, ...]. padding: two numbers for each axis, all befores first. Computed as a
    convolution of ``x`` with ``strides - 1`` zeros between elements by the flipped weight.
    """
    axes = rank(weight) - 2
    kernel = [constant_size(weight, 2 + a) for a in range(axes)]
    widths = [(0, 0), (0, 0)]
    for a in range(axes):
        x = _spread(x, 2 + a, strides[a])
        reach = (kernel[a] - 1) * dilation[a]
        widths.append((reach - padding[a], reach - padding[axes + a] + output_padding[a]))
        weight = ops.flip(weight, axis=2 + a)
    flipped = _swapped_channels(weight, groups)
    return convolution(pad_or_crop(x, widths), flipped, bias, [1] * axes, [0] * axes, dilation, groups)


def _spread(x: Expr, axis: int, step: int) -> Expr:
    """``step - 1`` zeros between the elements along ``axis``."""
    if step == 1:
        return x
    shape, size = list(shape_of(x)), size_of(x, axis)
    apart = ops.expand_dims(x, axis=axis + 1)
    widths = [0] * (2 * rank(apart))
    widths[2 * axis + 3] = step - 1
    joined = ops.reshape(ops.pad(apart, pad_width=tuple(widths)), (*shape[:axis], size * step, *shape[axis + 1 :]))
    return ops.strided_slice(joined, (axis,), (0,), (plain(size * step - (step - 1)),), (1,))


def pad_or_crop(x: Expr, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Expr:
    """Pad ``x`` with ``value``. widths: elements before and after, for each axis; negative numbers crop."""
    for axis, (before, after) in enumerate(widths):
        if min(before, after) < 0:
            end = plain(size_of(x, axis) + min(after, 0))
            x = ops.strided_slice(x, (axis,), (max(-before, 0),), (end,), (1,))
    padded = tuple(max(w, 0) for both in widths for w in both)
    return ops.pad(x, pad_width=padded, pad_value=value) if any(padded) else x


def _swapped_channels(weight: Expr, groups: int) -> Expr:
    """[C, K / groups, ...] -> [K, C / groups, ...]"""
    inputs, outputs, *kernel = (constant_size(weight, a) for a in range(rank(weight)))
    rest = range(3, 3 + len(kernel))
    grouped = ops.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    swapped = ops.permute_dims(grouped, axes=(0, 2, 1, *rest))
    return ops.reshape(swapped, (groups * outputs, inputs // groups, *kernel))


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Padding (before, then after) that keeps the size at stride 1; an odd element goes after."""
    return halved([(k - 1) * d for k, d in zip(kernel, dilation, strict=True)])


def halved(totals: Sequence[int], lower: bool = False) -> tuple[int, ...]:
    """Split padding into that before all axes, then that after; an odd element goes after, or before if ``lower``."""
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*more, *less) if lower else (*less, *more)


def attention(
    q: Expr,
    k: Expr,
    v: Expr,
    mask: Expr | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    num_past: Size = 0,
    soft_cap: float = 0.0,
) -> Expr:
    """``softmax(q k^T * scale + mask) v``; q: [..., S, D], k, v: [..., T, D], mask: floating, or bool (True: visible).

    soft_cap: unless 0, scores become ``soft_cap * tanh(score / soft_cap)`` before the mask is added. is_causal: query i
    also sees no key after ``i + num_past``. The sizes of k and v on the axis before S may be divisors of q's (grouped
    queries). The result of a query without any visible key (mask False or minus infinity everywhere) is 0, as in
    PyTorch.
    """
    if isinstance(mask, Constant) and (mask.data if mask.data.dtype == bool else mask.data == 0).all():
        mask = None  # as in models that make a mask for texts without padding
    k, v = _repeated(k, q), _repeated(v, q)
    order = (*range(rank(k) - 2), rank(k) - 1, rank(k) - 2)
    if scale is None:
        scale = 1.0 / math.sqrt(constant_size(q, rank(q) - 1))
    scores = ops.multiply(ops.matmul(q, ops.permute_dims(k, axes=order)), scale)
    if soft_cap:
        scores = ops.multiply(ops.tanh(ops.divide(scores, soft_cap)), soft_cap)
    zero_rows = mask is not None
    if is_causal:
        mask = _causal(mask, size_of(q, rank(q) - 2), size_of(k, rank(k) - 2), num_past)
    if mask is not None and dtype_of(mask) == "bool":
        scores = ops.where(mask, scores, cast(-math.inf, dtype_of(q)))
    elif mask is not None:
        scores = ops.add(scores, cast(mask, dtype_of(q)))
    weights = ops.softmax(scores, axis=-1)
    if zero_rows:
        sees = ops.greater(ops.max(scores, axis=-1, keepdims=True), -math.inf)
        weights = ops.where(sees, weights, cast(0.0, dtype_of(q)))
    return ops.matmul(weights, v)


def _causal(mask: Expr | None, queries: Size, keys: Size, num_past: Size) -> Expr:
    """``mask`` that also hides the keys after those of ``num_past`` and the query's own."""
    own = ops.reshape(ops.arange(0, queries, 1, dtype="int64"), (queries, 1))
    ahead = ops.subtract(ops.arange(0, keys, 1, dtype="int64"), own)
    visible = ops.less_equal(ahead, cast(num_past, "int64"))
    if mask is None:
        return visible
    if dtype_of(mask) == "bool":
        return ops.logical_and(visible, mask)
    return ops.where(visible, mask, cast(-math.inf, dtype_of(mask)))


def _repeated(x: Expr, q: Expr) -> Expr:
    if rank(x) < 3 or plain(size_of(x, rank(x) - 3)) == plain(size_of(q, rank(q) - 3)):
        return x
    heads, of = constant_size(q, rank(q) - 3), constant_size(x, rank(x) - 3)
    return x if of == 1 else ops.repeat(x, repeats=heads // of, axis=rank(x) - 3)


def number_table(values: np.ndarray) -> Expr:
    """Convert an array to a constant. Raises ImportModelError for a dtype that the compiler does not support."""
    if not dt.is_known(str(values.dtype)):
        raise ImportModelError(f"got a constant of dtype {values.dtype}; expected a number type")
    return constant(np.ascontiguousarray(values).reshape(values.shape))
