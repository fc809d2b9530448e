"""Norms and softmax over trailing axes. Sums are float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.expr import IntImm, PrimExpr
from ...tir import te
from ..info import show_shape, static_size
from .axes import normalize_axes, normalize_axis
from .registry import operator


def _trailing(axes: int | tuple[int, ...], ndim: int) -> int:
    """The number of normalized axes. Raises ValueError unless ``axes`` are the last ones."""
    listed = sorted(normalize_axes(axes, ndim))
    if not listed or listed != list(range(ndim - len(listed), ndim)):
        raise ValueError(f"axes: got {list(listed)}; expected the last {max(len(listed), 1)} of {ndim} axes")
    return len(listed)


def _require_shape(weight: te.Tensor, inner: tuple[PrimExpr, ...], what: str) -> None:
    if weight.ndim != len(inner):
        raise ValueError(f"axes: got {len(inner)} normalized axes; expected {weight.ndim}, as the weight has")
    for size, expected in zip(weight.shape, inner, strict=True):
        te.require_equal(size, expected, what)


def _count(sizes: tuple[PrimExpr, ...]) -> PrimExpr:
    count: PrimExpr = te.f32(sizes[0])
    for size in sizes[1:]:
        count = count * te.f32(size)
    return count


def _reduce_axes(sizes: tuple[PrimExpr, ...]) -> tuple[te.ReduceAxis, ...]:
    return tuple(te.reduce_axis(s, "k" if len(sizes) == 1 else f"k{i}") for i, s in enumerate(sizes))


def _moments(
    lead: Sequence[PrimExpr],
    member: Callable[[tuple[PrimExpr, ...]], PrimExpr],
    k: Sequence[te.ReduceAxis],
    count: PrimExpr,
) -> tuple[te.Tensor, te.Tensor]:
    """The sums over ``k`` and the sums of squared deviations from the mean, as float32 tensors of shape ``lead``.

    ``member(i)``: the float32 summand at index ``i`` of ``lead``; ``count``: the number of summands.
    """
    total = te.compute(lead, lambda *i: te.sum(member(i), axis=k), name="sum")

    def square(*i: PrimExpr) -> PrimExpr:
        centered = member(i) - total[i] / count
        return te.sum(centered * centered, axis=k)

    return total, te.compute(lead, square, name="square_sum")


@operator("nn.rms_norm")
def rms_norm(
    data: te.Tensor, weight: te.Tensor, *, axes: int | tuple[int, ...] = (-1,), epsilon: float = 1e-5
) -> te.Tensor:
    """``data * weight / sqrt(mean(data^2) + epsilon)`` over the trailing ``axes`` (Zhang & Sennrich 2019).

    data: [..., D] floating; weight: [D], any floating dtype. Returns data's shape and dtype; computed in float32.
    """
    n = _trailing(axes, data.ndim)
    lead, inner = data.shape[:-n], data.shape[-n:]
    _require_shape(weight, inner, "sizes of the weight and of the normalized axis")
    k = _reduce_axes(inner)

    def square(*i: PrimExpr) -> PrimExpr:
        value = te.f32(data[(*i, *k)])
        return te.sum(value * value, axis=k)

    square_sum = te.compute(lead, square, name="square_sum")

    def element(*i: PrimExpr) -> PrimExpr:
        scale = te.rsqrt(square_sum[i[:-n]] / _count(inner) + te.f32(epsilon))
        return te.cast(te.f32(data[i]) * scale * te.f32(weight[i[-n:]]), data.dtype)

    return te.compute(data.shape, element, name="rms_norm")


@operator("nn.layer_norm")
def layer_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor | None = None,
    *,
    axes: int | tuple[int, ...] = (-1,),
    epsilon: float = 1e-5,
) -> te.Tensor:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta`` over the trailing ``axes`` (Ba et al. 2016).

    data: [..., D] floating; gamma, beta: [D], any floating dtype. Returns data's shape and dtype; computed in float32.
    """
    n = _trailing(axes, data.ndim)
    lead, inner = data.shape[:-n], data.shape[-n:]
    _require_shape(gamma, inner, "sizes of gamma and of the normalized axis")
    if beta is not None:
        _require_shape(beta, inner, "sizes of beta and of the normalized axis")
    k, count = _reduce_axes(inner), _count(inner)
    total, square_sum = _moments(lead, lambda i: te.f32(data[(*i, *k)]), k, count)

    def element(*i: PrimExpr) -> PrimExpr:
        row = i[:-n]
        centered = te.f32(data[i]) - total[row] / count
        scaled = centered * te.rsqrt(square_sum[row] / count + te.f32(epsilon)) * te.f32(gamma[i[-n:]])
        return te.cast(scaled if beta is None else scaled + te.f32(beta[i[-n:]]), data.dtype)

    return te.compute(data.shape, element, name="layer_norm")


