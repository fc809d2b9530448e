"""ATen's matmuls, norms, convolutions and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ... import blocks
from ...values import Number, Size, cast, dtype_of, promoted, rank
from .pooling import Sizes, listed

Row = Callable[..., Any]


def _plus_product(added: Expr, x: Expr, y: Expr, beta: Number = 1, alpha: Number = 1) -> Expr:
    product = ops.matmul(x, y)
    product = product if alpha == 1 else ops.multiply(product, alpha)
    return ops.add(added if beta == 1 else ops.multiply(added, beta), product)


def _plus_products(added: Expr, x: Expr, y: Expr, beta: Number = 1, alpha: Number = 1) -> Expr:
    """Row of addbmm: the products of a batch of matrices are added up."""
    scaled = x if alpha == 1 else ops.multiply(x, alpha)
    total = ops.sum(ops.matmul(scaled, y), axis=0)
    return ops.add(added if beta == 1 else ops.multiply(added, beta), total)


def _layer_norm(
    x: Expr, shape: Sequence[int], weight: Expr | None = None, bias: Expr | None = None, eps: float = 1e-5, *_: Any
) -> Expr:
    return blocks.layer_norm(x, len(shape), weight, bias, eps)


def _rms_norm(x: Expr, shape: Sequence[int], weight: Expr | None = None, eps: float | None = None) -> Expr:
    sizes = shape_of(x)[rank(x) - len(shape) :]
    weight = blocks.filled(sizes, 1.0, dtype_of(x)) if weight is None else weight
    epsilon = float(np.finfo(np.float32).eps) if eps is None else eps
    return ops.rms_norm(x, weight, axes=tuple(range(-len(shape), 0)), epsilon=epsilon)


def _group_norm(
    x: Expr, groups: int, weight: Expr | None = None, bias: Expr | None = None, eps: float = 1e-5, *_: Any
) -> Expr:
    channels = shape_of(x)[1:2]
    weight = blocks.filled(channels, 1.0, dtype_of(x)) if weight is None else weight
    axes = tuple(range(2, rank(x)))
    return ops.group_norm(x, weight, bias, num_groups=groups, channel_axis=1, axes=axes, epsilon=eps)


def _batch_norm(
    x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, momentum: float, eps: float
) -> tuple[Expr]:
    return (blocks.batch_norm(x, mean, variance, weight, bias, eps),)


def _instance_norm(
    x: Expr, weight: Expr | None, bias: Expr | None, training: bool, momentum: float, eps: float
) -> tuple[Expr]:
    """Instance normalization: a batch norm with the statistics of its input."""
    axes = tuple(a for a in range(rank(x)) if a != 1)
    return (blocks.batch_norm(x, ops.mean(x, axis=axes), ops.variance(x, axis=axes), weight, bias, eps),)


def _softmax(x: Expr, dim: int, dtype: str | None = None) -> Expr:
    return ops.softmax(x if dtype is None else cast(x, dtype), axis=dim)


def _log_softmax(x: Expr, dim: int, dtype: str | None = None) -> Expr:
    return ops.log_softmax(x if dtype is None else cast(x, dtype), axis=dim)


def _convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Expr:
    axes = rank(weight) - 2
    gaps = listed(dilation, axes)
    if padding == "same":
        kernel = [int(s.value) for s in shape_of(weight)[2:]]  # type: ignore[attr-defined]
        sides = blocks.same_padding(kernel, gaps)
    else:
        sides = listed(0 if isinstance(padding, str) else padding, axes)
    return blocks.convolution(x, weight, bias, listed(stride, axes), sides, gaps, groups)


def _transposed_convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Expr:
    axes = rank(weight) - 2
    steps, sides, more, gaps = (listed(v, axes) for v in (stride, padding, output_padding, dilation))
    return blocks.transposed_convolution(x, weight, bias, steps, sides * 2, more, gaps, groups)


def _any_convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Expr:
    if transposed:
        return _transposed_convolution(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolution(x, weight, bias, stride, padding, dilation, groups)


def _attention(
    q: Expr,
    k: Expr,
    v: Expr,
    mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    if dropout_p:
        raise ValueError("attention with dropout; call model.eval() before the export")
    return blocks.attention(q, k, v, mask, is_causal, scale)


def _dropout(x: Expr, p: float, train: bool | None) -> tuple[Expr, Expr]:
    if train or train is None:
        raise ValueError("dropout in training mode; call model.eval() before the export")
    return x, blocks.filled(shape_of(x), True, "bool")


def _native_group_norm(
    x: Expr, weight: Expr | None, bias: Expr | None, n: Size, channels: Size, size: Size, groups: int, eps: float
) -> tuple[Expr]:
    return (_group_norm(x, groups, weight, bias, eps),)


def _grid_sample(x: Expr, grid: Expr, mode: int, padding: int, align_corners: bool) -> Expr:
    if mode > 1 or padding > 1:
        raise ValueError(f"got mode {mode} and padding {padding}; expected bilinear or nearest, zeros or border")
    method, outside = ("bilinear", "nearest")[mode], ("zeros", "border")[padding]
    return ops.grid_sample(x, grid, method=method, padding_mode=outside, align_corners=align_corners)


ROWS: dict[str, Row] = {
    "_log_softmax": lambda x, dim, half_to_float: ops.log_softmax(x, axis=dim),
    "_native_batch_norm_legit.no_stats": _instance_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_softmax": lambda x, dim, half_to_float: ops.softmax(x, axis=dim),
    "addbmm": _plus_products,
    "addmm": _plus_product,
    "addmv": _plus_product,
    "baddbmm": _plus_product,
    "bmm": ops.matmul,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed_convolution,
    "conv_transpose2d.input": _transposed_convolution,
    "conv_transpose3d.input": _transposed_convolution,
    "convolution": _any_convolution,
    "grid_sampler_2d": _grid_sample,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "linear": ops.linear,
    "log_softmax.int": _log_softmax,
    "matmul": lambda x, y: ops.matmul(*promoted(x, y)),
    "mm": ops.matmul,
    "native_dropout": _dropout,
    "native_group_norm": _native_group_norm,
    "native_layer_norm": lambda *args: (_layer_norm(*args),),
    "rms_norm": _rms_norm,
    "scaled_dot_product_attention": _attention,
    "softmax.int": _softmax,
}
