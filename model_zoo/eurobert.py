"""EuroBERT: the layers of Llama as an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.encoder import EncoderConfig
from model_zoo.transformer import Encoder, PreNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class EuroBertConfig(EncoderConfig):
    model_type: ClassVar[str] = "eurobert"
    ignored: ClassVar[frozenset[str]] = frozenset({"classifier_pooling", "clf_pooling", "mask_token", "mask_token_id"})
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False


def model(c: EuroBertConfig) -> Encoder:
    norm = rms_norm(c.rms_norm_eps)

    def layer() -> PreNormLayer:
        attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        return PreNormLayer(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_act, c.mlp_bias))

    return Encoder(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: EuroBertConfig) -> WeightMap:
    m = llama_names(c)
    m.optional_prefix("model.")
    m.unused("lm_head.*")
    return m


ARCHITECTURE = encoder_architecture(EuroBertConfig, model, weights, EuroBertConfig(**tiny.SIZES))
