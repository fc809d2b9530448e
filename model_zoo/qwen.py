"""Qwen 1: Llama with biases of queries, keys and values, and different names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler.nn.feed_forward import GatedMLP
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class QwenConfig(DecoderConfig):
    """intermediate_size: twice the inner size of the MLP.

    use_dynamic_ntk and use_logn_attn only act beyond ``seq_length`` tokens, which is the maximum context here.
    """

    model_type: ClassVar[str] = "qwen"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "head_dim": ("kv_channels",),
        "context_window_size": ("seq_length",),
        "rope_theta": ("rotary_emb_base",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "emb_dropout_prob attn_dropout_prob max_position_embeddings use_dynamic_ntk use_logn_attn "
        "use_cache_kernel use_cache_quantization rotary_pct".split()
    )
    layer_norm_epsilon: float = 1e-6
    no_bias: bool = True


def model(c: QwenConfig) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.layer_norm_epsilon),
        lambda: attention(c, qkv_bias=True, out_bias=not c.no_bias),
        lambda: GatedMLP(c.hidden_size, c.intermediate_size // 2, bias=not c.no_bias),
    )


def weights(c: QwenConfig) -> WeightMap:
    inner = {
        "input_layernorm": "ln_1",
        "self_attn.qkv_proj": "attn.c_attn",
        "self_attn.o_proj": "attn.c_proj",
        "post_attention_layernorm": "ln_2",
        "mlp.gate_up_proj": ("mlp.w2", "mlp.w1"),
        "mlp.down_proj": "mlp.c_proj",
    }
    outer = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f"}
    m = renamed(c, outer, "transformer.h.{}", inner)
    m.unused("transformer.h.*.attn.rotary_emb.inv_freq")
    return m


TINY = QwenConfig(**{**tiny.SIZES, "num_key_value_heads": 4})
ARCHITECTURE = Architecture("qwen", QwenConfig, model, weights, tiny=TINY)
