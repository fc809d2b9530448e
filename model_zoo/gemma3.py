"""Gemma 3, text: Gemma 2 with norms of queries and keys, and a rotation of its own in layers with a window.

``gemma3`` is the text part of the model that also takes images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from model_zoo import gemma2, tiny
from model_zoo.architecture import Architecture
from model_zoo.config_forms import text_part
from model_zoo.layer_types import LocalRopeConfig
from model_zoo.transformer import CausalLM
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names, one_plus

VISION_KEYS = frozenset(
    "vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id "
    "image_token_id".split()
)


@dataclass(frozen=True, kw_only=True)
class Gemma3TextConfig(LocalRopeConfig):
    """sliding_window_pattern: every how many layers one sees all positions."""

    model_type: ClassVar[str] = "gemma3_text"
    vocab_size: int = 262208
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    hidden_activation: str = "gelu_pytorch_tanh"
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    sliding_window_pattern: int = 6
    attn_logit_softcapping: ClassVar[None] = None
    final_logit_softcapping: float | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    context_window_size: int = 131072

    @property
    def pattern(self) -> int | None:
        return self.sliding_window_pattern


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Gemma3TextConfig):
    model_type: ClassVar[str] = "gemma3"

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf(text_part(raw, VISION_KEYS))


def head_norms(c: Gemma3TextConfig) -> dict[str, Callable[[], nn.Module]]:
    """The norms of queries and keys."""
    return dict.fromkeys(("q_norm", "k_norm"), lambda: nn.RMSNorm(c.head_dim, c.rms_norm_eps))


def model(c: Gemma3TextConfig) -> CausalLM:
    return gemma2.model(c, **head_norms(c))


def weights(c: Gemma3TextConfig) -> WeightMap:
    m = llama_names(c)
    one_plus(m, c, (*gemma2.NORMS, "self_attn.q_norm", "self_attn.k_norm"))
    return m


def weights_of_text_part(c: Gemma3Config) -> WeightMap:
    m = weights(c)
    m.optional_prefix("language_model.")
    m.unused("vision_tower.*")
    m.unused("multi_modal_projector.*")
    return m


SIZES = {**tiny.SIZES, "sliding_window": 21, "sliding_window_pattern": 2}
TEXT = Architecture("gemma3_text", Gemma3TextConfig, model, weights, tiny=Gemma3TextConfig(**SIZES))
ARCHITECTURE = Architecture("gemma3", Gemma3Config, model, weights_of_text_part, tiny=Gemma3Config(**SIZES))
