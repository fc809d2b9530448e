"""Convolution and pooling operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.expr import INDEX_DTYPE, IntImm, PrimExpr, Select, binary, max_value, maximum, minimum, product
from ...ir.simplify import simplify
from ...tir import te
from ..info import show_shape, static_size
from .linear import narrowed, sum_type
from .rearrange import pad
from .registry import Operator, operator

Sizes = int | tuple[int, ...]
AXES = "DHW"


@dataclass(frozen=True)
class _Layout:
    """The order of a tensor's axes: ``NCHW``, or ``NHWC`` with the channels last, for any number of spatial axes."""

    channels_last: bool

    @staticmethod
    def named(name: str, rank: int, attribute: str) -> _Layout:
        """Parse a layout with ``rank`` spatial axes. Raises ValueError for any other name."""
        places = AXES[-rank:]
        if name not in (f"NC{places}", f"N{places}C"):
            raise ValueError(f"{attribute}: got {name!r}; expected 'NC{places}' or 'N{places}C'")
        return _Layout(name.endswith("C"))

    def joined(self, batch: PrimExpr, channel: PrimExpr, places: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """Build an index or a shape from its parts."""
        return (batch, *places, channel) if self.channels_last else (batch, channel, *places)

    def parts(self, of: Sequence[PrimExpr]) -> tuple[PrimExpr, PrimExpr, tuple[PrimExpr, ...]]:
        """Split an index or a shape into batch, channel and spatial parts."""
        first, *rest = of
        return (first, rest[-1], tuple(rest[:-1])) if self.channels_last else (first, rest[0], tuple(rest[1:]))


@dataclass(frozen=True)
class _Window:
    """A window that slides along one axis of ``size`` elements, padded by ``before`` and ``after`` elements."""

    size: PrimExpr
    kernel: PrimExpr
    stride: int
    before: int
    after: int
    dilation: int

    def count(self, ceil_mode: bool) -> PrimExpr:
        """The number of window positions; ``ceil_mode``: also count one that ends outside, if it begins inside."""
        reach = (self.kernel - 1) * self.dilation + 1
        last = self.size + self.before + self.after - reach
        if not ceil_mode:
            return simplify(last // self.stride + 1)
        inside = (self.size + self.before - 1) // self.stride
        return simplify(minimum((last + self.stride - 1) // self.stride, inside) + 1)

    def missing(self, ceil_mode: bool) -> int:
        """The number of elements after the last one that windows reach, padding included."""
        if not ceil_mode:
            return self.after
        known = static_size(simplify(self.end(self.count(True) - 1) - self.size))
        if known is None:
            raise ValueError("ceil_mode: got an image of symbolic size; expected constant sizes")
        return max(known, 0)

    def end(self, place: PrimExpr) -> PrimExpr:
        """The index after the window's last element at ``place``."""
        return place * self.stride - self.before + (self.kernel - 1) * self.dilation + 1

    def members(self, place: PrimExpr, include_padding: bool) -> PrimExpr:
        """The number of elements of the window at ``place`` that lie in the image, or in the padded image."""
        low, high = (self.before, self.after) if include_padding else (0, 0)
        return minimum(self.end(place), self.size + high) - maximum(place * self.stride - self.before, -low)


def _each(value: Sizes, rank: int, name: str, least: int) -> tuple[int, ...]:
    """Expand a value to one number per axis. Raises ValueError for a wrong count, or numbers below ``least``."""
    listed = (value,) * rank if isinstance(value, int) else value * rank if len(value) == 1 else value
    if len(listed) != rank or min(listed) < least:
        raise ValueError(f"{name}: got {value}; expected {rank} numbers of at least {least}")
    return listed


def _windows(
    data: te.Tensor, layout: _Layout, kernel: Sequence[PrimExpr], strides: Sizes, padding: Sizes, dilation: Sizes
) -> list[_Window]:
    rank = data.ndim - 2
    if rank != len(kernel):
        raise ValueError(f"got shape {show_shape(data.shape)}; expected {len(kernel) + 2} axes")
    both = not isinstance(padding, int) and len(padding) == 2 * rank
    sides = _each(padding, 2 * rank if both else rank, "padding", 0)
    steps, gaps = _each(strides, rank, "strides", 1), _each(dilation, rank, "dilation", 1)
    places = zip(layout.parts(data.shape)[2], kernel, steps, sides[:rank], sides[rank:] or sides, gaps, strict=True)
    return [_Window(*place) for place in places]


def _padded(x: te.Tensor, layout: _Layout, windows: Sequence[_Window], fill: Any, ceil_mode: bool = False) -> te.Tensor:
    sides = [w for window in windows for w in (window.before, window.missing(ceil_mode))]
    widths = (0, 0, *sides, 0, 0) if layout.channels_last else (0, 0, 0, 0, *sides)
    return pad.te(x, pad_width=widths, pad_value=fill) if any(widths) else x  # type: ignore[return-value]


def _members(windows: Sequence[_Window]) -> list[te.ReduceAxis]:
    return [te.reduce_axis(w.kernel, f"k{i}") for i, w in enumerate(windows)]


def _places(windows: Sequence[_Window], at: Sequence[PrimExpr], k: Sequence[te.ReduceAxis]) -> tuple[PrimExpr, ...]:
    """The index into the padded image of element ``k`` of the window at ``at``."""
    return tuple(i * w.stride + j * w.dilation for w, i, j in zip(windows, at, k, strict=True))


def _convolution(rank: int) -> Operator:
    def definition(
        data: te.Tensor,
        weight: te.Tensor,
        *,
        strides: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        data_layout: str = f"NC{AXES[-rank:]}",
    ) -> te.Tensor:
        if weight.ndim != rank + 2:
            raise ValueError(f"weight: got shape {show_shape(weight.shape)}; expected {rank + 2} axes")
        layout = _Layout.named(data_layout, rank, "data_layout")
        windows = _windows(data, layout, weight.shape[2:], strides, padding, dilation)
        outputs, inner = weight.shape[:2]
        if groups < 1 or (static_size(outputs) or 0) % groups:
            raise ValueError(f"groups: got {groups}; expected a divisor of the {show_shape((outputs,))} outputs")
        batch, channels, _ = layout.parts(data.shape)
        te.require_equal(channels, simplify(inner * groups), "channels of the data and of the weight's groups")
        acc, x, members = sum_type(data.dtype), _padded(data, layout, windows, 0), simplify(outputs // groups)
        c = te.reduce_axis(inner, "c")
        k = _members(windows)

        def element(*i: PrimExpr) -> PrimExpr:
            n, o, at = layout.parts(i)
            channel = c if groups == 1 else o // members * inner + c
            value = x[layout.joined(n, channel, _places(windows, at, k))]
            axes = [*k, c] if layout.channels_last else [c, *k]
            return te.sum(te.cast(value, acc) * te.cast(weight[(o, c, *k)], acc), axis=axes)

        shape = layout.joined(batch, outputs, [w.count(False) for w in windows])
        return narrowed(te.compute(shape, element, name=f"conv{rank}d"), data.dtype)

    definition.__doc__ = f"""The cross-correlation of images on {rank} ax{"is" if rank == 1 else "es"}.

    data: [N, C, *size]; weight: [O, C / groups, *kernel] of any floating type, converted elementwise. Attributes have
    one number for all axes or one for each; padding may also have those before and then those after the image. Returns
    [N, O, *places] in data's dtype, sums are at least float32; outputs of a group see the channels of their group.
    data_layout: "N{AXES[-rank:]}C" has the channels of data and result last.
    """
    return operator(f"nn.conv{rank}d")(definition)


conv1d, conv2d, conv3d = (_convolution(rank) for rank in (1, 2, 3))


def _kernel(pool_size: Sizes, rank: int) -> list[PrimExpr]:
    return [IntImm(s) for s in _each(pool_size, rank, "pool_size", 1)]


def _pool(
    x: te.Tensor,
    layout: _Layout,
    windows: Sequence[_Window],
    ceil_mode: bool,
    name: str,
    combine: Callable[..., Any],
) -> te.Tensor:
    """Combine the elements of each window of a padded image."""
    k = _members(windows)
    batch, channels, _ = layout.parts(x.shape)

    def element(*i: PrimExpr) -> PrimExpr:
        n, channel, at = layout.parts(i)
        value = x[layout.joined(n, channel, _places(windows, at, k))]
        return combine(te.cast(value, sum_type(x.dtype)), axis=k)

    return te.compute(layout.joined(batch, channels, [w.count(ceil_mode) for w in windows]), element, name=name)


def _best_of_windows(rank: int) -> Operator:
    def definition(
        data: te.Tensor,
        *,
        pool_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        ceil_mode: bool = False,
        layout: str = f"NC{AXES[-rank:]}",
    ) -> te.Tensor:
        kernel, order = _kernel(pool_size, rank), _Layout.named(layout, rank, "layout")
        windows = _windows(data, order, kernel, strides, padding, dilation)
        x = _padded(data, order, windows, te.min_value(data.dtype), ceil_mode)
        best = _pool(x, order, windows, ceil_mode, f"max_pool{rank}d", te.max)
        return narrowed(best, data.dtype)

    definition.__doc__ = f"""The maximum of each window. data: [N, C, *size]; attributes as of ``conv{rank}d``.

    ceil_mode: windows that begin in the image may end after it; requires constant sizes. layout:
    "N{AXES[-rank:]}C" has the channels last.
    """
    return operator(f"nn.max_pool{rank}d")(definition)


def _places_of_best(rank: int) -> Operator:
    def definition(
        data: te.Tensor,
        *,
        pool_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        ceil_mode: bool = False,
    ) -> te.Tensor:
        order = _Layout(channels_last=False)
        windows = _windows(data, order, _kernel(pool_size, rank), strides, padding, dilation)
        x, k = _padded(data, order, windows, te.min_value(data.dtype), ceil_mode), _members(windows)
        best = _pool(x, order, windows, ceil_mode, "best", te.max)

        def first(*i: PrimExpr) -> PrimExpr:
            n, channel, at = order.parts(i)
            places = _places(windows, at, k)
            place: PrimExpr = IntImm(0)
            for w, p in zip(windows, places, strict=True):
                place = place * w.size + (p - w.before)
            found = binary("==", te.cast(x[order.joined(n, channel, places)], best.dtype), best[i])
            return te.min(Select(found, place, max_value(INDEX_DTYPE)), axis=k)

        return te.compute(best.shape, first, name=f"argmax_pool{rank}d")

    definition.__doc__ = f"""The index of the first maximum of each window, in the flattened image, int64.

    data: [N, C, *size] without NaN and minus infinity; attributes as of ``max_pool{rank}d``.
    """
    return operator(f"nn.argmax_pool{rank}d")(definition)


def _means_of_windows(rank: int) -> Operator:
    def definition(
        data: te.Tensor,
        *,
        pool_size: int | tuple[int, ...],
        strides: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = f"NC{AXES[-rank:]}",
    ) -> te.Tensor:
        kernel, order = _kernel(pool_size, rank), _Layout.named(layout, rank, "layout")
        windows = _windows(data, order, kernel, strides, padding, 1)
        x = _padded(data, order, windows, 0, ceil_mode)
        total = _pool(x, order, windows, ceil_mode, f"avg_pool{rank}d", te.sum)

        def mean(*i: PrimExpr) -> PrimExpr:
            places = order.parts(i)[2]
            members = [w.members(at, count_include_pad) for w, at in zip(windows, places, strict=True)]
            return te.cast(total[i] / te.cast(product(members), total.dtype), data.dtype)

        return te.compute(total.shape, mean, name="mean")

    definition.__doc__ = f"""The mean of each window. data: floating [N, C, *size]; attributes of ``max_pool{rank}d``.

    count_include_pad: count elements of the padding, as zeros.
    """
    return operator(f"nn.avg_pool{rank}d")(definition)


max_pool1d, max_pool2d, max_pool3d = (_best_of_windows(rank) for rank in (1, 2, 3))
argmax_pool1d, argmax_pool2d, argmax_pool3d = (_places_of_best(rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_means_of_windows(rank) for rank in (1, 2, 3))
