"""DeepSeekMoE, the first DeepSeek model with experts: Llama's attention, softmax routers, shared experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import EXPERTS, SHARED
from model_zoo.routed import ROUTERS_KEPT, RoutedConfig, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class DeepseekConfig(RoutedConfig):
    model_type: ClassVar[str] = "deepseek"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"scoring_func": ("softmax",)}
    attention_bias: bool = False


def model(c: DeepseekConfig) -> CausalLM:
    return routed_model(c, partial(attention, c, qkv_bias=c.attention_bias, out_bias=c.attention_bias))


def weights(c: DeepseekConfig) -> WeightMap:
    return routed_rules(llama_names(c, gated=False), c)


TINY = DeepseekConfig(**tiny.SIZES, **EXPERTS, **SHARED)
ARCHITECTURE = Architecture("deepseek", DeepseekConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
