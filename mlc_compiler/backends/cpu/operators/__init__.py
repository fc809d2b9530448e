"""Operators with hand-written CPU kernels. All others are lowered from their tensor expressions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ....relax.tensor_call import TensorExpression
from ....target import Target
from .append import append
from .attention import paged_attention
from .dense_attention import dense_attention
from .filters import filter_probabilities
from .recurrent import recurrent_kernels
from .sampling import draw_top_p
from .scatter import scatter_elements, scatter_nd
from .sort import argsort, sort, topk

__all__ = ["kernels_of"]


def kernels_of(target: Target, narrow: bool) -> Mapping[str, TensorExpression]:
    """Operator name -> tensor expression of its kernel, which has the operator's signature.

    narrow: the matmuls of attention may round their operands to bfloat16.
    """
    return {
        "kv_cache.append": append,
        "nn.paged_attention": partial(paged_attention, target=target, narrow=narrow),
        "nn.dense_attention": partial(dense_attention, target=target),
        **recurrent_kernels(target),
        "nn.filter_probabilities": partial(filter_probabilities, target=target),
        "nn.sample_top_p": partial(draw_top_p, target=target),
        "scatter_elements": scatter_elements,
        "scatter_nd": scatter_nd,
        "argsort": argsort,
        "sort": sort,
        "topk": topk,
    }
