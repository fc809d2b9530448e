"""ONNX's normalizations."""

from __future__ import annotations

from functools import reduce

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import axis_of, cast, constant_size, dtype_of, plain, rank, size_of
from .arrays import Row


def _layer_norm(
    x: Expr, scale: Expr, bias: Expr | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Expr, Expr, Expr]:
    """The result, the means, and the inverse standard deviations."""
    axes = tuple(range(axis_of(x, axis), rank(x)))
    wide = cast(x, "float32") if stash_type == 1 else x
    variance = ops.variance(wide, axis=axes, keepdims=True)
    means = ops.mean(wide, axis=axes, keepdims=True)
    return blocks.layer_norm(x, len(axes), scale, bias, epsilon), means, ops.rsqrt(ops.add(variance, epsilon))


def _batch_norm(
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    variance: Expr,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Expr:
    if training_mode:
        raise ValueError("training_mode: got 1; expected 0")
    return blocks.batch_norm(x, mean, variance, scale, bias, epsilon)


def _lp_normalized(x: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    """``x`` over its p-norm along an axis; 0 where that is 0."""
    total = ops.sum(ops.abs(x) if p == 1 else ops.square(x), axis=axis, keepdims=True)
    norm = total if p == 1 else ops.sqrt(total)
    return ops.divide(x, ops.where(ops.equal(norm, 0.0), cast(1.0, dtype_of(x)), norm))


def _instance_norm(x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5) -> Expr:
    return _group_norm(x, scale, bias, num_groups=constant_size(x, 1), epsilon=epsilon)


def _group_norm(
    x: Expr, scale: Expr, bias: Expr, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    """scale and bias: for each channel, or for each group, as in opset 18."""
    members = constant_size(x, 1) // constant_size(scale, 0)
    gamma, beta = (v if members == 1 else ops.repeat(v, repeats=members, axis=0) for v in (scale, bias))
    axes = tuple(range(2, rank(x)))
    return ops.group_norm(x, gamma, beta, num_groups=num_groups, channel_axis=1, axes=axes, epsilon=epsilon)


def _rms_norm(x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Expr:
    axes = tuple(range(axis_of(x, axis), rank(x)))
    weight = ops.broadcast_to(scale, tuple(shape_of(x)[axes[0] :]))
    return ops.rms_norm(x, weight, axes=axes, epsilon=epsilon)


def _local_response_norm(x: Expr, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Expr:
    """``x / (bias + alpha / size * s)**beta``, s the sum of squares of ``size`` neighbouring channels."""
    before = (size - 1) // 2
    widths = [0, 0, before, size - 1 - before] + [0, 0] * (rank(x) - 2)
    squares = ops.pad(ops.square(x), pad_width=tuple(widths))
    count = size_of(x, 1)
    parts = [ops.strided_slice(squares, (1,), (n,), (plain(n + count),), (1,)) for n in range(size)]
    total = reduce(ops.add, parts)
    return ops.divide(x, ops.power(ops.add(ops.multiply(total, alpha / size), bias), beta))


NORMALIZATIONS: dict[str, Row] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _local_response_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalized,
    "RMSNormalization": _rms_norm,
}
