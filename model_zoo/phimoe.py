"""Phi-3.5-MoE: layer norms, LongRoPE, two experts per token chosen by SparseMixer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.phi3 import Phi3Config
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, routed_model
from model_zoo.sparse_mlp import block_sparse_rules
from model_zoo.transformer import CausalLM, attention, layer_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class PhimoeConfig(Phi3Config, RoutedConfig):
    """``intermediate_size`` is the size of an expert. router_jitter_noise: half of the routers' margin."""

    model_type: ClassVar[str] = "phimoe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {**ROUTED_KEYS, "moe_intermediate_size": ("intermediate_size",)}
    ignored: ClassVar[frozenset[str]] = RoutedConfig.ignored | {"input_jitter_noise"}
    rope_theta: float = 1e6
    attention_bias: bool = False
    lm_head_bias: bool = False
    router_jitter_noise: float = 0.01

    @property
    def routing(self) -> nn.Routing:
        return nn.Routing(self.num_experts_per_tok, "sparsemixer", margin=2 * self.router_jitter_noise)


def model(c: PhimoeConfig) -> CausalLM:
    attend = partial(attention, c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
    return routed_model(c, attend, layer_norm(c.rms_norm_eps), head_bias=c.lm_head_bias)


def weights(c: PhimoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        block_sparse_rules(m, layer, c.n_routed_experts, gate="router")
    return m


TINY = PhimoeConfig(**tiny.SIZES, moe_intermediate_size=136, n_routed_experts=6, num_experts_per_tok=2)
ARCHITECTURE = Architecture("phimoe", PhimoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
