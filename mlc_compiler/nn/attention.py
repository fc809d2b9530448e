"""Self-attention over a paged KV cache, with the variants of decoder models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..relax import ops
from ..relax.nodes import constant
from . import op
from .kv_cache import PagedKVCache
from .layers import Linear
from .module import Module
from .tensor import Parameter, Tensor, apply


@dataclass(frozen=True)
class Growth:
    """Position-dependent query scale: ``1 + beta * log(1 + floor((p + offset) / length))`` at position p."""

    beta: float
    length: float
    offset: float = 0.0

    def __call__(self, token_pos: Tensor) -> Tensor:
        """The scale of each token: float32 [T] for token_pos int32 [T]."""
        steps = op.floor((token_pos.astype("float32") + self.offset) / self.length)
        return op.log(steps + 1.0) * self.beta + 1.0

    def applied(self, q: Tensor, token_pos: Tensor) -> Tensor:
        """Multiply queries [T, heads, K] of tokens at ``token_pos``, int32 [T], by their scales."""
        return q * op.reshape(self(token_pos), (q.shape[0], 1, 1)).astype(q.dtype)


class SelfAttention(Module):
    """Causal self-attention over a KV cache: x [B, S, D] -> [B, S, out_size]; the cache defines rotation and window.

    Queries, keys and values are one matmul, in this order. scale: factor of the scores, ``1 / sqrt(head_dim)`` when
    None. soft_cap: unless 0, scores become ``soft_cap * tanh(score / soft_cap)``. clip: maximum magnitude of the
    elements of queries, keys and values. q_norm, k_norm, v_norm: applied to [T, heads, head_dim] before the rotation.
    keys_as_values: values are the keys before their norm and rotation, and have no projection. slopes: for each
    head, the slope by which its scores decrease with distance (ALiBi, Press et al. 2022). sinks: each head learns a
    logit that takes part in the softmax, without a value. output_gate: the result of the heads is multiplied
    elementwise by ``sigmoid(gate_proj(x))``; head_gate: each head is multiplied by its element of
    ``sigmoid(head_gate_proj(x))``, which has no bias. growth: position-dependent query scale. value_dim: elements of a
    value, ``head_dim`` when None. out_size: size of the result, ``hidden_size`` when None.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        qkv_bias: bool = False,
        out_bias: bool = False,
        q_norm: Module | None = None,
        k_norm: Module | None = None,
        v_norm: Module | None = None,
        keys_as_values: bool = False,
        scale: float | None = None,
        soft_cap: float = 0.0,
        clip: float | None = None,
        slopes: Sequence[float] | None = None,
        sinks: bool = False,
        output_gate: bool = False,
        head_gate: bool = False,
        growth: Growth | None = None,
        value_dim: int | None = None,
        out_size: int | None = None,
    ):
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.value_dim = head_dim if value_dim is None else value_dim
        self.scale, self.soft_cap, self.clip, self.slopes = scale, soft_cap, clip, slopes
        self.growth = growth
        self.keys_as_values = keys_as_values
        size = (heads + kv_heads) * head_dim + (0 if keys_as_values else kv_heads * self.value_dim)
        self.qkv_proj = Linear(hidden_size, size, bias=qkv_bias)
        self.q_norm, self.k_norm, self.v_norm = q_norm, k_norm, v_norm
        self.sinks = Parameter((heads,)) if sinks else None
        self.gate_proj = Linear(hidden_size, heads * self.value_dim, bias=qkv_bias) if output_gate else None
        self.head_gate_proj = Linear(hidden_size, heads, bias=False) if head_gate else None
        self.o_proj = Linear(heads * self.value_dim, out_size or hidden_size, bias=out_bias)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int, added: Tensor | None = None) -> Tensor:
        """Compute attention of x [B, S, D]. added: [B, S, projected size], added to queries, keys and values."""
        batch, length, _ = x.shape
        qkv = self.qkv_proj(x) if added is None else self.qkv_proj(x) + added
        if self.clip is not None:
            qkv = op.clip(qkv, -self.clip, self.clip)
        out = self.attend(op.reshape(qkv, (batch * length, qkv.shape[-1])), cache, layer)
        if self.head_gate_proj:
            out = out * op.reshape(op.sigmoid(self.head_gate_proj(x)), (batch * length, self.heads, 1))
        out = op.reshape(out, (batch, length, self.heads * self.value_dim))
        return self.o_proj(out * op.sigmoid(self.gate_proj(x)) if self.gate_proj else out)

    def attend(self, qkv: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        """Attention of the projections qkv [T, queries + keys + values], one row per token -> [T, heads, value_dim]."""
        if self._is_plain():
            rows = op.reshape(qkv, (qkv.shape[0], self.heads + 2 * self.kv_heads, self.head_dim))
            return cache.attention_with_fused_qkv(layer, rows, self.heads, self.scale)
        q, k, *values = self.parts(qkv)
        v = values[0] if values else k
        q, k, v = (norm(x) if norm else x for norm, x in ((self.q_norm, q), (self.k_norm, k), (self.v_norm, v)))
        if self.growth:
            q = self.growth.applied(q, cache.token_pos)
        slopes = Tensor(constant(np.array(self.slopes, np.float32))) if self.slopes else None
        return cache.attention(layer, q, k, v, self.scale, soft_cap=self.soft_cap, sinks=self.sinks, slopes=slopes)

    def parts(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """Split qkv into queries, keys and, if projected, values, each [T, its number of heads, its elements]."""
        tokens, heads, kv_heads = qkv.shape[0], self.heads, self.kv_heads
        if self.value_dim == self.head_dim:
            rows = heads + (1 if self.keys_as_values else 2) * kv_heads
            by_head = op.reshape(qkv, (tokens, rows, self.head_dim))
            return op.split(by_head, list(range(heads, rows, kv_heads)), axis=1)
        ends = [heads * self.head_dim, (heads + kv_heads) * self.head_dim]
        q, k, v = op.split(qkv, ends, axis=1)
        keys = op.reshape(k, (tokens, kv_heads, self.head_dim))
        return op.reshape(q, (tokens, heads, self.head_dim)), keys, op.reshape(v, (tokens, kv_heads, self.value_dim))

    def _is_plain(self) -> bool:
        """Whether queries, keys and values are used as projected, with unmodified scores."""
        more = (self.q_norm, self.k_norm, self.v_norm, self.soft_cap, self.slopes, self.growth)
        return not any(more) and self.sinks is None and not self.keys_as_values and self.value_dim == self.head_dim


class SharedAttention(Module):
    """Causal attention of x [B, S, D] to keys and values that another layer appended to a cache.

    scale, q_norm: see ``SelfAttention``.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        head_dim: int,
        *,
        bias: bool = False,
        q_norm: Module | None = None,
        scale: float | None = None,
    ):
        self.heads, self.head_dim, self.scale = heads, head_dim, scale
        self.q_proj = Linear(hidden_size, heads * head_dim, bias=bias)
        self.q_norm = q_norm
        self.o_proj = Linear(heads * head_dim, hidden_size, bias=bias)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        batch, length, _ = x.shape
        q = op.reshape(self.q_proj(x), (batch * length, self.heads, self.head_dim))
        out = cache.attention_to_stored(layer, self.q_norm(q) if self.q_norm else q, self.scale)
        return self.o_proj(op.reshape(out, (batch, length, self.heads * self.head_dim)))


def alibi_slopes(heads: int) -> list[float]:
    """ALiBi slopes of ``heads`` heads (Press et al. 2022): the powers of ``2 ** (-8 / P)``, P a power of two.

    With P below the number of heads, the remaining ones take every second power of ``2 ** (-8 / (2 P))``.
    """
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    return slopes + [2.0 ** (-4 * (2 * i + 1) / whole) for i in range(heads - whole)]


def rotated(x: Tensor, token_pos: Tensor, inv_freq: np.ndarray) -> Tensor:
    """Rotate pairs (d, d + R/2) of x [T, heads, K] by position times inv_freq, float32 [R/2] (Su et al. 2021)."""
    frequencies = Tensor(constant(np.asarray(inv_freq, np.float32)[None, :]))
    angles = op.reshape(token_pos.astype("float32"), (token_pos.shape[0], 1)) * frequencies
    return apply(ops.rotary_embedding, x, op.cos(angles), op.sin(angles))
