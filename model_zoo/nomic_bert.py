"""Nomic Embed: BERT with RoPE instead of learned positions, gated SiLU and no biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.encoder import EncoderConfig
from model_zoo.transformer import Encoder, NormedSumLayer, attention, gated_mlp, layer_norm
from model_zoo.weight_expr import CheckpointTensor, Concat
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, QKV


@dataclass(frozen=True, kw_only=True)
class NomicBertConfig(EncoderConfig):
    """Accepts the keys of published configurations (GPT-2's) and those of transformers (BERT's)."""

    model_type: ClassVar[str] = "nomic_bert"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "context_window_size": ("n_positions",),
        "layer_norm_eps": ("layer_norm_epsilon",),
        "rope_theta": ("rotary_emb_base",),
        "partial_rotary_factor": ("rotary_emb_fraction",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "activation_function": ("swiglu",),
        **dict.fromkeys(("causal", "parallel_block", "prenorm", "use_rms_norm", "rotary_emb_interleaved"), (False,)),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), (False,)),
        **dict.fromkeys(("rotary_emb_scale_base", "rotary_scaling_factor"), (None,)),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "dense_seq_output fused_dropout_add_ln last_layer_subset max_trained_positions pad_vocab_size_multiple "
        "parallel_block_tied_norm use_xentropy".split()
    )
    rope_theta: float = 1000.0
    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # a class constant of DecoderConfig
    layer_norm_eps: float = 1e-12
    hidden_act: str = "silu"
    type_vocab_size: int | None = 2


def model(c: NomicBertConfig) -> Encoder:
    norm = layer_norm(c.layer_norm_eps)
    layers = [
        NormedSumLayer(c.hidden_size, norm, attention(c), gated_mlp(c, c.hidden_act))
        for _ in range(c.num_hidden_layers)
    ]
    return Encoder(c, layers, embedding_norm=norm(c.hidden_size))


def weights(c: NomicBertConfig) -> WeightMap:
    """Accept the names of transformers and those of the published checkpoints."""
    m = WeightMap()
    m.rename("model.embed_tokens", "embeddings.word_embeddings")
    m.rename("token_types", "embeddings.token_type_embeddings")
    m.either("model.embed_norm", "embeddings.LayerNorm", "emb_ln")
    published = m.layers("encoder.layers.{}", c.num_hidden_layers)
    theirs = m.layers("layers.{}", c.num_hidden_layers)
    for layer, source, old in zip(m.layers(LAYER, c.num_hidden_layers), theirs, published, strict=True):
        m.either(f"{layer}.self_attn.qkv_proj", _joined(source, QKV), f"{old}.attn.Wqkv")
        m.either(f"{layer}.self_attn.o_proj", f"{source}.self_attn.o_proj", f"{old}.attn.out_proj")
        m.either(f"{layer}.mlp.gate_up_proj", _joined(source, GATE_UP), _joined(old, ("mlp.fc12", "mlp.fc11")))
        m.either(f"{layer}.mlp.down_proj", f"{source}.mlp.down_proj", f"{old}.mlp.fc2")
        m.either(f"{layer}.post_attention_layernorm", f"{source}.post_attention_layernorm", f"{old}.norm1")
        m.either(f"{layer}.post_feedforward_layernorm", f"{source}.post_mlp_layernorm", f"{old}.norm2")
    m.optional_prefix("nomic_bert.")
    m.unused("cls.*")
    m.unused("pooler.*")
    return m


def _joined(layer: str, names: tuple[str, ...]) -> Concat:
    return Concat(tuple(CheckpointTensor(f"{layer}.{name}") for name in names), 0)


TINY = NomicBertConfig(**{**tiny.SIZES, "num_key_value_heads": 4})
ARCHITECTURE = encoder_architecture(NomicBertConfig, model, weights, TINY)
