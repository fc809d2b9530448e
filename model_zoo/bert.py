"""BERT, RoBERTa and XLM-RoBERTa: post-norm encoders with learned positions, token types, biases and GELU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.encoder import LearnedPositionsConfig
from model_zoo.transformer import Encoder, LearnedPositions, NormedSumLayer, attention, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed

NORMS = {"post_attention_layernorm": "attention.output.LayerNorm", "post_feedforward_layernorm": "output.LayerNorm"}


@dataclass(frozen=True, kw_only=True)
class BertConfig(LearnedPositionsConfig):
    model_type: ClassVar[str] = "bert"
    prefix: ClassVar[str] = "bert."
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"position_embedding_type": (None, "absolute")}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "directionality output_past pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type gradient_checkpointing".split()
    )
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    type_vocab_size: int | None = 2


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    """Positions start at ``pad_token_id + 1``."""

    model_type: ClassVar[str] = "roberta"
    prefix: ClassVar[str] = "roberta."
    pad_token_id: int = 1

    @property
    def position_offset(self) -> int:
        return self.pad_token_id + 1


@dataclass(frozen=True, kw_only=True)
class XLMRobertaConfig(RobertaConfig):
    model_type: ClassVar[str] = "xlm-roberta"


@dataclass(frozen=True, kw_only=True)
class BGEConfig(BertConfig):
    model_type: ClassVar[str] = "bert-bge"


def model(c: BertConfig) -> Encoder:
    return bert_model(c, Encoder)


def bert_model(c: BertConfig, kind: Callable[..., Encoder]) -> Encoder:
    """Build an encoder of class ``kind`` with BERT's layers."""
    norm = layer_norm(c.layer_norm_eps)

    def layer() -> NormedSumLayer:
        return NormedSumLayer(
            c.hidden_size, norm, attention(c, qkv_bias=True, out_bias=True), plain_mlp(c, c.hidden_act)
        )

    return kind(
        c,
        [layer() for _ in range(c.num_hidden_layers)],
        positions=LearnedPositions(c.max_position_embeddings - c.position_offset, c.hidden_size, c.position_offset),
        embedding_norm=norm(c.hidden_size),
    )


def weights(c: BertConfig) -> WeightMap:
    embeddings, layers = f"{c.prefix}embeddings", f"{c.prefix}encoder.layer.{{}}"
    outer = {
        "model.embed_tokens": f"{embeddings}.word_embeddings",
        "model.embed_positions": f"{embeddings}.position_embeddings",
        "token_types": f"{embeddings}.token_type_embeddings",
    }
    inner = {
        "self_attn.qkv_proj": [f"attention.self.{name}" for name in ("query", "key", "value")],
        "self_attn.o_proj": "attention.output.dense",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
    }
    m = renamed(c, outer, layers, inner)
    m.optional_prefix(c.prefix)
    _norm(m, "model.embed_norm", f"{embeddings}.LayerNorm")
    for target, source in zip(m.layers(LAYER, c.num_hidden_layers), m.layers(layers, c.num_hidden_layers), strict=True):
        for name, theirs in NORMS.items():
            _norm(m, f"{target}.{name}", f"{source}.{theirs}")
    for unused in (f"{embeddings}.position_ids", f"{c.prefix}pooler.*", "cls.*", "lm_head.*"):
        m.unused(unused)
    return m


def _norm(m: WeightMap, target: str, source: str) -> None:
    """Map a norm, whose weights are named gamma and beta in checkpoints converted from TensorFlow."""
    m.either(f"{target}.weight", f"{source}.weight", f"{source}.gamma")
    m.either(f"{target}.bias", f"{source}.bias", f"{source}.beta")


SIZES = {**tiny.SIZES, "num_key_value_heads": 4}
ARCHITECTURE = encoder_architecture(BertConfig, model, weights, BertConfig(**SIZES))
BGE = encoder_architecture(BGEConfig, model, weights, BGEConfig(**SIZES), pooling="cls")
ROBERTA = encoder_architecture(RobertaConfig, model, weights, RobertaConfig(**SIZES))
XLM_ROBERTA = encoder_architecture(XLMRobertaConfig, model, weights, XLMRobertaConfig(**SIZES))
