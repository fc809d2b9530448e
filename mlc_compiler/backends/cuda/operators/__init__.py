"""Operators with hand-written kernels. All others are lowered from their tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ....relax.tensor_call import TensorExpression
from ....target import Target
from ....tir import te
from .append import append, append_latent, append_quantized
from .attention import paged_attention
from .grouping import group_by_expert
from .routing import route
from .sampling import draw_top_p

__all__ = ["kernels_of"]


def kernels_of(target: Target) -> Mapping[str, TensorExpression]:
    """Operator name -> tensor expression of its kernel, which has the operator's signature."""
    kernels: Mapping[str, Callable[..., te.Tensor | list[te.Tensor]]] = {
        "nn.paged_attention": paged_attention,
        "kv_cache.append": append,
        "kv_cache.append_quantized": append_quantized,
        "kv_cache.append_latent": append_latent,
        "nn.group_by_expert": group_by_expert,
        "nn.route": route,
        "nn.sample_top_p": draw_top_p,
    }
    return {name: partial(kernel, target=target) for name, kernel in kernels.items()}
