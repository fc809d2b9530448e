"""Granite 3 with experts, PowerMoE: Granite's multipliers, softmax routers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.granite import MULTIPLIERS
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, routed_model
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class GraniteMoeConfig(RoutedConfig):
    """``intermediate_size`` is the size of an expert."""

    model_type: ClassVar[str] = "granitemoe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {**ROUTED_KEYS, "moe_intermediate_size": ("intermediate_size",)}
    norm_topk_prob: bool = True
    attention_bias: bool = False
    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0


def model(c: GraniteMoeConfig) -> CausalLM:
    bias = c.attention_bias
    return routed_model(
        c,
        partial(attention, c, qkv_bias=bias, out_bias=bias, scale=c.attention_multiplier),
        multiplier=c.residual_multiplier,
        embedding_multiplier=c.embedding_multiplier,
        logit_scale=1 / c.logits_scaling,
    )


def weights(c: GraniteMoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        mlp, moe = f"{layer}.mlp", f"{layer}.block_sparse_moe"
        m.rename(f"{mlp}.gate.weight", f"{moe}.router.layer.weight")
        m.rename(f"{mlp}.moe_gate_up_proj.weight", f"{moe}.input_linear.weight")
        m.rename(f"{mlp}.moe_down_proj.weight", f"{moe}.output_linear.weight")
    return m


SIZES: dict[str, Any] = {**tiny.SIZES, "moe_intermediate_size": 136, "n_routed_experts": 6, "num_experts_per_tok": 2}
TINY = GraniteMoeConfig(**SIZES, embedding_multiplier=12.0, **MULTIPLIERS)
ARCHITECTURE = Architecture("granitemoe", GraniteMoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
