"""Falcon: layer norms, attention and MLP in parallel or in sequence, grouped or multi-query heads, RoPE or ALiBi."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.attention import alibi_slopes
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.rope import RopeParameters
from model_zoo.transformer import CausalLM, ParallelLayer, PreNormLayer, attention, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, grouped_qkv, renamed


@dataclass(frozen=True, kw_only=True)
class FalconConfig(DecoderConfig):
    """new_decoder_architecture: parallel layers, grouped queries; num_ln_in_parallel_attn: norms per layer, 1 or 2."""

    model_type: ClassVar[str] = "falcon"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embed",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("ffn_hidden_size",),
        "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"hidden_dropout"})
    intermediate_size: int = 0
    layer_norm_epsilon: float = 1e-5
    activation: str = "gelu"
    alibi: bool = False
    bias: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        if not self.new_decoder_architecture:
            heads = 1 if self.multi_query else self.num_attention_heads
            object.__setattr__(self, "num_key_value_heads", heads)
        if self.new_decoder_architecture and self.num_ln_in_parallel_attn is None:
            object.__setattr__(self, "num_ln_in_parallel_attn", 2)
        super().__post_init__()

    @cached_property
    def rope(self) -> RopeParameters | None:
        if self.alibi:
            return None
        return RopeParameters.from_hf(self.head_dim, self.rope_theta, self.rope_scaling, self.context_window_size)

    @property
    def is_parallel(self) -> bool:
        return self.parallel_attn or self.new_decoder_architecture

    @property
    def norms(self) -> int:
        """The number of norms of a layer."""
        return 2 if self.num_ln_in_parallel_attn == 2 or not self.is_parallel else 1


def model(c: FalconConfig) -> CausalLM:
    """Build the model. ALiBi is divided by ``sqrt(head_dim)``, like the dot products of queries and keys."""
    norm = layer_norm(c.layer_norm_epsilon)
    slopes = [s / math.sqrt(c.head_dim) for s in alibi_slopes(c.num_attention_heads)] if c.alibi else None

    def layer() -> nn.Module:
        attend = attention(c, qkv_bias=c.bias, out_bias=c.bias, slopes=slopes)
        mlp = plain_mlp(c, c.activation, c.bias)
        if c.is_parallel:
            return ParallelLayer(c.hidden_size, norm, attend, mlp, norms=c.norms)
        return PreNormLayer(c.hidden_size, norm, attend, mlp)

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: FalconConfig) -> WeightMap:
    theirs = "transformer.h.{}"
    has_two = c.new_decoder_architecture and c.norms == 2
    inner = {
        "self_attn.o_proj": "self_attention.dense",
        "mlp.up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
        "input_layernorm": "ln_attn" if has_two else "input_layernorm",
    }
    if c.norms == 2:
        inner["post_attention_layernorm"] = "ln_mlp" if has_two else "post_attention_layernorm"
    outer = {"model.embed_tokens": "transformer.word_embeddings", "model.norm": "transformer.ln_f"}
    m = renamed(c, outer, theirs, inner)
    layers = c.num_hidden_layers
    for ours, source in zip(m.layers(LAYER, layers), m.layers(theirs, layers), strict=True):
        m.rename(f"{ours}.self_attn.qkv_proj", grouped_qkv(c, f"{source}.self_attention.query_key_value"))
    return m


TINY = FalconConfig(**tiny.SIZES, new_decoder_architecture=True)
ARCHITECTURE = Architecture("falcon", FalconConfig, model, weights, tiny=TINY)
