"""DeepSeek-V2: latent attention, softmax routers with groups of experts, shared experts, dense first layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.latent import LatentConfig, latent_attention, latent_names
from model_zoo.routed import ROUTERS_KEPT, TRAINING, RoutedConfig, routed_model, routed_rules
from model_zoo.transformer import CausalLM
from model_zoo.weight_map import WeightMap

GREEDY, GROUPED = "greedy", "group_limited_greedy"


@dataclass(frozen=True, kw_only=True)
class DeepseekConfig(LatentConfig, RoutedConfig):
    """The keys that DeepSeek-V2 and later models share."""

    ignored: ClassVar[frozenset[str]] = TRAINING | {"qk_head_dim"}


@dataclass(frozen=True, kw_only=True)
class DeepseekV2Config(DeepseekConfig):
    """topk_method: ``greedy`` (without groups) or ``group_limited_greedy``."""

    model_type: ClassVar[str] = "deepseek_v2"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"scoring_func": ("softmax",)}

    topk_method: str = GREEDY

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topk_method not in (GREEDY, GROUPED):
            raise unsupported("topk_method", self.topk_method, f"{GREEDY} or {GROUPED}")
        if self.norm_topk_prob:
            raise unsupported("norm_topk_prob", True, "False")
        if self.topk_method == GREEDY:
            object.__setattr__(self, "n_group", 1)
            object.__setattr__(self, "topk_group", 1)


def model(c: DeepseekConfig) -> CausalLM:
    return routed_model(c, partial(latent_attention, c))


def weights(c: DeepseekConfig) -> WeightMap:
    return routed_rules(latent_names(c), c)


LATENT: dict[str, Any] = {"kv_lora_rank": 36, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 28}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 36, "n_routed_experts": 6, "num_experts_per_tok": 2}
SHARED: dict[str, Any] = {"n_shared_experts": 2, "first_k_dense_replace": 1}
SIZES: dict[str, Any] = {**tiny.SIZES, "num_key_value_heads": 4, **LATENT, **EXPERTS, **SHARED}
TINY = DeepseekV2Config(**SIZES, topk_method=GROUPED, n_group=3, topk_group=2)
ARCHITECTURE = Architecture("deepseek_v2", DeepseekV2Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
