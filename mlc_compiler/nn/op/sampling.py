"""Choosing tokens."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply


def softmax_with_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """As the operator ``nn.softmax_with_temperature``."""
    return apply(ops.softmax_with_temperature, logits, temperature)


def sample_top_p(probs: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """As the operator ``nn.sample_top_p``."""
    return apply(ops.sample_top_p, probs, top_p, uniform)
