"""Operations that apply biases and penalties to logits, and sample tokens."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply


def penalize(
    logits: Tensor,
    token_ids: Tensor,
    counts: Tensor,
    bias: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor,
) -> Tensor:
    """Apply biases and repetition penalties to logits, float32 [n, V], written in place and returned.

    token_ids, counts: int32 [n, m]; bias: float32 [n, m]; others float32 [n]; see ``relax.ops.sampling``.
    """
    return apply(ops.penalize, logits, token_ids, counts, bias, presence, frequency, repetition)


def softmax_with_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """``softmax(logits / temperature)`` of each row: float32 [n, V] and [n]; see ``relax.ops.sampling``."""
    return apply(ops.softmax_with_temperature, logits, temperature)


def filter_probabilities(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, typical_p: Tensor) -> Tensor:
    """``probs``, float32 [n, V], with 0 for the tokens that a filter drops; top_k int32 [n], others float32 [n].

    See ``relax.ops.sampling_filters``.
    """
    return apply(ops.filter_probabilities, probs, top_k, top_p, min_p, typical_p)


def sample_top_p(probs: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """Nucleus sampling: probs float32 [n, V], others [n]; returns int32 [n]; see ``relax.ops.sampling``."""
    return apply(ops.sample_top_p, probs, top_p, uniform)
