"""DeepSeek-V3, R1, Kimi K2: DeepSeek-V2 with sigmoid routers, whose scores get a bias for the choice of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from model_zoo import mtp
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import SIZES, DeepseekConfig, model, weights
from model_zoo.routed import ROUTERS_KEPT, RoutedConfig

ROUTER: Mapping[str, tuple[Any, ...]] = {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)}


@dataclass(frozen=True, kw_only=True)
class SigmoidConfig(RoutedConfig):
    """Base of configurations with routers of DeepSeek-V3 (DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2)."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = ROUTER
    score: ClassVar[str] = "sigmoid"
    group_best: ClassVar[int] = 2
    corrected: ClassVar[bool] = True

    norm_topk_prob: bool = True


@dataclass(frozen=True, kw_only=True)
class DeepseekV3Config(SigmoidConfig, DeepseekConfig):
    model_type: ClassVar[str] = "deepseek_v3"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {**ROUTER, "rope_interleave": (None, True)}

    routed_scaling_factor: float = 2.5


@dataclass(frozen=True, kw_only=True)
class KimiK2Config(DeepseekV3Config):
    model_type: ClassVar[str] = "kimi_k2"


YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
TINY = DeepseekV3Config(**SIZES, n_group=3, topk_group=2, q_lora_rank=44, rope_scaling=YARN)
ARCHITECTURE = Architecture("deepseek_v3", DeepseekV3Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
TINY_KIMI = KimiK2Config(**SIZES, q_lora_rank=44)
KIMI = replace(ARCHITECTURE, name="kimi_k2", config=KimiK2Config, tiny=TINY_KIMI)
MTP = mtp.head(ARCHITECTURE, mtp.DEEPSEEK)
