"""Qwen3-MoE: Qwen3 with a mixture of experts instead of the MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import check_chosen_experts
from model_zoo.layer_types import FULL, SLIDING
from model_zoo.qwen3 import Qwen3Config
from model_zoo.sparse_mlp import SparseMLP, sparse_mlp_rules
from model_zoo.transformer import CausalLM, activation_of, attention, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(Qwen3Config):
    model_type: ClassVar[str] = "qwen3_moe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"num_experts": ("num_local_experts",)}

    moe_intermediate_size: int = 768
    num_experts_per_tok: int = 8
    num_experts: int = 128
    norm_topk_prob: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_experts", self.num_experts)

    def default_layer_types(self) -> tuple[str, ...]:
        return (SLIDING if self.sliding_window else FULL,) * self.num_hidden_layers


def model(c: Qwen3MoeConfig, kind: type[CausalLM] = CausalLM) -> CausalLM:
    def attend() -> nn.Module:
        return attention(
            c,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            q_norm=nn.RMSNorm(c.head_dim, c.rms_norm_eps),
            k_norm=nn.RMSNorm(c.head_dim, c.rms_norm_eps),
        )

    def mlp() -> nn.Module:
        routing = nn.Routing(c.num_experts_per_tok, renormalize=c.norm_topk_prob)
        return SparseMLP(
            c.hidden_size, c.moe_intermediate_size, c.num_experts, routing, activation=activation_of(c.hidden_act)
        )

    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, mlp, kind=kind)


def weights(c: Qwen3MoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        sparse_mlp_rules(m, f"{layer}.mlp", c.num_experts)
    return m


TINY = Qwen3MoeConfig(**tiny.SIZES, moe_intermediate_size=36, num_experts=7, num_experts_per_tok=3)
ARCHITECTURE = Architecture(
    "qwen3_moe", Qwen3MoeConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.gate",))
)
