"""VaultGemma: Gemma 2 without the norms after attention and MLP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.gemma2 import Gemma2Config
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names, one_plus


@dataclass(frozen=True, kw_only=True)
class VaultGemmaConfig(Gemma2Config):
    model_type: ClassVar[str] = "vaultgemma"


def model(c: VaultGemmaConfig) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(
            c,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            scale=1 / math.sqrt(c.query_pre_attn_scalar),
            soft_cap=c.attn_logit_softcapping or 0.0,
        ),
        lambda: gated_mlp(c, c.hidden_activation),
        embedding_multiplier=math.sqrt(c.hidden_size),
        logit_soft_cap=c.final_logit_softcapping or 0.0,
    )


def weights(c: VaultGemmaConfig) -> WeightMap:
    m = llama_names(c)
    one_plus(m, c, ("input_layernorm",))
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.offset(f"{layer}.post_attention_layernorm.weight", 1.0, f"{layer}.pre_feedforward_layernorm.weight")
    return m


TINY = VaultGemmaConfig(**tiny.SIZES, sliding_window=21)
ARCHITECTURE = Architecture("vaultgemma", VaultGemmaConfig, model, weights, tiny=TINY)
