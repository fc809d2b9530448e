"""ONNX's convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..pooling import MAXIMA, MEANS, PLACES, unpooled
from ..resample import Resampling, resample
from ..values import axis_of, cast, constant_size, count_of, rank, size_of
from .arrays import Row, numbers


def _sides(
    x: Expr,
    pads: Sequence[int] | None,
    auto_pad: bytes,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Padding before all axes, then after all axes. SAME: one result for each ``strides`` elements, rounded up."""
    if not auto_pad.startswith(b"SAME"):
        return tuple(pads or [0] * (2 * len(kernel)))
    totals = []
    for n, (k, step, gap) in enumerate(zip(kernel, strides, dilation, strict=True)):
        past = 0 if step == 1 else (constant_size(x, 2 + n) - 1) % step  # elements after the last window's first one
        totals.append(max((k - 1) * gap - past, 0))
    return blocks.halved(totals, lower=auto_pad == b"SAME_LOWER")


def convolution(
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
    """Row of Conv."""
    kernel = [constant_size(weight, 2 + n) for n in range(rank(weight) - 2)]
    ones = [1] * len(kernel)
    steps, gaps = strides or ones, dilations or ones
    return blocks.convolution(x, weight, bias, steps, _sides(x, pads, auto_pad, kernel, steps, gaps), gaps, group)


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
    axes = range(rank(weight) - 2)
    ones, none = [1] * len(axes), [0] * len(axes)
    steps, gaps, more = strides or ones, dilations or ones, output_padding or none
    sides = tuple(pads or none * 2)
    if output_shape is not None or auto_pad.startswith(b"SAME"):
        lengths = [constant_size(x, 2 + n) for n in axes]
        wanted = [length * step for length, step in zip(lengths, steps, strict=True)]
        wanted = wanted if output_shape is None else list(output_shape)[-len(axes) :]
        reach = [(constant_size(weight, 2 + n) - 1) * gaps[n] + 1 for n in axes]
        totals = [steps[n] * (lengths[n] - 1) + more[n] + reach[n] - wanted[n] for n in axes]
        sides = blocks.halved(totals, lower=auto_pad != b"SAME_UPPER")
    return blocks.transposed_convolution(x, weight, bias, steps, sides, more, gaps, group)


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
    places = list(range(rank(x))) if axes is None else [axis_of(x, a) for a in axes]
    factors = [float(f) for f in numbers(scales)] if scales is not None and len(scales) else [None] * len(places)
    counts = [int(c) for c in numbers(sizes)] if sizes is not None and len(sizes) else [None] * len(places)
    if keep_aspect_ratio_policy != b"stretch" and sizes is not None:
        ratios = [count / constant_size(x, axis) for count, axis in zip(numbers(sizes), places, strict=True)]
        one = (min if keep_aspect_ratio_policy == b"not_larger" else max)(ratios)
        factors = [one] * len(places)
        counts = [math.floor(one * constant_size(x, axis) + 0.5) for axis in places]
    changed = [i for i, axis in enumerate(places) if factors[i] != 1 and counts[i] != size_of(x, axis)]
    how = Resampling(
        kind=mode.decode(),
        coordinates=coordinate_transformation_mode.decode(),
        rounding=nearest_mode.decode(),
        a=cubic_coeff_a,
        antialias=bool(antialias),
        exclude_outside=bool(exclude_outside),
    )
    return resample(x, [places[i] for i in changed], [counts[i] for i in changed], [factors[i] for i in changed], how)


def _windows(
    x: Expr,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: bytes,
    ceil_mode: int,
) -> dict[str, Any]:
    """Attributes of a pooling operator, without those that only some have."""
    ones = [1] * len(kernel)
    steps = tuple(strides or ones)
    sides = _sides(x, pads, auto_pad, kernel, steps, dilations or ones)
    return {"pool_size": tuple(kernel), "strides": steps, "padding": sides, "ceil_mode": bool(ceil_mode)}


def _max_pool(
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> tuple[Expr, Expr]:
    """The maxima, and their indices in the whole flattened tensor; ``storage_order`` 1: in images stored by columns."""
    axes = len(kernel_shape)
    windows = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    windows["dilation"] = tuple(dilations or [1] * axes)
    places = PLACES[axes](x, **windows)
    if storage_order and axes == 2:
        height, width = (cast(size_of(x, a), "int64") for a in (2, 3))
        row, column = ops.floor_divide(places, width), ops.floor_mod(places, width)
        places = ops.add(ops.multiply(column, height), row)
    images = ops.arange(0, count_of(x, range(2)), 1, dtype="int64")
    before = ops.multiply(images, cast(count_of(x, range(2, rank(x))), "int64"))
    return MAXIMA[axes](x, **windows), ops.add(places, ops.reshape(before, (*shape_of(x)[:2], *[1] * axes)))


def _max_unpool(
    x: Expr,
    places: Expr,
    shape: Any = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
) -> Expr:
    """Zeros with ``x`` at ``places``, indices into the whole flattened tensor."""
    if shape is not None:
        return unpooled(x, places, (), numbers(shape))
    axes = len(kernel_shape)
    steps, sides = strides or [1] * axes, pads or [0] * (2 * axes)
    ends = [(constant_size(x, 2 + n) - 1) * steps[n] + kernel_shape[n] for n in range(axes)]
    sizes = [end - sides[n] - sides[axes + n] for n, end in enumerate(ends)]
    return unpooled(x, places, (), [*shape_of(x)[:2], *sizes])


def _require_neighbours(dilations: Sequence[int] | None) -> None:
    if set(dilations or ()) - {1}:
        raise ValueError(f"dilations: got {list(dilations or ())}; expected 1")


def _average_pool(
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Expr:
    _require_neighbours(dilations)
    windows = _windows(x, kernel_shape, strides, pads, None, auto_pad, ceil_mode)
    return MEANS[len(kernel_shape)](x, **windows, count_include_pad=bool(count_include_pad))


def _lp_pool(
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    p: int = 2,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
) -> Expr:
    """The ``p``-norm of each window."""
    _require_neighbours(dilations)
    if ceil_mode:
        raise ValueError("ceil_mode: got 1; expected 0")
    windows = _windows(x, kernel_shape, strides, pads, None, auto_pad, ceil_mode)
    mean = MEANS[len(kernel_shape)](ops.power(ops.abs(x), float(p)), **windows, count_include_pad=True)
    return ops.power(ops.multiply(mean, float(math.prod(kernel_shape))), 1.0 / p)


WINDOWS: dict[str, Row] = {
    "AveragePool": _average_pool,
    "Conv": convolution,
    "ConvTranspose": _transposed_convolution,
    "GlobalAveragePool": lambda x: ops.mean(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "GlobalMaxPool": lambda x: ops.max(x, axis=tuple(range(2, rank(x))), keepdims=True),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "Resize": _resize,
}
