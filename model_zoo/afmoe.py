"""AFMoE (Arcee Trinity): gated attention, sliding windows, no RoPE in full layers, sandwich norms, experts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import SLIDING, LayerTypesConfig
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, feed_forward, routed_rules
from model_zoo.transformer import CausalLM, SandwichLayer, attention, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class AfmoeConfig(LayerTypesConfig, RoutedConfig):
    """global_attn_every_n_layers: period of full-attention layers. mup_enabled: whether embeddings are scaled."""

    model_type: ClassVar[str] = "afmoe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ROUTED_KEYS,
        "first_k_dense_replace": ("num_dense_layers",),
        "routed_scaling_factor": ("route_scale",),
        "norm_topk_prob": ("route_norm",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"load_balance_coeff", "use_grouped_mm"})
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "score_func": ("sigmoid",),
        "num_expert_groups": (1,),
        "num_limited_groups": (1,),
    }
    score: ClassVar[str] = "sigmoid"
    corrected: ClassVar[bool] = True

    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    sliding_window: int | None = 1024  # type: ignore[misc]  # a class constant of DecoderConfig
    global_attn_every_n_layers: int = 4
    mup_enabled: bool = False
    norm_topk_prob: bool = True
    first_k_dense_replace: int | None = 1
    n_shared_experts: int | None = 2

    @property
    def pattern(self) -> int | None:
        return self.global_attn_every_n_layers

    def has_rope(self, layer: int) -> bool:
        assert self.layer_types is not None
        return self.layer_types[layer] == SLIDING


def model(c: AfmoeConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer(i: int) -> nn.Module:
        norms = {"q_norm": norm(c.head_dim), "k_norm": norm(c.head_dim)}
        biases = {"qkv_bias": c.attention_bias, "out_bias": c.attention_bias}
        attend = attention(c, **biases, **norms, output_gate=True)
        return SandwichLayer(c.hidden_size, norm, attend, feed_forward(c, i))

    layers = [layer(i) for i in range(c.num_hidden_layers)]
    scale = math.sqrt(c.hidden_size) if c.mup_enabled else 1.0
    return CausalLM(c, layers, norm(c.hidden_size), embedding_multiplier=scale)


def weights(c: AfmoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        for place in ("pre", "post"):
            m.rename(f"{layer}.{place}_feedforward_layernorm", f"{layer}.{place}_mlp_layernorm")
    return routed_rules(m, c, router="router.gate", correction="expert_bias")


TINY = AfmoeConfig(
    **tiny.SIZES,
    moe_intermediate_size=36,
    n_routed_experts=7,
    num_experts_per_tok=3,
    sliding_window=21,
    global_attn_every_n_layers=2,
)
ARCHITECTURE = Architecture("afmoe", AfmoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
