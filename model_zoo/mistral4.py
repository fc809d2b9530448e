"""Mistral 4: DeepSeek-V3 with softmax routers, and queries scaled by a function of their position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler.nn import Tensor
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.latent_attention import LatentAttention
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.deepseek_v2 import SIZES, DeepseekConfig, weights
from model_zoo.ministral3 import GROWTH_KEYS, SCALING, growth
from model_zoo.routed import ROUTERS_KEPT, routed_model
from model_zoo.transformer import CausalLM


@dataclass(frozen=True, kw_only=True)
class Mistral4Config(DeepseekConfig):
    model_type: ClassVar[str] = "mistral4"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rope_interleave": (None, True)}
    scaling_keys: ClassVar[frozenset[str]] = GROWTH_KEYS
    group_best: ClassVar[int] = 2

    norm_topk_prob: bool = True
    partial_rotary_factor: float = 0.0  # type: ignore[misc]  # a field here, a class constant of the base

    def __post_init__(self) -> None:
        super().__post_init__()
        factor = self.partial_rotary_factor
        if factor and int(self.head_dim * factor) != self.qk_rope_head_dim:
            raise unsupported("partial_rotary_factor", factor, f"{self.qk_rope_head_dim / self.head_dim:g}")


class Mistral4Attention(LatentAttention):
    """Latent attention with queries that grow; see ``nn.attention.Growth``."""

    def __init__(self, c: Mistral4Config):
        sizes = (c.hidden_size, c.num_attention_heads, c.latent_sizes)
        super().__init__(*sizes, scale=c.score_scale, bias=c.attention_bias)
        self.growth = growth(c)

    def scaled(self, q: Tensor, cache: PagedKVCache) -> Tensor:
        return self.growth.applied(q, cache.token_pos) if self.growth else q


def model(c: Mistral4Config) -> CausalLM:
    return routed_model(c, lambda: Mistral4Attention(c))


TINY = Mistral4Config(**SIZES, q_lora_rank=44, rope_scaling=SCALING)
ARCHITECTURE = Architecture("mistral4", Mistral4Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
