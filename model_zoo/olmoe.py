"""OLMoE: Llama with experts, and QK norms over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler.nn.attention import SelfAttention
from mlc_compiler.nn.norms import WideRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class OlmoeConfig(RoutedConfig):
    """``intermediate_size`` is the size of an expert."""

    model_type: ClassVar[str] = "olmoe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {**ROUTED_KEYS, "moe_intermediate_size": ("intermediate_size",)}
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False


def wide_norms_attention(c: RoutedConfig, bias: bool = False) -> SelfAttention:
    """Attention with norms of queries and of keys over all heads."""
    return attention(
        c,
        qkv_bias=bias,
        out_bias=bias,
        q_norm=WideRMSNorm(c.num_attention_heads * c.head_dim, c.rms_norm_eps),
        k_norm=WideRMSNorm(c.num_key_value_heads * c.head_dim, c.rms_norm_eps),
    )


def model(c: OlmoeConfig) -> CausalLM:
    return routed_model(c, lambda: wide_norms_attention(c, c.attention_bias))


def weights(c: OlmoeConfig) -> WeightMap:
    return routed_rules(llama_names(c, gated=False), c)


TINY = OlmoeConfig(**tiny.SIZES, moe_intermediate_size=136, n_routed_experts=6, num_experts_per_tok=2)
ARCHITECTURE = Architecture("olmoe", OlmoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
