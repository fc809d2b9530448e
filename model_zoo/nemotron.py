"""Nemotron 3 8B, 4, Minitron: layer norms stored as ``w - 1``, partial RoPE, squared ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names, one_plus


@dataclass(frozen=True, kw_only=True)
class NemotronConfig(DecoderConfig):
    model_type: ClassVar[str] = "nemotron"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"partial_rotary_factor": ("rope_percent",)}
    norm_eps: float = 1e-5
    hidden_act: str = "relu2"
    attention_bias: bool = False
    mlp_bias: bool = False
    partial_rotary_factor: float = 0.5  # type: ignore[misc]  # a field here, a class constant of the base


def model(c: NemotronConfig) -> CausalLM:
    return pre_norm_model(
        c,
        layer_norm(c.norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: plain_mlp(c, c.hidden_act, c.mlp_bias),
    )


def weights(c: NemotronConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    one_plus(m, c, ("input_layernorm", "post_attention_layernorm"))
    return m


ARCHITECTURE = Architecture("nemotron", NemotronConfig, model, weights, tiny=NemotronConfig(**tiny.SIZES))
