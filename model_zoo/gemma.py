"""Gemma: Llama with norms stored as ``w - 1``, scaled embeddings and GeGLU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names, one_plus


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(DecoderConfig):
    """hidden_act: gelu means its tanh approximation, as in older files; ``hidden_activation`` takes precedence."""

    model_type: ClassVar[str] = "gemma"
    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    hidden_act: str = "gelu_pytorch_tanh"
    hidden_activation: str | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = True

    @property
    def activation(self) -> str:
        name = self.hidden_activation or self.hidden_act
        return "gelu_pytorch_tanh" if name == "gelu" else name


def model(c: GemmaConfig) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: gated_mlp(c, c.activation),
        embedding_multiplier=math.sqrt(c.hidden_size),
    )


def weights(c: GemmaConfig) -> WeightMap:
    m = llama_names(c)
    one_plus(m, c, ("input_layernorm", "post_attention_layernorm"))
    return m


TINY = GemmaConfig(**tiny.SIZES)
ARCHITECTURE = Architecture("gemma", GemmaConfig, model, weights, tiny=TINY)
