"""The encoder of T5 alone, as in Sentence-T5 and text-to-image models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.distance_biases import BiasedEncoder
from model_zoo.encoder import EncoderConfig
from model_zoo.t5 import QKV, T5Config, distance_biases, feed_forward
from model_zoo.transformer import PreNormLayer, attention, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class T5EncoderConfig(T5Config, EncoderConfig):
    model_type: ClassVar[str] = "t5_encoder"


def model(c: T5EncoderConfig) -> BiasedEncoder:
    norm, size = rms_norm(c.layer_norm_epsilon), c.hidden_size
    layers = [PreNormLayer(size, norm, attention(c, scale=1.0), feed_forward(c)) for _ in range(c.num_hidden_layers)]
    return BiasedEncoder(distance_biases(c, backward=False), c, layers, norm(size))


def weights(c: T5EncoderConfig) -> WeightMap:
    dense, gated = "layer.1.DenseReluDense", c.feed_forward_proj.startswith("gated")
    outer = {
        "model.norm": "encoder.final_layer_norm",
        "biases": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    }
    inner = {
        "self_attn.qkv_proj": [f"layer.0.{name}" for name in QKV],
        "self_attn.o_proj": "layer.0.SelfAttention.o",
        "input_layernorm": "layer.0.layer_norm",
        "post_attention_layernorm": "layer.1.layer_norm",
        "mlp.down_proj": f"{dense}.wo",
        **({"mlp.gate_up_proj": [f"{dense}.wi_0", f"{dense}.wi_1"]} if gated else {"mlp.up_proj": f"{dense}.wi"}),
    }
    m = renamed(c, outer, "encoder.block.{}", inner)
    m.either("model.embed_tokens", "shared", "encoder.embed_tokens")
    for name in ("shared", "encoder.embed_tokens"):
        m.tied(f"{name}.weight")
    for unused in ("decoder.*", "lm_head.*"):
        m.unused(unused)
    return m


TINY = T5EncoderConfig(**{**tiny.SIZES, "num_key_value_heads": 4})
ARCHITECTURE = encoder_architecture(T5EncoderConfig, model, weights, TINY)
