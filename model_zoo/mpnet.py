"""MPNet: RoBERTa without token types, with learned relative position biases (Song et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo.architecture import encoder_architecture
from model_zoo.bert import SIZES, RobertaConfig, bert_model
from model_zoo.distance_biases import BiasedEncoder, DistanceBiases
from model_zoo.transformer import Encoder
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed

BUCKETS, FARTHEST = 32, 128


@dataclass(frozen=True, kw_only=True)
class MPNetConfig(RobertaConfig):
    model_type: ClassVar[str] = "mpnet"
    prefix: ClassVar[str] = "mpnet."
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"relative_attention_num_buckets": (BUCKETS,)}
    type_vocab_size: int | None = None


def model(c: MPNetConfig) -> Encoder:
    return bert_model(c, partial(BiasedEncoder, DistanceBiases(c.num_attention_heads, BUCKETS, FARTHEST)))


def weights(c: MPNetConfig) -> WeightMap:
    embeddings = f"{c.prefix}embeddings"
    outer = {
        "model.embed_tokens": f"{embeddings}.word_embeddings",
        "model.embed_positions": f"{embeddings}.position_embeddings",
        "model.embed_norm": f"{embeddings}.LayerNorm",
        "biases": f"{c.prefix}encoder.relative_attention_bias",
    }
    inner = {
        "self_attn.qkv_proj": [f"attention.attn.{letter}" for letter in "qkv"],
        "self_attn.o_proj": "attention.attn.o",
        "post_attention_layernorm": "attention.LayerNorm",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
        "post_feedforward_layernorm": "output.LayerNorm",
    }
    m = renamed(c, outer, f"{c.prefix}encoder.layer.{{}}", inner)
    m.optional_prefix(c.prefix)
    for unused in (f"{embeddings}.position_ids", f"{c.prefix}pooler.*", "lm_head.*"):
        m.unused(unused)
    return m


ARCHITECTURE = encoder_architecture(MPNetConfig, model, weights, MPNetConfig(**SIZES))
