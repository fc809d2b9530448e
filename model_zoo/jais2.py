"""Jais 2: Llama with layer norms, biases everywhere, and an ungated MLP with squared ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Jais2Config(DecoderConfig):
    model_type: ClassVar[str] = "jais2"
    layer_norm_eps: float = 1e-5
    hidden_act: str = "relu2"
    attention_bias: bool = True
    mlp_bias: bool = True


def model(c: Jais2Config) -> CausalLM:
    return pre_norm_model(
        c,
        layer_norm(c.layer_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: plain_mlp(c, c.hidden_act, c.mlp_bias),
    )


def weights(c: Jais2Config) -> WeightMap:
    return llama_names(c, gated=False)


ARCHITECTURE = Architecture("jais2", Jais2Config, model, weights, tiny=Jais2Config(**tiny.SIZES))
