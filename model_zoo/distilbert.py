"""DistilBERT: BERT without token types, with other names in checkpoints (Sanh et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo.architecture import encoder_architecture
from model_zoo.bert import SIZES, BertConfig, model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(BertConfig):
    model_type: ClassVar[str] = "distilbert"
    prefix: ClassVar[str] = "distilbert."
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("dim",),
        "num_hidden_layers": ("n_layers",),
        "num_attention_heads": ("n_heads",),
        "intermediate_size": ("hidden_dim",),
        "hidden_act": ("activation",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"sinusoidal_pos_embds": (True, False)}
    ignored: ClassVar[frozenset[str]] = frozenset({"qa_dropout", "seq_classif_dropout"})
    type_vocab_size: int | None = None


def weights(c: DistilBertConfig) -> WeightMap:
    """Sinusoidal positions are stored in checkpoints like learned positions."""
    prefix = c.prefix
    outer = {
        "model.embed_tokens": f"{prefix}embeddings.word_embeddings",
        "model.embed_positions": f"{prefix}embeddings.position_embeddings",
        "model.embed_norm": f"{prefix}embeddings.LayerNorm",
    }
    inner = {
        "self_attn.qkv_proj": [f"attention.{letter}_lin" for letter in "qkv"],
        "self_attn.o_proj": "attention.out_lin",
        "post_attention_layernorm": "sa_layer_norm",
        "mlp.up_proj": "ffn.lin1",
        "mlp.down_proj": "ffn.lin2",
        "post_feedforward_layernorm": "output_layer_norm",
    }
    m = renamed(c, outer, f"{prefix}transformer.layer.{{}}", inner)
    m.optional_prefix(prefix)
    for unused in (f"{prefix}embeddings.position_ids", "vocab_*", "pre_classifier.*", "classifier.*"):
        m.unused(unused)
    return m


ARCHITECTURE = encoder_architecture(DistilBertConfig, model, weights, DistilBertConfig(**SIZES))
