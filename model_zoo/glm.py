"""GLM: Llama with biases of queries, keys and values, and interleaved RoPE on half of each head.

``glm`` and ``chatglm`` (ChatGLM 2 and 3, GLM-4 9B) are one model with different keys and names; ``glm4`` (0414) has
sandwich norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_errors import UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, PreNormLayer, SandwichLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, renamed


@dataclass(frozen=True, kw_only=True)
class GlmConfig(DecoderConfig):
    model_type: ClassVar[str] = "glm"
    interleaved_rotary: ClassVar[bool] = True
    rms_norm_eps: float = 1.5625e-7
    hidden_act: str = "silu"
    attention_bias: bool = True
    partial_rotary_factor: float = 0.5  # type: ignore[misc]  # a field here, a class constant of the base


@dataclass(frozen=True, kw_only=True)
class Glm4Config(GlmConfig):
    model_type: ClassVar[str] = "glm4"


@dataclass(frozen=True, kw_only=True)
class ChatGLMConfig(DecoderConfig):
    """rope_ratio: factor of theta. multi_query_attention: if false, every query head has its own key/value head."""

    model_type: ClassVar[str] = "chatglm"
    interleaved_rotary: ClassVar[bool] = True
    partial_rotary_factor: ClassVar[float] = 0.5
    hidden_act: ClassVar[str] = "silu"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "num_hidden_layers": ("num_layers",),
        "intermediate_size": ("ffn_hidden_size",),
        "num_key_value_heads": ("multi_query_group_num",),
        "head_dim": ("kv_channels",),
        "vocab_size": ("padded_vocab_size",),
        "context_window_size": ("seq_length",),
        "rms_norm_eps": ("layernorm_epsilon",),
        "attention_bias": ("add_qkv_bias",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "apply_query_key_layer_scaling attention_softmax_in_fp32 bias_dropout_fusion fp32_residual_connection "
        "hidden_dropout interleaved_qkv original_rope rmsnorm post_layer_norm pre_seq_len prefix_projection "
        "quantization_bit num_experts_per_tok".split()
    )
    rms_norm_eps: float = 1e-5
    attention_bias: bool = True
    add_bias_linear: bool = False
    rope_ratio: float = 1.0
    multi_query_attention: bool = True
    apply_residual_connection_post_layernorm: bool = False

    def __post_init__(self) -> None:
        if not self.multi_query_attention:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        object.__setattr__(self, "rope_theta", 10000.0 * self.rope_ratio)
        super().__post_init__()
        for name in ("add_bias_linear", "apply_residual_connection_post_layernorm"):
            if getattr(self, name):
                raise UnsupportedError(f"{name}: got true; expected false", where=["config.json"])


def model(c: Any) -> CausalLM:
    """Build the model from any of the configurations in this file."""
    norm = rms_norm(c.rms_norm_eps)
    kind = SandwichLayer if c.model_type == "glm4" else PreNormLayer

    def layer() -> nn.Module:
        return kind(c.hidden_size, norm, attention(c, qkv_bias=c.attention_bias), gated_mlp(c, c.hidden_act))

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: GlmConfig) -> WeightMap:
    return renamed(c, {}, LAYER, {"self_attn.qkv_proj": QKV})


def glm4_weights(c: Glm4Config) -> WeightMap:
    norms = {
        "post_attention_layernorm": "post_self_attn_layernorm",
        "pre_feedforward_layernorm": "post_attention_layernorm",
        "post_feedforward_layernorm": "post_mlp_layernorm",
    }
    return renamed(c, {}, LAYER, {"self_attn.qkv_proj": QKV, **norms})


def chatglm_weights(c: ChatGLMConfig) -> WeightMap:
    inner = {
        "input_layernorm": "input_layernorm",
        "self_attn.qkv_proj": "self_attention.query_key_value",
        "self_attn.o_proj": "self_attention.dense",
        "post_attention_layernorm": "post_attention_layernorm",
        "mlp.gate_up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
    }
    outer = {
        "model.embed_tokens": "transformer.embedding.word_embeddings",
        "model.norm": "transformer.encoder.final_layernorm",
        **({} if c.tie_word_embeddings else {"lm_head": "transformer.output_layer"}),
    }
    m = renamed(c, outer, "transformer.encoder.layers.{}", inner)
    m.unused("transformer.rotary_pos_emb.inv_freq")
    return m


ARCHITECTURE = Architecture("glm", GlmConfig, model, weights, tiny=GlmConfig(**tiny.SIZES))
GLM4 = Architecture("glm4", Glm4Config, model, glm4_weights, tiny=Glm4Config(**tiny.SIZES))
CHATGLM = Architecture("chatglm", ChatGLMConfig, model, chatglm_weights, tiny=ChatGLMConfig(**tiny.SIZES))
