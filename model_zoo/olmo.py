"""OLMo: Llama with norms without weights and clipped queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler.nn.norms import UnweightedLayerNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class OlmoConfig(DecoderConfig):
    model_type: ClassVar[str] = "olmo"
    hidden_act: str = "silu"
    attention_bias: bool = False
    clip_qkv: float | None = None


def model(c: OlmoConfig) -> CausalLM:
    return pre_norm_model(
        c,
        UnweightedLayerNorm,
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, clip=c.clip_qkv),
        lambda: gated_mlp(c, c.hidden_act),
    )


TINY = OlmoConfig(**tiny.SIZES, clip_qkv=0.9)
ARCHITECTURE = Architecture("olmo", OlmoConfig, model, llama_names, tiny=TINY)
