"""GPT-J: attention and MLP in parallel after one layer norm, interleaved RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, ParallelLayer, attention, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class GPTJConfig(DecoderConfig):
    """rotary_dim: number of rotated elements of a head."""

    model_type: ClassVar[str] = "gptj"
    interleaved_rotary: ClassVar[bool] = True
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "context_window_size": ("n_positions",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"rotary", "n_ctx", "tokenizer_class"})
    intermediate_size: int = 0
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    rotary_dim: int = 64

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        super().__post_init__()


def model(c: GPTJConfig) -> CausalLM:
    norm = layer_norm(c.layer_norm_epsilon)
    layers = [
        ParallelLayer(c.hidden_size, norm, attention(c), plain_mlp(c, c.activation_function))
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, layers, norm(c.hidden_size), head_bias=True)


def weights(c: GPTJConfig) -> WeightMap:
    inner = {
        "input_layernorm": "ln_1",
        "self_attn.qkv_proj": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        "self_attn.o_proj": "attn.out_proj",
        "mlp.up_proj": "mlp.fc_in",
        "mlp.down_proj": "mlp.fc_out",
    }
    outer = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f"}
    m = renamed(c, outer, "transformer.h.{}", inner)
    for buffer in ("bias", "masked_bias", "embed_positions"):
        m.unused(f"transformer.h.*.attn.{buffer}")
    return m


TINY = GPTJConfig(**{**tiny.SIZES, "num_key_value_heads": 4}, rotary_dim=8)
ARCHITECTURE = Architecture("gptj", GPTJConfig, model, weights, tiny=TINY)
