"""Phi-1, 1.5, 2: attention and MLP in parallel after one layer norm, biases everywhere.

``phi-msft`` are the first checkpoints, with different names and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, ParallelLayer, attention, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import QKV, renamed


@dataclass(frozen=True, kw_only=True)
class PhiConfig(DecoderConfig):
    model_type: ClassVar[str] = "phi"
    layer_norm_eps: float = 1e-5
    hidden_act: str = "gelu_new"
    qk_layernorm: bool = False
    partial_rotary_factor: float = 0.5  # type: ignore[misc]  # a field here, a class constant of the base


@dataclass(frozen=True, kw_only=True)
class PhiMSFTConfig(DecoderConfig):
    """rotary_dim: rotated elements of a head."""

    model_type: ClassVar[str] = "phi-msft"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "num_key_value_heads": ("n_head_kv",),
        "intermediate_size": ("n_inner",),
        "context_window_size": ("n_positions",),
        "layer_norm_eps": ("layer_norm_epsilon",),
        "hidden_act": ("activation_function",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"phyagi_version", "img_processor"})
    intermediate_size: int = 0
    layer_norm_eps: float = 1e-5
    hidden_act: str = "gelu_new"
    qk_layernorm: ClassVar[bool] = False
    rotary_dim: int = 32

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        super().__post_init__()


def model(c: Any) -> CausalLM:
    """Build the model. c: a PhiConfig or PhiMSFTConfig."""
    norm = layer_norm(c.layer_norm_eps)

    def layer() -> nn.Module:
        q_norm, k_norm = (norm(c.head_dim) if c.qk_layernorm else None for _ in range(2))
        attend = attention(c, qkv_bias=True, out_bias=True, q_norm=q_norm, k_norm=k_norm)
        return ParallelLayer(c.hidden_size, norm, attend, plain_mlp(c, c.hidden_act))

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size), head_bias=True)


def weights(c: PhiConfig) -> WeightMap:
    inner: dict[str, str | tuple[str, ...]] = {
        "self_attn.qkv_proj": QKV,
        "self_attn.o_proj": "self_attn.dense",
        "mlp.up_proj": "mlp.fc1",
        "mlp.down_proj": "mlp.fc2",
    }
    if c.qk_layernorm:
        inner |= {f"self_attn.{x}_norm": f"self_attn.{x}_layernorm" for x in "qk"}
    m = renamed(c, {"model.norm": "model.final_layernorm"}, "model.layers.{}", inner)
    m.unused("model.layers.*.self_attn.rotary_emb.inv_freq")
    return m


def msft_weights(c: PhiMSFTConfig) -> WeightMap:
    inner = {
        "input_layernorm": "ln",
        "self_attn.qkv_proj": "mixer.Wqkv",
        "self_attn.o_proj": "mixer.out_proj",
        "mlp.up_proj": "mlp.fc1",
        "mlp.down_proj": "mlp.fc2",
    }
    outer = {
        "model.embed_tokens": "transformer.embd.wte",
        "model.norm": "lm_head.ln",
        "lm_head": "lm_head.linear",
    }
    m = renamed(c, outer, "transformer.h.{}", inner)
    m.unused("transformer.h.*.mixer.rotary_emb.*")
    return m


SIZES = {**tiny.SIZES, "num_key_value_heads": 4}
ARCHITECTURE = Architecture("phi", PhiConfig, model, weights, tiny=PhiConfig(**SIZES))
MSFT = Architecture("phi-msft", PhiMSFTConfig, model, msft_weights, tiny=PhiMSFTConfig(**SIZES, rotary_dim=8))
