"""ONNX's Attention: https://onnx.ai/onnx/operators/onnx__Attention.html."""

from __future__ import annotations

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import Size, plain, rank, size_of


def attention(
    q: Expr,
    k: Expr,
    v: Expr,
    mask: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    *,
    is_causal: int = 0,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    qk_matmul_output_mode: int = 0,
    softmax_precision: int | None = None,
) -> tuple[Expr, ...]:
    """q: [N, H, S, D], k, v: [N, G, T, D]; or [N, S, H * D] and [N, T, G * D] with the numbers of heads.

    Returns the result in q's form, and the keys and values, past ones first, [N, G, P + T, D].
    """
    if softcap < 0:
        raise ValueError(f"softcap: got {softcap}; expected a positive number, or 0 for none")
    joined = rank(q) == 3
    if joined:
        q, k, v = (_heads(x, n) for x, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    num_past: Size = 0
    if past_key is not None:
        num_past = size_of(past_key, 2)
        k, v = ops.concat([past_key, k], axis=2), ops.concat([past_value, v], axis=2)
    y = blocks.attention(q, k, v, mask, bool(is_causal), scale, num_past, softcap)
    if joined:
        y = blocks.reshape(ops.permute_dims(y, axes=(0, 2, 1, 3)), (size_of(y, 0), size_of(y, 2), -1))
    return y, k, v


def _heads(x: Expr, count: int | None) -> Expr:
    """[N, S, H * D] -> [N, H, S, D]"""
    if count is None:
        raise ValueError("got three axes and no number of heads; expected q_num_heads and kv_num_heads")
    n, s, width = shape_of(x)
    return ops.permute_dims(ops.reshape(x, (n, s, count, plain(width // count))), axes=(0, 2, 1, 3))
