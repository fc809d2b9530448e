"""Multi-head latent attention (MLA; DeepSeek-V2): configuration keys, attention, and weight map rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler.nn.latent_attention import LatentAttention, LatentSizes
from model_zoo.config import AttentionKind, DecoderConfig
from model_zoo.config_check import invalid, unsupported
from model_zoo.weight_expr import CheckpointTensor, Reshape, Slice
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie


@dataclass(frozen=True, kw_only=True)
class LatentConfig(DecoderConfig):
    """Sizes in elements. kv_lora_rank, q_lora_rank: latent vectors of keys and values, and of queries.
    qk_nope_head_dim, qk_rope_head_dim: the unrotated and the rotated part of a query or key. v_head_dim: a value.
    head_dim: a query.
    """

    interleaved_rotary: ClassVar[bool] = True

    kv_lora_rank: int
    q_lora_rank: int | None = None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    attention_bias: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_dim", self.qk_nope_head_dim + self.qk_rope_head_dim)
        super().__post_init__()
        if self.num_key_value_heads != self.num_attention_heads:
            expected = f"num_attention_heads, {self.num_attention_heads}"
            raise invalid("num_key_value_heads", self.num_key_value_heads, expected)
        if self.attention_bias and not self.q_lora_rank:
            raise unsupported("attention_bias", True, "False in a model without q_lora_rank")

    @property
    def rotary_dim(self) -> int:
        return self.qk_rope_head_dim

    @property
    def latent_sizes(self) -> LatentSizes:
        return LatentSizes(
            self.kv_lora_rank, self.qk_rope_head_dim, self.qk_nope_head_dim, self.v_head_dim, self.q_lora_rank
        )

    @property
    def score_scale(self) -> float:
        """The factor of scores, with YaRN's ``mscale_all_dim``, which scales queries and keys (Peng et al. 2023)."""
        scaling = self.rope_scaling or {}
        factor, weight = float(scaling.get("factor") or 1), float(scaling.get("mscale_all_dim") or 0)
        magnitude = 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0
        return magnitude**2 / math.sqrt(self.head_dim)

    @property
    def latent_kind(self) -> AttentionKind:
        """A KV cache of latent vectors, each followed by the rotated key that all heads share."""
        size = self.kv_lora_rank + self.qk_rope_head_dim
        return AttentionKind(rope=self.rope, head_dim=size, kv_heads=1, latent=self.kv_lora_rank)

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        return (self.latent_kind,) * self.num_hidden_layers


def latent_attention(c: LatentConfig) -> LatentAttention:
    return LatentAttention(
        c.hidden_size, c.num_attention_heads, c.latent_sizes, scale=c.score_scale, bias=c.attention_bias
    )


def latent_names(c: LatentConfig) -> WeightMap:
    """The weight map of a checkpoint with DeepSeek's names, without rules for MLPs and experts."""
    m = WeightMap()
    for path in m.layers(f"{LAYER}.self_attn", c.num_hidden_layers):
        latent_rules(m, c, path)
    tie(m, c, "model.embed_tokens")
    return m


def latent_rules(m: WeightMap, c: LatentConfig, path: str) -> None:
    """Add the rules of the latent attention at ``path``."""
    rows = c.qk_nope_head_dim + c.v_head_dim
    q = f"{path}.{'q_a_proj' if c.q_lora_rank else 'q_proj'}"
    m.concat(f"{path}.qkv_a_proj", [q, f"{path}.kv_a_proj_with_mqa"])
    of_heads = Reshape((CheckpointTensor(f"{path}.kv_b_proj.weight"),), (c.num_attention_heads, rows, c.kv_lora_rank))
    m.transpose(f"{path}.k_b_proj.weight", Slice((of_heads,), 1, 0, c.qk_nope_head_dim))
    m.rename(f"{path}.v_b_proj.weight", Slice((of_heads,), 1, c.qk_nope_head_dim, rows))
    m.unused(f"{path}.rotary_emb.inv_freq")
