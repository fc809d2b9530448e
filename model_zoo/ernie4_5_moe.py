"""ERNIE 4.5 with experts: softmax routers whose scores get a bias for the choice of experts, shared experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from model_zoo import mtp, tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.deepseek_v2 import EXPERTS, SHARED
from model_zoo.routed import ROUTERS_KEPT, RoutedConfig, routed_model, routed_rules
from model_zoo.seed_oss import Ernie4_5Config
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Ernie4_5MoeConfig(Ernie4_5Config, RoutedConfig):
    """Every ``moe_layer_freq``-th layer from ``first_k_dense_replace`` to ``moe_layer_end_index`` has experts."""

    model_type: ClassVar[str] = "ernie4_5_moe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Ernie4_5Config.names,
        "n_routed_experts": ("moe_num_experts",),
        "n_shared_experts": ("moe_num_shared_experts",),
        "num_experts_per_tok": ("moe_k",),
        "first_k_dense_replace": ("moe_layer_start_index",),
        "moe_layer_freq": ("moe_layer_interval",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset("moe_capacity moe_gate moe_norm_min moe_use_aux_free".split())
    corrected: ClassVar[bool] = True
    head_dim: int = 0
    first_k_dense_replace: int | None = 1
    moe_layer_end_index: float | None = None  # -1: the last layer
    norm_topk_prob: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_bias and self.tie_word_embeddings:
            raise unsupported("use_bias", True, "False in a model with tied embeddings")

    def is_sparse(self, layer: int) -> bool:
        last = self.moe_layer_end_index
        is_within = last is None or last < 0 or layer <= last
        return is_within and layer >= (self.first_k_dense_replace or 0) and (layer + 1) % self.moe_layer_freq == 0


def model(c: Ernie4_5MoeConfig) -> CausalLM:
    attend = partial(attention, c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
    return routed_model(c, attend, head_bias=c.attention_bias)


def weights(c: Ernie4_5MoeConfig) -> WeightMap:
    m = routed_rules(llama_names(c, gated=False), c)
    m.unused("model.mtp_*")
    return m


TINY = Ernie4_5MoeConfig(**tiny.SIZES, **EXPERTS, **SHARED)
ARCHITECTURE = Architecture("ernie4_5_moe", Ernie4_5MoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
MTP = mtp.head(ARCHITECTURE, mtp.ERNIE)
