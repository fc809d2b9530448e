"""Doge: Qwen3 with a score bias for each key, computed from its value, and learned factors of residuals.

Shi et al. 2025, "Trainable Dynamic Mask Sparse Attention". H heads of keys, K elements of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from mlc_compiler.nn.attention import SelfAttention
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig
from model_zoo.config_check import unsupported
from model_zoo.transformer import CausalLM, PreNormLayer, gated_mlp, rms_norm
from model_zoo.weight_rules import llama_names

EXTRA = 8  # elements appended to keys, of which one holds the bias


@dataclass(frozen=True, kw_only=True)
class DogeConfig(DecoderConfig):
    """keep_window_size: in a longer text, tokens would see only this many keys, those with the greatest biases."""

    model_type: ClassVar[str] = "doge"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"is_moe": (None, False)}
    ignored: ClassVar[frozenset[str]] = frozenset({"norm_topk_prob", "num_experts", "num_experts_per_tok"})  # of is_moe

    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    keep_window_size: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context_window_size > self.keep_window_size:
            expected = f"at most keep_window_size, {self.keep_window_size}"
            raise unsupported("context_window_size", self.context_window_size, expected)

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        kind = AttentionKind(rope=self.rope, head_dim=self.head_dim + EXTRA, value_dim=self.head_dim)
        return (kind,) * self.num_hidden_layers


class DogeAttention(SelfAttention):
    """Attention in which ``exp(A * softplus(dt_proj(values)))``, one number for each key, is added to its scores.

    The number is stored as an extra element of the key, after the rotated elements; queries have a constant there.
    """

    def __init__(self, c: DogeConfig):
        heads, kv_heads, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        norm, bias = rms_norm(c.rms_norm_eps), c.attention_bias
        super().__init__(
            c.hidden_size,
            heads,
            kv_heads,
            size,
            qkv_bias=bias,
            out_bias=bias,
            q_norm=norm(size),
            k_norm=norm(size),
            scale=size**-0.5,
        )
        self.A = Parameter((kv_heads,))
        self.dt_proj = nn.Linear(kv_heads * size, kv_heads, bias=bias)

    def attend(self, qkv: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        q, k, v = self.parts(qkv)
        assert self.q_norm and self.k_norm and self.scale
        tokens, rest = qkv.shape[0], EXTRA - 1
        rates = op.softplus(self.dt_proj(op.reshape(v, (tokens, self.kv_heads * self.head_dim))))
        biases = op.reshape(op.exp(rates * self.A.astype(qkv.dtype)), (tokens, self.kv_heads, 1))

        def longer(x: Tensor, last: Tensor) -> Tensor:
            return op.concat([x, last, op.zeros((tokens, x.shape[1], rest), x.dtype)], dim=2)

        ones = op.ones((tokens, self.heads, 1), qkv.dtype) * (1 / self.scale)
        return cache.attention(layer, longer(self.q_norm(q), ones), longer(self.k_norm(k), biases), v, self.scale)


class DogeLayer(PreNormLayer):
    """Layer whose residuals are multiplied by ``input_residual`` and ``post_attention_residual``, [D] each."""

    def __init__(self, c: DogeConfig):
        mlp = gated_mlp(c, c.hidden_act, c.mlp_bias)
        super().__init__(c.hidden_size, rms_norm(c.rms_norm_eps), DogeAttention(c), mlp)
        self.input_residual = Parameter((c.hidden_size,))
        self.post_attention_residual = Parameter((c.hidden_size,))

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        kept = x * self.input_residual.astype(x.dtype)
        x = kept + self.self_attn(self.input_layernorm(x), cache, layer)
        return x * self.post_attention_residual.astype(x.dtype) + self.mlp(self.post_attention_layernorm(x))


def model(c: DogeConfig) -> CausalLM:
    layers = [DogeLayer(c) for _ in range(c.num_hidden_layers)]
    return CausalLM(c, layers, rms_norm(c.rms_norm_eps)(c.hidden_size))


ARCHITECTURE = Architecture("doge", DogeConfig, model, llama_names, tiny=DogeConfig(**tiny.SIZES))
