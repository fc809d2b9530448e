"""Hunyuan-A13B: Hunyuan dense V1 with softmax routers and a shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.hunyuan import HunYuanAttention, HunYuanConfig, norm_rules
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, routed_model
from model_zoo.sparse_mlp import sparse_mlp_rules
from model_zoo.transformer import CausalLM
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names

OF_LAYERS = ("moe_intermediate_size", "moe_topk", "num_experts", "num_shared_expert")
"""Keys whose value is one number for all layers, or a list with a number for each layer."""


@dataclass(frozen=True, kw_only=True)
class HunYuanMoeConfig(HunYuanConfig, RoutedConfig):
    model_type: ClassVar[str] = "hunyuan_v1_moe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **HunYuanConfig.names,
        **ROUTED_KEYS,
        "moe_intermediate_size": ("intermediate_size",),
        "num_experts_per_tok": ("moe_topk",),
        "n_shared_experts": ("num_shared_expert",),
    }
    ignored: ClassVar[frozenset[str]] = HunYuanConfig.ignored | frozenset(
        "moe_drop_tokens moe_random_routing_dropped_token use_mixed_mlp_moe".split()
    )
    n_shared_experts: int | None = 1
    norm_topk_prob: bool = True

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf({key: _of_all_layers(key, value) for key, value in raw.items()})


def _of_all_layers(key: str, value: Any) -> Any:
    if key not in OF_LAYERS or not isinstance(value, list) or not value:
        return value
    if any(other != value[0] for other in value):
        raise unsupported(key, value, "the same in all layers")
    return value[0]


def model(c: HunYuanMoeConfig) -> CausalLM:
    return routed_model(c, partial(HunYuanAttention, c))


def weights(c: HunYuanMoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    norm_rules(m, c)
    for mlp in m.layers(f"{LAYER}.mlp", c.num_hidden_layers):
        sparse_mlp_rules(m, mlp, c.n_routed_experts)
        m.rename(f"{mlp}.gate.weight", f"{mlp}.gate.wg.weight")
        if c.n_shared_experts:
            shared = f"{mlp}.shared_mlp"
            m.concat(f"{mlp}.shared_experts.gate_up_proj", [f"{shared}.gate_proj", f"{shared}.up_proj"])
            m.rename(f"{mlp}.shared_experts.down_proj", f"{shared}.down_proj")
    return m


TINY = HunYuanMoeConfig(**tiny.SIZES, moe_intermediate_size=136, n_routed_experts=6, num_experts_per_tok=2)
ARCHITECTURE = Architecture("hunyuan_v1_moe", HunYuanMoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
