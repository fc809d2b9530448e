"""ATen's pooling on one to three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.structural import structural_equal
from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr, constant
from ...pooling import MAXIMA, MEANS, PLACES, unpooled
from ...resample import weighted
from ...values import constant_size, rank, size_of

Row = Callable[..., Any]
Sizes = int | Sequence[int]


def listed(value: Sizes, count: int) -> tuple[int, ...]:
    """One number for each axis; an empty list stays empty."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * count if len(numbers) == 1 else numbers


def _windows(axes: int, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool) -> dict[str, Any]:
    size = listed(kernel, axes)
    steps = listed(stride, axes) or size
    return {"pool_size": size, "strides": steps, "padding": listed(padding, axes), "ceil_mode": ceil_mode}


def _of_batches(x: Expr, axes: int, pool: Callable[[Expr], Expr]) -> Expr:
    """Apply pooling of [N, C, *size] to [N, C, *size] or [C, *size]."""
    if rank(x) != axes + 1:
        return pool(x)
    return ops.squeeze(pool(ops.expand_dims(x, axis=0)), axis=0)


def _max_pool(axes: int) -> Row:
    def row(
        x: Expr, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> Expr:
        windows = {**_windows(axes, kernel, stride, padding, ceil_mode), "dilation": listed(dilation, axes)}
        return _of_batches(x, axes, lambda v: MAXIMA[axes](v, **windows))

    return row


def _max_pool_with_indices(axes: int) -> Row:
    best = _max_pool(axes)

    def row(
        x: Expr, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> tuple[Expr, Expr]:
        windows = {**_windows(axes, kernel, stride, padding, ceil_mode), "dilation": listed(dilation, axes)}
        places = _of_batches(x, axes, lambda v: PLACES[axes](v, **windows))
        return best(x, kernel, stride, padding, dilation, ceil_mode), places

    return row


def _avg_pool(axes: int) -> Row:
    def row(
        x: Expr,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        windows = _windows(axes, kernel, stride, padding, ceil_mode)
        if divisor_override is None:
            return _of_batches(x, axes, lambda v: MEANS[axes](v, **windows, count_include_pad=count_include_pad))
        if ceil_mode:
            raise ValueError("an average pooling with ceil_mode and divisor_override; expected one of them")
        whole = _of_batches(x, axes, lambda v: MEANS[axes](v, **windows, count_include_pad=True))
        return ops.multiply(whole, float(np.prod(windows["pool_size"])) / divisor_override)

    return row


def _shrunk(x: Expr, size: Sequence[int | None]) -> dict[int, int]:
    """The last axes that pooling to ``size`` changes, and their new sizes; None keeps a size."""
    first = rank(x) - len(size)
    counts = {first + n: count for n, count in enumerate(size) if count is not None}
    return {axis: count for axis, count in counts.items() if not structural_equal(size_of(x, axis), count)}


def _parts(length: int, count: int) -> list[range]:
    """The elements, of ``length``, over which each of ``count`` results of adaptive pooling extends."""
    return [range(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _adaptive_average(x: Expr, size: Sequence[int | None]) -> Expr:
    """The mean of each of ``size`` parts of the last axes; parts are windows of equal size if they divide the axes."""
    counts = _shrunk(x, size)
    if all(count == 1 for count in counts.values()):
        return ops.mean(x, axis=tuple(counts), keepdims=True) if counts else x
    lengths = {axis: constant_size(x, axis) for axis in counts}
    if rank(x) == len(size) + 2 and not any(lengths[axis] % count for axis, count in counts.items()):
        kernel = tuple(lengths[axis] // counts[axis] if axis in counts else 1 for axis in range(2, rank(x)))
        return MEANS[len(size)](x, pool_size=kernel, strides=kernel)
    for axis, count in counts.items():
        table = np.zeros((count, lengths[axis]))
        for row, part in zip(table, _parts(lengths[axis], count), strict=True):
            row[part] = 1 / len(part)
        x = weighted(x, axis, table)
    return x


def _adaptive_max(x: Expr, size: Sequence[int | None]) -> tuple[Expr]:
    """The maximum of each of ``size`` parts of the last axes. The indices are not computed."""
    for axis, count in _shrunk(x, size).items():
        parts = _parts(constant_size(x, axis), count)
        most = max(map(len, parts))
        members = [[*part, *[part[-1]] * (most - len(part))] for part in parts]
        x = ops.max(ops.take(x, constant(np.array(members)), axis=axis, mode="fast"), axis=axis + 1)
    return (x,)


def _max_unpool(x: Expr, places: Expr, size: Sequence[int], *_: Any) -> Expr:
    return unpooled(x, places, shape_of(x)[: rank(x) - len(size)], size)


ROWS: dict[str, Row] = {
    **{f"avg_pool{n}d": _avg_pool(n) for n in MEANS},
    **{f"max_pool{n}d": _max_pool(n) for n in MAXIMA},
    **{f"max_pool{n}d_with_indices": _max_pool_with_indices(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive_average for n in (2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_average for n in MEANS},
    **{f"adaptive_max_pool{n}d": _adaptive_max for n in (2, 3)},
    **{f"max_unpool{n}d": _max_unpool for n in (2, 3)},
}
