"""Granite 3, MiniCPM 1 and 2: Llama with multipliers of embeddings, scores, residuals and logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(DecoderConfig):
    """Multipliers of embeddings, attention scores and residuals; logits are divided by ``logits_scaling``.

    Class variable of a subclass: ``sinks``, see ``SelfAttention``.
    """

    model_type: ClassVar[str] = "granite"
    sinks: ClassVar[bool] = False

    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MiniCPMConfig(DecoderConfig):
    """scale_emb, scale_depth, dim_model_base: the same multipliers, relative to a small model's sizes (muP)."""

    model_type: ClassVar[str] = "minicpm"
    sinks: ClassVar[bool] = False
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"embedding_multiplier": ("scale_emb",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"rope_factor", "mup_denominator"})
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: ClassVar[bool] = False
    embedding_multiplier: float = 1.0
    scale_depth: float = 1.0
    dim_model_base: int = 0
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("dim_model_base", self.hidden_size)
        super().__post_init__()

    @property
    def attention_multiplier(self) -> float:
        return 1 / math.sqrt(self.head_dim)

    @property
    def residual_multiplier(self) -> float:
        return self.scale_depth / math.sqrt(self.num_hidden_layers)

    @property
    def logits_scaling(self) -> float:
        return self.hidden_size / self.dim_model_base


def model(c: Any) -> CausalLM:
    """Build the model. c: a GraniteConfig or MiniCPMConfig."""
    biases = {"qkv_bias": c.attention_bias, "out_bias": c.attention_bias}
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, **biases, scale=c.attention_multiplier, sinks=c.sinks),
        lambda: gated_mlp(c, c.hidden_act, c.mlp_bias),
        multiplier=c.residual_multiplier,
        embedding_multiplier=c.embedding_multiplier,
        logit_scale=1 / c.logits_scaling,
    )


MULTIPLIERS: dict[str, Any] = {"attention_multiplier": 0.1, "residual_multiplier": 0.5, "logits_scaling": 3.0}
TINY = GraniteConfig(**tiny.SIZES, embedding_multiplier=12.0, **MULTIPLIERS)
ARCHITECTURE = Architecture("granite", GraniteConfig, model, llama_names, tiny=TINY)
TINY_MINICPM = MiniCPMConfig(**tiny.SIZES, embedding_multiplier=12.0, scale_depth=1.4, dim_model_base=25)
MINICPM = Architecture("minicpm", MiniCPMConfig, model, llama_names, tiny=TINY_MINICPM)
