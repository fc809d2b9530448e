"""StableLM 3B, 2: Llama with layer norms and partial RoPE; optional parallel layers and norms of each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.norms import HeadLayerNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, ParallelLayer, PreNormLayer, attention, gated_mlp, layer_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class StableLmConfig(DecoderConfig):
    model_type: ClassVar[str] = "stablelm"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "partial_rotary_factor": ("rope_pct",),
        "layer_norm_eps": ("norm_eps",),
    }
    layer_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    use_qkv_bias: bool = False
    qk_layernorm: bool = False
    use_parallel_residual: bool = False
    partial_rotary_factor: float = 0.25  # type: ignore[misc]  # a field here, a class constant of the base


def model(c: StableLmConfig) -> CausalLM:
    norm = layer_norm(c.layer_norm_eps)
    kind = ParallelLayer if c.use_parallel_residual else PreNormLayer

    def head_norm(heads: int) -> nn.Module | None:
        return HeadLayerNorm(heads, c.head_dim, c.layer_norm_eps) if c.qk_layernorm else None

    def layer() -> nn.Module:
        norms = {"q_norm": head_norm(c.num_attention_heads), "k_norm": head_norm(c.num_key_value_heads)}
        attend = attention(c, qkv_bias=c.use_qkv_bias, **norms)
        return kind(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_act))

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: StableLmConfig) -> WeightMap:
    m = llama_names(c)
    if c.qk_layernorm:
        for layer in m.layers(f"{LAYER}.self_attn", c.num_hidden_layers):
            for x, heads in (("q", c.num_attention_heads), ("k", c.num_key_value_heads)):
                norms = [f"{layer}.{x}_layernorm.norms.{head}.weight" for head in range(heads)]
                m.stack(f"{layer}.{x}_norm.weight", norms)
    return m


TINY = StableLmConfig(**tiny.SIZES, partial_rotary_factor=0.4)
ARCHITECTURE = Architecture("stablelm", StableLmConfig, model, weights, tiny=TINY)
