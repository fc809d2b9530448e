"""GTE and Jina Embeddings v3: BERT with RoPE instead of learned positions; GTE has gated MLPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import GatedMLP
from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.encoder import EncoderConfig
from model_zoo.transformer import Encoder, NormedSumLayer, activation_of, attention, layer_norm, plain_mlp
from model_zoo.weight_expr import CheckpointTensor, Concat, Ranges
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, QKV


@dataclass(frozen=True, kw_only=True)
class GteConfig(EncoderConfig):
    model_type: ClassVar[str] = "gte"
    rope_theta: float = 160000.0
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    type_vocab_size: int | None = 1

    def feed_forward(self) -> nn.Module:
        return GatedMLP(self.hidden_size, self.intermediate_size, activation_of(self.hidden_act), down_bias=True)


@dataclass(frozen=True, kw_only=True)
class JinaConfig(GteConfig):
    model_type: ClassVar[str] = "jina_embeddings_v3"
    rope_theta: float = 20000.0
    layer_norm_eps: float = 1e-5

    def feed_forward(self) -> nn.Module:
        return plain_mlp(self, self.hidden_act)


def model(c: GteConfig) -> Encoder:
    norm = layer_norm(c.layer_norm_eps)
    layers = [
        NormedSumLayer(c.hidden_size, norm, attention(c, qkv_bias=True, out_bias=True), c.feed_forward())
        for _ in range(c.num_hidden_layers)
    ]
    return Encoder(c, layers, embedding_norm=norm(c.hidden_size))


def common_weights(c: GteConfig) -> WeightMap:
    m = WeightMap()
    m.rename("model.embed_tokens", "embeddings.word_embeddings")
    if c.type_vocab_size:
        m.rename("token_types", "embeddings.token_type_embeddings")
    for unused in ("embeddings.position_ids", "pooler.*", "lm_head.*", "classifier.*"):
        m.unused(unused)
    return m


def gte_weights(c: GteConfig) -> WeightMap:
    """Accept the names of transformers and those of the published checkpoints."""
    m, half = common_weights(c), c.intermediate_size
    m.rename("model.embed_norm", "embeddings.LayerNorm")
    for layer, theirs, old in _layers(m, c, "encoder.layer.{}"):
        up_gate = CheckpointTensor(f"{old}.mlp.up_gate_proj")
        m.either(f"{layer}.self_attn.qkv_proj", _joined(theirs, QKV), f"{old}.attention.qkv_proj")
        m.either(f"{layer}.self_attn.o_proj", f"{theirs}.self_attn.o_proj", f"{old}.attention.o_proj")
        gate_first = Ranges((up_gate,), ((half, 2 * half), (0, half)))
        m.either(f"{layer}.mlp.gate_up_proj", _joined(theirs, GATE_UP), gate_first)
        m.either(f"{layer}.mlp.down_proj", f"{theirs}.mlp.down_proj", f"{old}.mlp.down_proj")
        m.either(f"{layer}.post_attention_layernorm", f"{theirs}.post_attention_layernorm", f"{old}.attn_ln")
        m.either(f"{layer}.post_feedforward_layernorm", f"{theirs}.post_mlp_layernorm", f"{old}.mlp_ln")
    m.optional_prefix("new.")
    return m


def jina_weights(c: JinaConfig) -> WeightMap:
    """Accept the names of transformers and those of the published checkpoints."""
    m = common_weights(c)
    m.either("model.embed_norm", "embeddings.LayerNorm", "emb_ln")
    for layer, theirs, old in _layers(m, c, "encoder.layers.{}"):
        m.either(f"{layer}.self_attn.qkv_proj", _joined(theirs, QKV), f"{old}.mixer.Wqkv")
        m.either(f"{layer}.self_attn.o_proj", f"{theirs}.self_attn.o_proj", f"{old}.mixer.out_proj")
        for name, source in (("up_proj", "fc1"), ("down_proj", "fc2")):
            m.either(f"{layer}.mlp.{name}", f"{theirs}.mlp.{source}", f"{old}.mlp.{source}")
        m.either(f"{layer}.post_attention_layernorm", f"{theirs}.post_attention_layernorm", f"{old}.norm1")
        m.either(f"{layer}.post_feedforward_layernorm", f"{theirs}.post_mlp_layernorm", f"{old}.norm2")
    m.optional_prefix("roberta.")
    return m


def _layers(m: WeightMap, c: GteConfig, published: str) -> zip[tuple[str, str, str]]:
    """The prefixes of each layer: in the model, in transformers, and in published checkpoints."""
    return zip(*(m.layers(pattern, c.num_hidden_layers) for pattern in (LAYER, "layers.{}", published)), strict=True)


def _joined(layer: str, names: tuple[str, ...]) -> Concat:
    return Concat(tuple(CheckpointTensor(f"{layer}.{name}") for name in names), 0)


SIZES = {**tiny.SIZES, "num_key_value_heads": 4}
ARCHITECTURE = encoder_architecture(GteConfig, model, gte_weights, GteConfig(**SIZES))
JINA = encoder_architecture(JinaConfig, model, jina_weights, JinaConfig(**SIZES))
