"""Gemma 2: Gemma with sandwich norms, soft-capped scores and logits, and a sliding window in every other layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import LayerTypesConfig
from model_zoo.transformer import CausalLM, SandwichLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names, one_plus

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(LayerTypesConfig):
    """query_pre_attn_scalar: scores are divided by its square root. Published files repeat ``hidden_activation`` as
    ``hidden_act``.
    """

    model_type: ClassVar[str] = "gemma2"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"hidden_act": ("gelu_pytorch_tanh",)}
    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    hidden_activation: str = "gelu_pytorch_tanh"
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    attn_logit_softcapping: float | None = 50.0
    final_logit_softcapping: float | None = 30.0
    attention_bias: bool = False
    tie_word_embeddings: bool = True

    @property
    def pattern(self) -> int | None:
        return 2


def layers(c: Any, **norms: Any) -> list[SandwichLayer]:
    """The layers of Gemma 2 or 3. norms: name -> function that makes a norm, for norms of queries and keys."""
    norm = rms_norm(c.rms_norm_eps)

    def layer() -> SandwichLayer:
        attend = attention(
            c,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            scale=1 / math.sqrt(c.query_pre_attn_scalar),
            soft_cap=c.attn_logit_softcapping or 0.0,
            **{name: make() for name, make in norms.items()},
        )
        return SandwichLayer(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_activation))

    return [layer() for _ in range(c.num_hidden_layers)]


def model(c: Any, **norms: Any) -> CausalLM:
    """Build Gemma 2 or 3; norms: see ``layers``."""
    return CausalLM(
        c,
        layers(c, **norms),
        rms_norm(c.rms_norm_eps)(c.hidden_size),
        embedding_multiplier=math.sqrt(c.hidden_size),
        logit_soft_cap=c.final_logit_softcapping or 0.0,
    )


def weights(c: Gemma2Config) -> WeightMap:
    m = llama_names(c)
    one_plus(m, c, NORMS)
    return m


TINY = Gemma2Config(**tiny.SIZES, sliding_window=21)
ARCHITECTURE = Architecture("gemma2", Gemma2Config, model, weights, tiny=TINY)
