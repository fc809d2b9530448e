"""Attention over keys and values in dense tensors (no KV cache)."""

from __future__ import annotations

import math

from ...ir import dtype as dt
from ...ir.expr import PrimExpr, const
from ...tir import te
from .linear import matmul
from .normalize import softmax
from .registry import operator


@operator("nn.dense_attention")
def dense_attention(
    query: te.Tensor,
    keys: te.Tensor,
    values: te.Tensor,
    mask: te.Tensor | None = None,
    *,
    scale: float = 1.0,
    zero_rows: bool = False,
) -> te.Tensor:
    """``softmax(query @ keys * scale + mask) @ values`` (Vaswani et al. 2017), computed in float32.

    query: [..., S, D]; keys: [..., D, T], transposed; values: [..., T, E]; all floating, and their leading axes
    are broadcast. mask: floating, or bool (True where a query sees a key); broadcast to [..., S, T]. Returns [..., S,
    E] in query's dtype. zero_rows: where all scores of a query are minus infinity, the result is 0 instead of NaN.
    """
    if not all(dt.is_float(t.dtype) for t in (query, keys, values)):
        raise ValueError(f"got dtypes {query.dtype}, {keys.dtype} and {values.dtype}; expected floating ones")
    products = matmul.te(query, keys, out_dtype="float32")
    scores = te.elementwise("scaled", lambda product: product * const(scale, "float32"), products)
    if mask is not None:
        scores = te.elementwise("masked", masked, scores, mask)
    weights = softmax.te(scores)
    if zero_rows:
        weights = _without_unseeing(scores, weights)  # type: ignore[arg-type]
    return matmul.te(weights, values, out_dtype=query.dtype)  # type: ignore[return-value]


def masked(score: PrimExpr, mask: PrimExpr) -> PrimExpr:
    """Apply a mask to a score: minus infinity where a bool mask is False, or add a floating mask."""
    if mask.dtype == "bool":
        return te.select(mask, score, const(-math.inf, "float32"))
    return score + te.cast(mask, "float32")


def _without_unseeing(scores: te.Tensor, weights: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(scores.shape[-1], "k")
    best = te.compute(scores.shape[:-1], lambda *i: te.max(scores[(*i, k)], axis=k), name="best")

    def weight(*i: PrimExpr) -> PrimExpr:
        return te.select(best[i[:-1]] > const(-math.inf, "float32"), weights[i], const(0.0, "float32"))

    return te.compute(weights.shape, weight, name="weights")
