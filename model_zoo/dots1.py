"""dots.llm1: DeepSeek-V3's experts with Qwen3's attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import EXPERTS, SHARED
from model_zoo.deepseek_v3 import SigmoidConfig
from model_zoo.qwen3 import Qwen3Config
from model_zoo.routed import ROUTERS_KEPT, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Dots1Config(Qwen3Config, SigmoidConfig):
    model_type: ClassVar[str] = "dots1"
    head_dim: int = 0
    max_window_layers: int = 62
    norm_topk_prob: bool = False


def model(c: Dots1Config) -> CausalLM:
    def norm() -> nn.Module:
        return nn.RMSNorm(c.head_dim, c.rms_norm_eps)

    bias = c.attention_bias
    return routed_model(c, lambda: attention(c, qkv_bias=bias, out_bias=bias, q_norm=norm(), k_norm=norm()))


def weights(c: Dots1Config) -> WeightMap:
    return routed_rules(llama_names(c, gated=False), c)


TINY = Dots1Config(**tiny.SIZES, **EXPERTS, **SHARED)
ARCHITECTURE = Architecture("dots1", Dots1Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
