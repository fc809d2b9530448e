"""Hunyuan dense V1: Llama with QK norms after RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.attention import SelfAttention, rotated
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig
from model_zoo.transformer import CausalLM, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class HunYuanConfig(DecoderConfig):
    model_type: ClassVar[str] = "hunyuan_v1_dense"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"head_dim": ("attention_head_dim",)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "add_classification_head class_num eod_token_id im_end_id im_newline_id im_start_id image_token_id "
        "mask_init_id norm_type org_vocab_size pool_type position_embedding_xdrope text_end_id "
        "text_start_id use_cla use_qk_norm use_rotary_pos_emb cla_share_factor dense_list".split()
    )
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        return (AttentionKind(),) * self.num_hidden_layers


class HunYuanAttention(SelfAttention):
    """Attention with RoPE before the norms; the KV cache stores rotated keys."""

    def __init__(self, c: HunYuanConfig):
        bias, size = c.attention_bias, c.head_dim
        sizes = (c.hidden_size, c.num_attention_heads, c.num_key_value_heads, size)
        super().__init__(*sizes, qkv_bias=bias, out_bias=bias)
        self.query_norm, self.key_norm = (nn.RMSNorm(size, c.rms_norm_eps) for _ in range(2))
        assert c.rope is not None
        self.inv_freq: np.ndarray = c.rope.inv_freq

    def attend(self, qkv: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        q, k, v = self.parts(qkv)
        q, k = (rotated(x, cache.token_pos, self.inv_freq) for x in (q, k))
        return cache.attention(layer, self.query_norm(q), self.key_norm(k), v, self.scale)


def model(c: HunYuanConfig) -> CausalLM:
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), lambda: HunYuanAttention(c), lambda: gated_mlp(c, c.hidden_act))


def weights(c: HunYuanConfig) -> WeightMap:
    m = llama_names(c)
    norm_rules(m, c)
    return m


def norm_rules(m: WeightMap, c: HunYuanConfig) -> None:
    """Add the rules of the norms of queries and keys."""
    for layer in m.layers(f"{LAYER}.self_attn", c.num_hidden_layers):
        m.rename(f"{layer}.query_norm", f"{layer}.query_layernorm")
        m.rename(f"{layer}.key_norm", f"{layer}.key_layernorm")


TINY = HunYuanConfig(**tiny.SIZES, rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0})
ARCHITECTURE = Architecture("hunyuan_v1_dense", HunYuanConfig, model, weights, tiny=TINY)
