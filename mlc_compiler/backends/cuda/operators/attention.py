"""Paged attention on a GPU: the kernels for prompts and for single queries."""

from __future__ import annotations

from typing import Any

from ....ir.expr import PrimExpr
from ....target import Target
from ....tir import te
from ....tir.nodes import Stmt
from ...paged_attention import PagedAttention
from .decode import attend_by_pieces
from .fma_tiles import attend_by_fma
from .latent_tiles import attend_latent
from .mma_tiles import attend_by_mma


def paged_attention(
    q: te.Tensor,
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    optional: tuple[te.Tensor, ...],
    *,
    target: Target,
    **attrs: Any,
) -> te.Tensor:
    """Kernel of the operator ``nn.paged_attention``, with its operands and attributes."""
    inputs = [q, k_pages, v_pages, page_table, token_seq, token_pos, *optional]
    more = dict(zip(attrs["names"], (t.buffer for t in optional), strict=True))
    places = (page_table.buffer, token_seq.buffer, token_pos.buffer)
    problem = PagedAttention(q.buffer, k_pages.buffer, v_pages.buffer, *places, layer, more, attrs)
    return te.extern([problem.out], inputs, _kernels(problem, target))[0]


def _kernels(problem: PagedAttention, target: Target) -> Stmt:
    latent = attend_latent(problem, target)
    if latent is not None:
        return latent
    if problem.single_query:
        return attend_by_pieces(problem, target)
    return attend_by_mma(problem, target) or attend_by_fma(problem, target)
