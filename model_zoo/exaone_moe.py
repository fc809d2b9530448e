"""K-EXAONE: DeepSeek-V3's experts with EXAONE 4's attention in pre-norm layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import EXPERTS, SHARED
from model_zoo.deepseek_v3 import SigmoidConfig
from model_zoo.exaone4 import Exaone4Config
from model_zoo.routed import ROUTERS_KEPT, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class ExaoneMoeConfig(Exaone4Config, SigmoidConfig):
    model_type: ClassVar[str] = "exaone_moe"
    first_k_dense_replace: int | None = 1
    n_shared_experts: int | None = 1
    routed_scaling_factor: float = 2.5


def model(c: ExaoneMoeConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    return routed_model(c, lambda: attention(c, q_norm=norm(c.head_dim), k_norm=norm(c.head_dim)))


def weights(c: ExaoneMoeConfig) -> WeightMap:
    m = routed_rules(llama_names(c, gated=False), c)
    m.unused("mtp.*")
    return m


TINY = ExaoneMoeConfig(**tiny.SIZES, **EXPERTS, **SHARED, sliding_window=21, sliding_window_pattern=2)
ARCHITECTURE = Architecture("exaone_moe", ExaoneMoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
