"""Operations that sample tokens from logits."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply


def softmax_with_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """``softmax(logits / temperature)`` of each row: float32 [n, V] and [n]; see ``relax.ops.sampling``."""
    return apply(ops.softmax_with_temperature, logits, temperature)


def sample_top_p(probs: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """Nucleus sampling: probs float32 [n, V], others [n]; returns int32 [n]; see ``relax.ops.sampling``."""
    return apply(ops.sample_top_p, probs, top_p, uniform)
