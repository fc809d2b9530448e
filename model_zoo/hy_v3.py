"""HY 3 (Hunyuan): Llama with DeepSeek-V3's experts and QK norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.routed import ROUTED_KEYS, ROUTERS_KEPT, RoutedConfig, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class HYV3Config(RoutedConfig):
    model_type: ClassVar[str] = "hy_v3"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ROUTED_KEYS,
        "routed_scaling_factor": ("router_scaling_factor",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"enable_moe_fp32_combine"})
    score: ClassVar[str] = "sigmoid"
    corrected: ClassVar[bool] = True

    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    norm_topk_prob: bool = True
    first_k_dense_replace: int | None = 1
    n_shared_experts: int | None = 1


def model(c: HYV3Config) -> CausalLM:
    def attend() -> nn.Module:
        norms = {name: nn.RMSNorm(c.head_dim, c.rms_norm_eps) for name in ("q_norm", "k_norm")}
        return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, **norms)

    return routed_model(c, attend)


def weights(c: HYV3Config) -> WeightMap:
    m = llama_names(c, gated=False)
    return routed_rules(m, c, router="router.gate", correction="expert_bias", shared="shared_mlp")


TINY = HYV3Config(**tiny.SIZES, moe_intermediate_size=36, n_routed_experts=7, num_experts_per_tok=3)
ARCHITECTURE = Architecture("hy_v3", HYV3Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
