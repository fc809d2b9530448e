"""Operators that a CPU has kernels of its own for, scheduled by hand. All others get the loops of their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ....relax.tensor_call import TensorExpression
from ....target import Target
from .attention import paged_attention
from .sampling import draw_top_p

__all__ = ["kernels_of"]


def kernels_of(target: Target) -> Mapping[str, TensorExpression]:
    """What computes an operator on a target, with the operator's own signature, by the operator's name."""
    return {
        "nn.paged_attention": partial(paged_attention, target=target),
        "nn.sample_top_p": partial(draw_top_p, target=target),
    }
