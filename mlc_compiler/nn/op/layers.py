"""Operations of layers: matmuls, dequantization, norms, softmax, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...relax import ops
from ...relax.ops import OperatorError
from ..tensor import Tensor, apply
from .elementwise import where
from .shapes import full, ones, permute_dims, reshape, tril
from .traced import traced

linear = traced(ops.linear)
dequantize_awq = traced(ops.dequantize_awq)
dequantize_blocks = traced(ops.dequantize_blocks)
dequantize_ft = traced(ops.dequantize_ft)
softmax = traced(ops.softmax, {"x": Tensor})
log_softmax = traced(ops.log_softmax, {"x": Tensor})


def matmul(x: Tensor, y: Tensor, out_dtype: str | None = None) -> Tensor:
    """``x @ y`` as in numpy. out_dtype: dtype of the result; None: the common dtype of both."""
    return apply(ops.matmul, x, y, out_dtype=out_dtype or "void")


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
) -> Tensor:
    """The cross-correlation of images, see ``relax.ops.conv2d``, plus ``bias`` [O] for each output channel."""
    sizes = {
        name: value if isinstance(value, int) else tuple(value)
        for name, value in (("strides", stride), ("padding", padding), ("dilation", dilation))
    }
    y = apply(ops.conv2d, x, weight, groups=groups, data_layout=data_layout, **sizes)
    if bias is None:
        return y
    bias = bias.astype(y.dtype)
    return y + (bias if data_layout.endswith("C") else reshape(bias, (bias.shape[0], 1, 1)))


def dequantize(
    q: Tensor,
    scale: Tensor,
    *,
    bits: int,
    group: int,
    k: int,
    layout: str = "NK",
    dtype: str = "float32",
    values: tuple[int, ...] = (),
) -> Tensor:
    """See the operator ``dequantize``: q uint32 [..., N, words], scale [..., N, groups]; returns [..., N, k]."""
    return apply(ops.dequantize, q, scale, bits=bits, group=group, k=k, layout=layout, dtype=dtype, values=values)


def rms_norm(x: Tensor, weight: Tensor, axes: int | Sequence[int] = -1, epsilon: float = 1e-5) -> Tensor:
    """``x * weight / sqrt(mean(x^2) + epsilon)`` over the trailing ``axes``; keeps shape and dtype."""
    return apply(ops.rms_norm, x, weight, axes=_listed(axes), epsilon=epsilon)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, axes: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` over the trailing ``axes``; keeps shape and dtype."""
    return apply(ops.layer_norm, x, weight, bias, axes=_listed(axes), epsilon=epsilon)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """Group normalization over ``axes`` (None: those after the first two) and equal groups of channels."""
    reduced = tuple(range(2, x.ndim)) if axes is None else tuple(axes)
    attrs = {"num_groups": num_groups, "channel_axis": channel_axis, "axes": reduced, "epsilon": epsilon}
    return apply(ops.group_norm, x, weight, bias, **attrs)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.T * scale + attn_mask) @ value`` for each head.

    query: [batch, S, heads, D]; key, value: [batch, T, heads, D]; attn_mask: [batch, heads, S, T]. is_causal: query i
    attends to keys 0 to i. scale: ``1 / sqrt(D)`` by default. Returns [batch, S, heads, D].
    """
    q, k, v = (permute_dims(x, (0, 2, 1, 3)) for x in (query, key, value))
    size = query.shape[-1]
    if scale is None:
        if not isinstance(size, int):
            raise OperatorError(
                f"scaled_dot_product_attention: query has the head size {size}; expected a number, or scale"
            )
        scale = 1.0 / math.sqrt(size)
    scores = matmul(q, permute_dims(k, (0, 1, 3, 2))) * scale
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        shape = scores.shape[-2:]
        mask = tril(ones(shape, "int32")) > 0
        scores = where(mask, scores, full(shape, -math.inf, scores.dtype))
    return permute_dims(matmul(softmax(scores), v), (0, 2, 1, 3))


def _listed(axes: int | Sequence[int]) -> Sequence[int]:
    return (axes,) if isinstance(axes, int) else axes
