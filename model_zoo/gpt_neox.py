"""GPT-NeoX, Pythia: layer norms, partial RoPE, attention and MLP in parallel with a norm each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, ParallelLayer, PreNormLayer, attention, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed


@dataclass(frozen=True, kw_only=True)
class GPTNeoXConfig(DecoderConfig):
    model_type: ClassVar[str] = "gpt_neox"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "partial_rotary_factor": ("rotary_pct",),
        "rope_theta": ("rotary_emb_base",),
    }
    layer_norm_eps: float = 1e-5
    hidden_act: str = "gelu"
    attention_bias: bool = True
    use_parallel_residual: bool = True
    partial_rotary_factor: float = 0.25  # type: ignore[misc]  # a field here, a class constant of the base


def model(c: GPTNeoXConfig) -> CausalLM:
    norm = layer_norm(c.layer_norm_eps)

    def layer() -> nn.Module:
        attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        mlp = plain_mlp(c, c.hidden_act)
        if c.use_parallel_residual:
            return ParallelLayer(c.hidden_size, norm, attend, mlp, norms=2)
        return PreNormLayer(c.hidden_size, norm, attend, mlp)

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: GPTNeoXConfig) -> WeightMap:
    """Rows of ``query_key_value`` are ordered by head; each has its query, key and value."""
    theirs = "gpt_neox.layers.{}"
    inner = {
        "self_attn.o_proj": "attention.dense",
        "mlp.up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
        "input_layernorm": "input_layernorm",
        "post_attention_layernorm": "post_attention_layernorm",
    }
    outer = {
        "model.embed_tokens": "gpt_neox.embed_in",
        "model.norm": "gpt_neox.final_layer_norm",
        **({} if c.tie_word_embeddings else {"lm_head": "embed_out"}),
    }
    m = renamed(c, outer, theirs, inner)
    layers = range(c.num_hidden_layers)
    for ours, source in zip(m.layers(LAYER, len(layers)), m.layers(theirs, len(layers)), strict=True):
        view = (c.num_attention_heads, 3, c.head_dim)
        m.permute(f"{ours}.self_attn.qkv_proj", f"{source}.attention.query_key_value", view=view, order=(1, 0, 2))
        for buffer in ("bias", "masked_bias", "rotary_emb.inv_freq"):
            m.unused(f"{source}.attention.{buffer}")
    return m


TINY = GPTNeoXConfig(**{**tiny.SIZES, "num_key_value_heads": 4}, partial_rotary_factor=0.4)
ARCHITECTURE = Architecture("gpt_neox", GPTNeoXConfig, model, weights, tiny=TINY)
