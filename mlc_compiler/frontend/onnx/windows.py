"""ONNX's convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.expr import IntImm
from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..resample import Resampling, resample
from ..values import rank, size_of
from .arrays import Row, numbers


def _sides(pads: Sequence[int] | None, auto_pad: bytes, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Padding before all axes, then after all axes. SAME padding assumes stride 1."""
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


def _transposed_convolution(
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    auto_pad: bytes = b"NOTSET",
) -> Expr:
    axes = rank(weight) - 2
    if output_shape is not None or auto_pad not in (b"NOTSET", b"VALID"):
        given = "output_shape" if output_shape is not None else f"auto_pad {auto_pad.decode()}"
        raise ValueError(f"got {given}; expected explicit pads")
    ones, none = [1] * axes, [0] * axes
    more, sides = output_padding or none, pads or none * 2
    return blocks.transposed_convolution(x, weight, bias, strides or ones, sides, more, dilations or ones, group)


def _resize(
    x: Expr,
    region: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    mode: bytes = b"nearest",
    coordinate_transformation_mode: bytes = b"half_pixel",
    nearest_mode: bytes = b"round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: bytes = b"stretch",
) -> Expr:
    refused = {
        "exclude_outside": exclude_outside,
        "antialias": antialias,
        "keep_aspect_ratio_policy": keep_aspect_ratio_policy != b"stretch",
    }
    if wrong := [name for name, given in refused.items() if given]:
        raise ValueError(f"{wrong[0]} is set; expected its default")
    places = list(range(rank(x))) if axes is None else list(axes)
    factors = [float(f) for f in numbers(scales)] if scales is not None and len(scales) else [None] * len(places)
    counts = [int(c) for c in numbers(sizes)] if sizes is not None and len(sizes) else [None] * len(places)
    changed = [i for i, axis in enumerate(places) if factors[i] != 1 and counts[i] != size_of(x, axis)]
    how = Resampling(mode.decode(), coordinate_transformation_mode.decode(), nearest_mode.decode(), cubic_coeff_a)
    return resample(x, [places[i] for i in changed], [counts[i] for i in changed], [factors[i] for i in changed], how)


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
    "ConvTranspose": _transposed_convolution,
    "GlobalAveragePool": lambda x: ops.mean(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "GlobalMaxPool": lambda x: ops.max(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "MaxPool": _max_pool,
    "Resize": _resize,
}
