"""Disentangled attention: scores from contents and relative positions (He et al. 2021, "DeBERTa", section 3).

S tokens of all texts in a call, H heads, K elements of a key, P rows of the position tables.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir.expr import PrimExpr, cast, const, logical_and, maximum, minimum
from ..relax.nodes import constant
from ..tir import te
from . import op
from .kv_cache import PagedKVCache
from .layers import Linear
from .module import Module
from .tensor import Parameter, Tensor

HIDDEN = -1e4  # score between tokens of different texts: finite in float16, and its exponential is 0


class DisentangledAttention(Module):
    """Bidirectional attention of x [1, S, D] within each text.

    The score of query i and key j is ``(q_i k_j + q_i pos_key[r] + k_j pos_query[r]) / sqrt(3 K)`` with the row
    ``r = rows[i - j + (C - 1)]``; pos_key, pos_query: [H, P, K]. rows: int32 [2 C - 1], the row for each distance from
    -(C - 1) to C - 1; larger distances are clamped. Memory grows with the square of S.
    """

    def __init__(self, hidden_size: int, heads: int, table: int, rows: np.ndarray):
        self.heads, self.head_dim, self.rows = heads, hidden_size // heads, rows
        self.qkv_proj = Linear(hidden_size, 3 * hidden_size)
        self.pos_key = Parameter((heads, table, self.head_dim))
        self.pos_query = Parameter((heads, table, self.head_dim))
        self.o_proj = Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        """Compute attention of x [1, S, D]. cache: provides each token's sequence and position; stores nothing."""
        _, length, size = x.shape
        by_head = op.reshape(self.qkv_proj(x), (length, 3 * self.heads, self.head_dim))
        q, k, v = op.split(op.permute_dims(by_head, (1, 0, 2)), 3, axis=0)

        def products(rows: Tensor, columns: Tensor) -> Tensor:
            return op.matmul(rows, op.permute_dims(columns.astype(x.dtype), (0, 2, 1)))

        places = [Tensor(constant(self.rows)), cache.token_seq, cache.token_pos]
        parts = [products(q, k), products(q, self.pos_key), products(k, self.pos_query)]
        weights = op.softmax(op.tensor_expr_op(self._scores, "disentangled_scores", [*parts, *places]))
        out = op.permute_dims(op.matmul(weights, v), (1, 0, 2))
        return self.o_proj(op.reshape(out, (1, length, size)))

    def _scores(
        self,
        content: te.Tensor,
        to_position: te.Tensor,
        from_position: te.Tensor,
        rows: te.Tensor,
        token_seq: te.Tensor,
        token_pos: te.Tensor,
    ) -> te.Tensor:
        """Combine content: [H, S, S] and the position scores by query and by key: [H, S, P] to scores [H, S, S]."""
        reach, scale = len(self.rows) // 2, 1 / math.sqrt(3 * self.head_dim)

        def element(h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            distance = minimum(maximum(token_pos[i] - token_pos[j], const(-reach, "int32")), const(reach, "int32"))
            row = cast("int64", rows[cast("int64", distance + const(reach, "int32"))])
            total = (content[h, i, j] + to_position[h, i, row] + from_position[h, j, row]) * const(scale, content.dtype)
            same_text = logical_and(token_seq[i] == token_seq[j], token_pos[j] >= const(0, "int32"))
            return te.select(same_text, total, const(HIDDEN, content.dtype))

        return te.compute(content.shape, element, name="disentangled_scores")
