"""Bailing MoE (Ling, Ring): Llama with experts, softmax routers; version 2 has DeepSeek-V3's routers and QK norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import mtp, tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.deepseek_v2 import EXPERTS, SHARED
from model_zoo.deepseek_v3 import ROUTER, SigmoidConfig
from model_zoo.routed import ROUTERS_KEPT, TRAINING, RoutedConfig, routed_model, routed_rules
from model_zoo.transformer import CausalLM, attention
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, LayerNames, renamed

V2 = "bailing_moe_v2"
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "norm_head": (None, False),
    "router_dtype": (None, "fp32"),
    "use_bias": (None, False),
    "use_rmsnorm": (None, True),
}


@dataclass(frozen=True, kw_only=True)
class BailingMoeConfig(RoutedConfig):
    """moe_shared_expert_intermediate_size: must equal ``moe_intermediate_size`` if given."""

    model_type: ClassVar[str] = "bailing_moe"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {**NEUTRAL, "score_function": (None, "softmax")}
    ignored: ClassVar[frozenset[str]] = TRAINING | {"mtp_loss_scaling_factor", "output_dropout"}

    use_qkv_bias: bool = False
    use_qk_norm: bool = False
    norm_topk_prob: bool = True
    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # a field here, a class constant of the base
    moe_shared_expert_intermediate_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        size, given = self.moe_intermediate_size, self.moe_shared_expert_intermediate_size
        if given not in (None, size):
            raise unsupported("moe_shared_expert_intermediate_size", given, f"moe_intermediate_size, {size}")


@dataclass(frozen=True, kw_only=True)
class BailingMoeV2Config(BailingMoeConfig, SigmoidConfig):
    model_type: ClassVar[str] = V2
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **NEUTRAL,
        **ROUTER,
        "score_function": (None, "sigmoid"),
        "moe_router_enable_expert_bias": (True,),
    }


def version(config: Mapping[str, Any]) -> str | None:
    """``V2`` for a config.json of version 2, else None; published files of both have the same ``model_type``."""
    classes = config.get("architectures")
    is_second = isinstance(classes, list) and "BailingMoeV2ForCausalLM" in classes
    return V2 if is_second or config.get("score_function") == "sigmoid" else None


def model(c: BailingMoeConfig) -> CausalLM:
    def norm() -> nn.Module | None:
        return nn.RMSNorm(c.head_dim, c.rms_norm_eps) if c.use_qk_norm else None

    return routed_model(c, lambda: attention(c, qkv_bias=c.use_qkv_bias, q_norm=norm(), k_norm=norm()))


NAMES: LayerNames = {"self_attn.qkv_proj": "attention.query_key_value", "self_attn.o_proj": "attention.dense"}
NORMS: LayerNames = {"self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm"}


def weights(c: BailingMoeConfig) -> WeightMap:
    inner = {**NAMES, **NORMS} if c.use_qk_norm else NAMES
    m = renamed(c, {"model.embed_tokens": "model.word_embeddings"}, LAYER, inner)
    return routed_rules(m, c, correction="gate.expert_bias")


SIZES: dict[str, Any] = {**tiny.SIZES, **EXPERTS, **SHARED}
ARCHITECTURE = Architecture(
    "bailing_moe",
    BailingMoeConfig,
    model,
    weights,
    tiny=BailingMoeConfig(**SIZES),
    quantization=ROUTERS_KEPT,
    variant=version,
)
TINY_V2 = BailingMoeV2Config(**SIZES, n_group=3, topk_group=2, use_qk_norm=True, partial_rotary_factor=0.5)
SECOND = replace(ARCHITECTURE, name=V2, config=BailingMoeV2Config, tiny=TINY_V2, variant=lambda config: None)
SECOND_MTP = mtp.head(SECOND, mtp.BAILING)
