"""ONNX's convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import IntImm
from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import rank
from .arrays import Row


def _sides(pads: Sequence[int] | None, auto_pad: bytes, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Padding before all axes, and then after them. Same padding is that of steps of 1."""
    if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
        return list(blocks.same_padding(kernel, dilation, auto_pad == b"SAME_LOWER"))
    return list(pads or [0] * (2 * len(kernel)))


def _convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: bytes = b"NOTSET",
) -> Expr:
    kernel = [s.value for s in shape_of(weight)[2:] if isinstance(s, IntImm)]
    ones = [1] * len(kernel)
    steps, gaps = strides or ones, dilations or ones
    if auto_pad.startswith(b"SAME") and list(steps) != ones:
        raise ValueError(f"auto_pad {auto_pad.decode()} with strides {list(steps)}; expected explicit pads")
    return blocks.convolution(x, weight, bias, steps, _sides(pads, auto_pad, kernel, gaps), gaps, group)


def _max_pool(
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> Expr:
    return ops.max_pool2d(
        x,
        pool_size=tuple(kernel_shape),
        strides=tuple(strides),
        padding=tuple(pads),
        dilation=tuple(dilations),
        ceil_mode=bool(ceil_mode),
    )


def _average_pool(
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Expr:
    return ops.avg_pool2d(
        x,
        pool_size=tuple(kernel_shape),
        strides=tuple(strides),
        padding=tuple(pads),
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
    )


WINDOWS: dict[str, Row] = {
    "AveragePool": _average_pool,
    "Conv": _convolution,
    "GlobalAveragePool": lambda x: ops.mean(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "GlobalMaxPool": lambda x: ops.max(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "MaxPool": _max_pool,
}
