"""Ministral 3: Mistral with YaRN and queries that are scaled up with their position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import SelfAttention, grown
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Ministral3Config(DecoderConfig):
    model_type: ClassVar[str] = "ministral3"
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    hidden_act: str = "silu"
    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base


def growth(c: DecoderConfig) -> tuple[float, float]:
    """beta and length of ``nn.attention.grown``; beta is 0 where queries do not grow."""
    scaling = c.rope_scaling or {}
    length = scaling.get("original_max_position_embeddings") or c.context_window_size
    return float(scaling.get("llama_4_scaling_beta") or 0.0), float(length)


class Ministral3Attention(SelfAttention):
    """beta, length: see ``growth``."""

    def __init__(self, *sizes: int, beta: float, length: float):
        super().__init__(*sizes)
        self.beta, self.length = beta, length

    def attend(self, qkv: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        q, k, v = op.split(qkv, [self.heads, self.heads + self.kv_heads], axis=1)
        return cache.attention(layer, grown(q, cache.token_pos, self.beta, self.length), k, v, self.scale)


def model(c: Ministral3Config) -> CausalLM:
    beta, length = growth(c)
    attend: Any = partial(attention, c)
    if beta:
        sizes = (c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim)
        attend = partial(Ministral3Attention, *sizes, beta=beta, length=length)
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, lambda: gated_mlp(c, c.hidden_act))


SCALING = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
TINY = Ministral3Config(**tiny.SIZES, rope_scaling=SCALING)
ARCHITECTURE = Architecture("ministral3", Ministral3Config, model, llama_names, tiny=TINY)
