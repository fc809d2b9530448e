"""Cohere Command R, Aya: attention and MLP in parallel after one norm, interleaved RoPE.

Cohere2 (Command A, R7B) has sliding windows, and no RoPE in its full-attention layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.norms import HeadLayerNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.layer_types import SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, ParallelLayer, attention, gated_mlp, layer_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class CohereConfig(DecoderConfig):
    model_type: ClassVar[str] = "cohere"
    interleaved_rotary: ClassVar[bool] = True
    rope_theta: float = 500000.0
    layer_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    use_qk_norm: bool = False
    logit_scale: float = 0.0625
    tie_word_embeddings: bool = True


@dataclass(frozen=True, kw_only=True)
class Cohere2Config(LayerTypesConfig):
    """sliding_window_pattern: period of full-attention layers."""

    model_type: ClassVar[str] = "cohere2"
    interleaved_rotary: ClassVar[bool] = True
    ignored: ClassVar[frozenset[str]] = frozenset(
        "layer_switch order_of_interleaved_layers position_embedding_type rotary_pct use_embedding_sharing "
        "use_gated_activation use_parallel_block use_parallel_embedding".split()
    )
    rope_theta: float = 10000.0
    layer_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    use_qk_norm: ClassVar[bool] = False
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    sliding_window_pattern: int = 4
    logit_scale: float = 0.0625
    tie_word_embeddings: bool = True

    @property
    def pattern(self) -> int | None:
        return self.sliding_window_pattern

    def has_rope(self, layer: int) -> bool:
        assert self.layer_types is not None
        return self.layer_types[layer] == SLIDING and bool(self.sliding_window)


def model(c: Any) -> CausalLM:
    """Build the model. c: a CohereConfig or Cohere2Config."""
    norm = layer_norm(c.layer_norm_eps, bias=False)

    def head_norm(heads: int) -> nn.Module | None:
        return HeadLayerNorm(heads, c.head_dim, c.layer_norm_eps) if c.use_qk_norm else None

    def layer() -> nn.Module:
        norms = {"q_norm": head_norm(c.num_attention_heads), "k_norm": head_norm(c.num_key_value_heads)}
        attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, **norms)
        return ParallelLayer(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_act))

    layers = [layer() for _ in range(c.num_hidden_layers)]
    return CausalLM(c, layers, norm(c.hidden_size), logit_scale=c.logit_scale)


ARCHITECTURE = Architecture("cohere", CohereConfig, model, llama_names, tiny=CohereConfig(**tiny.SIZES))
TINY2 = Cohere2Config(**tiny.SIZES, sliding_window=21, sliding_window_pattern=2)
COHERE2 = Architecture("cohere2", Cohere2Config, model, llama_names, tiny=TINY2)
