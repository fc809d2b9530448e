"""InternLM and InternLM2: Llama, with attention biases or with fused query, key and value rows ordered by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, grouped_qkv, llama_names, renamed


@dataclass(frozen=True, kw_only=True)
class InternLMConfig(DecoderConfig):
    """bias: whether the linear layers of attention have biases."""

    model_type: ClassVar[str] = "internlm"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"attention_bias": ("bias",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"rotary"})
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = True


@dataclass(frozen=True, kw_only=True)
class InternLM2Config(DecoderConfig):
    model_type: ClassVar[str] = "internlm2"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"attention_bias": ("bias",)}
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = True


def model(c: Any) -> CausalLM:
    """Build the model. c: an InternLMConfig or InternLM2Config."""
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: gated_mlp(c, c.hidden_act),
    )


def internlm2_weights(c: InternLM2Config) -> WeightMap:
    inner = {
        "input_layernorm": "attention_norm",
        "self_attn.o_proj": "attention.wo",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_up_proj": ("feed_forward.w1", "feed_forward.w3"),
        "mlp.down_proj": "feed_forward.w2",
    }
    outer = {
        "model.embed_tokens": "model.tok_embeddings",
        **({} if c.tie_word_embeddings else {"lm_head": "output"}),
    }
    m = renamed(c, outer, LAYER, inner)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.rename(f"{layer}.self_attn.qkv_proj", grouped_qkv(c, f"{layer}.attention.wqkv"))
    return m


TINY = InternLMConfig(**{**tiny.SIZES, "num_key_value_heads": 4})
ARCHITECTURE = Architecture("internlm2", InternLM2Config, model, internlm2_weights, tiny=InternLM2Config(**tiny.SIZES))
INTERNLM = Architecture("internlm", InternLMConfig, model, llama_names, tiny=TINY)
