"""MiniCPM 3: latent attention without experts, LongRoPE, multipliers of embeddings, residuals and logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.deepseek_v2 import LATENT
from model_zoo.granite import MiniCPMConfig
from model_zoo.latent import LatentConfig, latent_attention, latent_names
from model_zoo.transformer import CausalLM, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER


@dataclass(frozen=True, kw_only=True)
class MiniCPM3Config(LatentConfig, MiniCPMConfig):
    model_type: ClassVar[str] = "minicpm3"
    interleaved_rotary: ClassVar[bool] = False
    ignored: ClassVar[frozenset[str]] = MiniCPMConfig.ignored | {"qk_head_dim"}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"mlp_bias": (None, False)}
    v_head_dim: int = 0
    rms_norm_eps: float = 1e-5
    embedding_multiplier: float = 12.0
    scale_depth: float = 1.4
    dim_model_base: int = 256

    def __post_init__(self) -> None:
        self._fill("v_head_dim", self.hidden_size // self.num_attention_heads if self.num_attention_heads else 0)
        super().__post_init__()


def model(c: MiniCPM3Config) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        partial(latent_attention, c),
        partial(gated_mlp, c, c.hidden_act),
        multiplier=c.residual_multiplier,
        embedding_multiplier=c.embedding_multiplier,
        logit_scale=1 / c.logits_scaling,
    )


def weights(c: LatentConfig) -> WeightMap:
    """The weight map of a model with latent attention and dense MLPs."""
    m = latent_names(c)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.{name}" for name in GATE_UP])
    return m


SIZES: dict[str, Any] = {**tiny.SIZES, "num_key_value_heads": 4, **LATENT, "q_lora_rank": 44}
ARCHITECTURE = Architecture("minicpm3", MiniCPM3Config, model, weights, tiny=MiniCPM3Config(**SIZES, dim_model_base=25))
