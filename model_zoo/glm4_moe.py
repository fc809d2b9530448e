"""GLM-4.5 to 4.7, Solar Open: DeepSeek-V3's experts with Llama's attention, or latent attention (GLM-4.7 Flash)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import mtp, tiny
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import EXPERTS, SHARED, SIZES
from model_zoo.deepseek_v3 import ARCHITECTURE as DEEPSEEK_V3
from model_zoo.deepseek_v3 import DeepseekV3Config, SigmoidConfig
from model_zoo.routed import ROUTERS_KEPT, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Glm4MoeConfig(SigmoidConfig):
    model_type: ClassVar[str] = "glm4_moe"
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    use_qk_norm: bool = False
    partial_rotary_factor: float = 0.5  # type: ignore[misc]  # a field here, a class constant of the base
    first_k_dense_replace: int | None = 1


@dataclass(frozen=True, kw_only=True)
class SolarOpenConfig(Glm4MoeConfig):
    model_type: ClassVar[str] = "solar_open"
    intermediate_size: int = 10240  # of dense layers, which published models do not have
    head_dim: int = 128
    rope_theta: float = 1e6
    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # as in GLM
    first_k_dense_replace: int | None = None


@dataclass(frozen=True, kw_only=True)
class Glm4MoeLiteConfig(DeepseekV3Config):
    model_type: ClassVar[str] = "glm4_moe_lite"
    rms_norm_eps: float = 1e-5
    routed_scaling_factor: float = 1.8
    first_k_dense_replace: int | None = 1


def model(c: Glm4MoeConfig) -> CausalLM:
    def norm() -> nn.Module | None:
        return nn.RMSNorm(c.head_dim, c.rms_norm_eps) if c.use_qk_norm else None

    return routed_model(c, lambda: attention(c, qkv_bias=c.attention_bias, q_norm=norm(), k_norm=norm()))


def weights(c: Glm4MoeConfig) -> WeightMap:
    return routed_rules(llama_names(c, gated=False), c)


PLAIN: dict[str, Any] = {**tiny.SIZES, **EXPERTS, **SHARED}
TINY = Glm4MoeConfig(**PLAIN, attention_bias=True)
ARCHITECTURE = Architecture("glm4_moe", Glm4MoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
SOLAR = replace(ARCHITECTURE, name="solar_open", config=SolarOpenConfig, tiny=SolarOpenConfig(**PLAIN))
TINY_LITE = Glm4MoeLiteConfig(**SIZES, q_lora_rank=44)
LITE = replace(DEEPSEEK_V3, name="glm4_moe_lite", config=Glm4MoeLiteConfig, tiny=TINY_LITE)
MTP = mtp.head(ARCHITECTURE, mtp.DEEPSEEK)
LITE_MTP = mtp.head(LITE, mtp.DEEPSEEK)
