"""Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1) over a latent KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..relax import ops
from ..tir import te
from . import op
from .kv_cache import PagedKVCache
from .layers import Experts, Linear, RMSNorm
from .module import Module
from .tensor import Tensor, apply


@dataclass(frozen=True)
class LatentSizes:
    """Numbers of elements in latent attention.

    latent: the latent vector of a position, from which its keys and values are computed. rotated: the rotated part of a
    query, and the rotated key that all heads share. plain: the rest of a query. value: a head's value. query: the
    latent
    vector of queries; None where queries are projected from x directly.
    """

    latent: int
    rotated: int
    plain: int
    value: int
    query: int | None = None

    @property
    def head(self) -> int:
        """Number of elements of a query."""
        return self.plain + self.rotated


class LatentAttention(Module):
    """Multi-head latent attention of x [B, S, D], causal, in its absorbed form.

    The cache stores, for each position, its latent vector and its rotated key. Instead of expanding these, queries are
    multiplied by the matrices that map latent vectors to keys, and weighted sums of latent vectors by those that map
    them
    to values. Rotation is the cache's, which may have none. scale: factor of the scores. bias: whether the projections
    of x
    have a bias. epsilon: of the norms of latent vectors.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        sizes: LatentSizes,
        *,
        scale: float,
        bias: bool = False,
        epsilon: float = 1e-6,
    ):
        self.heads, self.sizes, self.scale = heads, sizes, scale
        self.from_x = sizes.query or heads * sizes.head
        self.qkv_a_proj = Linear(hidden_size, self.from_x + sizes.latent + sizes.rotated, bias=bias)
        self.q_a_layernorm = RMSNorm(sizes.query, epsilon) if sizes.query else None
        self.q_b_proj = Linear(sizes.query, heads * sizes.head, bias=False) if sizes.query else None
        self.kv_a_layernorm = RMSNorm(sizes.latent, epsilon)
        self.k_b_proj = Experts(heads, sizes.plain, sizes.latent)
        self.v_b_proj = Experts(heads, sizes.latent, sizes.value)
        self.o_proj = Linear(heads * sizes.value, hidden_size, bias=bias)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        batch, length, _ = x.shape
        made = self.qkv_a_proj(op.reshape(x, (batch * length, x.shape[2])))
        q, latent, key = op.split(made, [self.from_x, self.from_x + self.sizes.latent], axis=1)
        kept = op.concat([self.kv_a_layernorm(latent), self._rotated(key, cache)], axis=1)
        sums = cache.latent_attention(layer, self._query(q, cache), kept, self.scale)
        values = of_each_head(self.v_b_proj, sums, cache)
        return self.o_proj(op.reshape(values, (batch, length, self.heads * self.sizes.value)))

    def _query(self, q: Tensor, cache: PagedKVCache) -> Tensor:
        """Absorbed queries [T, heads, latent + rotated] from the query part of the first projection."""
        if self.q_a_layernorm and self.q_b_proj:
            q = self.q_b_proj(self.q_a_layernorm(q))
        heads = op.reshape(q, (q.shape[0], self.heads, self.sizes.head))
        plain, turned = op.split(self.scaled(heads, cache), [self.sizes.plain], axis=2)
        return op.concat([of_each_head(self.k_b_proj, plain, cache), _rotate(turned, cache)], axis=2)

    def scaled(self, q: Tensor, cache: PagedKVCache) -> Tensor:
        """Scale queries [T, heads, plain + rotated] before their rotation; subclasses may scale by position."""
        return q

    def _rotated(self, key: Tensor, cache: PagedKVCache) -> Tensor:
        tokens, size = key.shape
        return op.reshape(_rotate(op.reshape(key, (tokens, 1, size)), cache), (tokens, size))


def of_each_head(weight: Experts, x: Tensor, cache: PagedKVCache) -> Tensor:
    """``x[:, h] @ weight[h].T`` for each head h: x [T, heads, K]; returns [T, heads, N]."""
    tokens, heads, size = x.shape
    head, row = op.tensor_expr_op(_rows_of_heads(heads), "rows_of_heads", [cache.token_pos])
    y = weight(op.reshape(x, (tokens * heads, size)), head, row)
    if tokens == 1:
        return op.reshape(y, (1, heads, y.shape[1]))
    return op.permute_dims(op.reshape(y, (heads, tokens, y.shape[1])), [1, 0, 2])


def _rows_of_heads(heads: int) -> Callable[[te.Tensor], tuple[te.Tensor, te.Tensor]]:
    """The rows of [tokens, heads] ordered by head: int32 [heads * tokens] each, the head and the original row index."""

    def rows_of_heads(token_pos: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        tokens = token_pos.shape[0]
        shape = (tokens * heads,)
        head = te.compute(shape, lambda r: te.cast(r // tokens, "int32"), name="head")
        row = te.compute(shape, lambda r: te.cast(r % tokens * heads + r // tokens, "int32"), name="row")
        return head, row

    return rows_of_heads


def _rotate(x: Tensor, cache: PagedKVCache) -> Tensor:
    if cache.config.inv_freq is None:
        return x
    cos, sin = cache.angles()
    return apply(ops.rotary_embedding, x, cos, sin, interleaved=cache.config.interleaved)
