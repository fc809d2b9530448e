"""FlexOlmo: OLMo 2 with OLMoE's experts instead of the MLP (Shi et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.olmoe import OlmoeConfig, weights, wide_norms_attention
from model_zoo.routed import ROUTERS_KEPT, feed_forward
from model_zoo.transformer import CausalLM, PostNormLayer, rms_norm


@dataclass(frozen=True, kw_only=True)
class FlexOlmoConfig(OlmoeConfig):
    model_type: ClassVar[str] = "flex_olmo"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 500000.0


def model(c: FlexOlmoConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer(index: int) -> PostNormLayer:
        attend = wide_norms_attention(c, c.attention_bias)
        return PostNormLayer(c.hidden_size, norm, attend, feed_forward(c, index))

    return CausalLM(c, [layer(i) for i in range(c.num_hidden_layers)], norm(c.hidden_size))


TINY = FlexOlmoConfig(**tiny.SIZES, moe_intermediate_size=136, n_routed_experts=6, num_experts_per_tok=2)
ARCHITECTURE = Architecture("flex_olmo", FlexOlmoConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