@operator("nn.group_norm")
def group_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor | None = None,
    *,
    num_groups: int,
    channel_axis: int = 1,
    axes: int | tuple[int, ...] = (),
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Like ``layer_norm``, over ``axes`` and each of ``num_groups`` equal groups of channels (Wu & He 2018).

    gamma, beta: [channels]. Returns data's shape and dtype; computed in float32.
    """
    channel, reduced = normalize_axis(channel_axis, data.ndim), sorted(normalize_axes(axes, data.ndim))
    channels = static_size(data.shape[channel])
    if channels is None or num_groups < 1 or channels % num_groups or channel in reduced:
        got = f"axis {channel} of {show_shape(data.shape)}, axes {reduced}"
        raise ValueError(f"got {got}; expected {num_groups} equal groups of channels, and axes without theirs")
    _require_shape(gamma, (data.shape[channel],), "sizes of gamma and of the channels")
    size = channels // num_groups
    sizes = {a: size if a == channel else data.shape[a] for a in sorted([*reduced, channel])}  # in order of memory
    k = {a: te.reduce_axis(extent, "k" if a == channel else f"k{a}") for a, extent in sizes.items()}
    kept = [a for a in range(data.ndim) if a not in reduced]
    lead = [IntImm(num_groups) if a == channel else data.shape[a] for a in kept]
    count = _count((*(data.shape[a] for a in reduced), IntImm(size)))

    def member(i: tuple[PrimExpr, ...]) -> PrimExpr:
        outer = dict(zip(kept, i, strict=True))
        place = [k[a] if a in reduced else outer[a] for a in range(data.ndim)]
        place[channel] = outer[channel] * size + k[channel]
        return te.f32(data[tuple(place)])

    def group(i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(i[a] // size if a == channel else i[a] for a in kept)

    total, square_sum = _moments(lead, member, list(k.values()), count)

    def element(*i: PrimExpr) -> PrimExpr:
        centered = te.f32(data[i]) - total[group(i)] / count
        scaled = centered * te.rsqrt(square_sum[group(i)] / count + te.f32(epsilon)) * te.f32(gamma[i[channel]])
        return te.cast(scaled if beta is None else scaled + te.f32(beta[i[channel]]), data.dtype)

    return te.compute(data.shape, element, name="group_norm")


@operator("nn.softmax")
def softmax(data: te.Tensor, *, axis: int = -1) -> te.Tensor:
    """``exp(v - max) / sum(exp(v - max))`` of the elements v along ``axis``, in float32. Returns data's dtype."""
    axis = normalize_axis(axis, data.ndim)
    lead = data.shape[:axis] + data.shape[axis + 1 :]
    k = te.reduce_axis(data.shape[axis], "k")

    def along(i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (*i[:axis], k, *i[axis:])

    def row(i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return i[:axis] + i[axis + 1 :]

    row_max = te.compute(lead, lambda *i: te.max(te.f32(data[along(i)]), axis=k), name="softmax_max")
    exps = te.compute(data.shape, lambda *i: te.exp(te.f32(data[i]) - row_max[row(i)]), name="softmax_exp")
    row_sum = te.compute(lead, lambda *i: te.sum(exps[along(i)], axis=k), name="softmax_sum")
    return te.compute(data.shape, lambda *i: te.cast(exps[i] / row_sum[row(i)], data.dtype), name="softmax")


@operator("nn.log_softmax")
def log_softmax(data: te.Tensor, *, axis: int = -1) -> te.Tensor:
    """``v - max - log(sum(exp(v - max)))`` of the elements v along ``axis``, in float32. Returns data's dtype."""
    axis = normalize_axis(axis, data.ndim)
    lead = data.shape[:axis] + data.shape[axis + 1 :]
    k = te.reduce_axis(data.shape[axis], "k")

    def shifted(i: tuple[PrimExpr, ...], row_max: te.Tensor) -> PrimExpr:
        return te.f32(data[i]) - row_max[i[:axis] + i[axis + 1 :]]

    def along(i: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (*i[:axis], k, *i[axis:])

    row_max = te.compute(lead, lambda *i: te.max(te.f32(data[along(i)]), axis=k), name="softmax_max")
    row_sum = te.compute(lead, lambda *i: te.sum(te.exp(shifted(along(i), row_max)), axis=k), name="softmax_sum")

    def element(*i: PrimExpr) -> PrimExpr:
        return te.cast(shifted(i, row_max) - te.log(row_sum[i[:axis] + i[axis + 1 :]]), data.dtype)

    return te.compute(data.shape, element, name="log_softmax")
