"""Configurations of Gemma 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from mlc_errors import UnsupportedError
from model_zoo.config import AttentionKind
from model_zoo.config_check import check_chosen_experts
from model_zoo.layer_types import FULL, LocalRopeConfig
from model_zoo.rope import RopeParameters

GLOBAL_SIZES = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}


@dataclass(frozen=True, kw_only=True)
class Gemma4TextConfig(LocalRopeConfig):
    """global_head_dim, num_global_key_value_heads, partial_rotary_factor: for full-attention layers, whose values are
    their keys if ``attention_k_eq_v``. hidden_size_per_layer_input: elements of per-layer embeddings, 0 for none.
    num_kv_shared_layers: number of last layers that use the keys and values of an earlier layer.
    """

    model_type: ClassVar[str] = "gemma4_text"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"use_bidirectional_attention": (None, "vision")}

    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    rope_scaling: Mapping[str, Any] | None = field(default_factory=lambda: {"rope_type": "proportional"})
    partial_rotary_factor: float = 0.25  # type: ignore[misc]  # a class constant of DecoderConfig
    hidden_activation: str = "gelu_pytorch_tanh"
    sliding_window: int | None = 512  # type: ignore[misc]  # likewise
    attention_bias: bool = False
    attention_k_eq_v: bool = False
    global_head_dim: int = 512
    num_global_key_value_heads: int | None = None
    final_logit_softcapping: float | None = None
    tie_word_embeddings: bool = True
    context_window_size: int = 131072
    vocab_size_per_layer_input: int = 262144
    hidden_size_per_layer_input: int | None = 256
    num_kv_shared_layers: int | None = None
    use_double_wide_mlp: bool = False
    enable_moe_block: bool = False
    num_experts: int | None = None
    top_k_experts: int | None = None
    moe_intermediate_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.enable_moe_block:
            check_chosen_experts(self.top_k_experts or 1, "num_experts", self.num_experts or 0)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf(with_global_sizes(raw))

    @property
    def pattern(self) -> int | None:
        return 6

    def default_layer_types(self) -> tuple[str, ...]:
        return (*super().default_layer_types()[:-1], FULL)

    @property
    def rotary_dim(self) -> int:
        return self.head_dim

    @cached_property
    def rope(self) -> RopeParameters | None:
        scaling = self.rope_scaling and {**self.rope_scaling, "partial_rotary_factor": self.partial_rotary_factor}
        return RopeParameters.from_hf(self.global_head_dim, self.rope_theta, scaling, self.context_window_size)

    @property
    def kv_layers(self) -> int:
        return self.num_hidden_layers - (self.num_kv_shared_layers or 0)

    @property
    def embedding_size(self) -> int:
        return self.hidden_size + self.num_hidden_layers * (self.hidden_size_per_layer_input or 0)

    def _kind(self, layer: int) -> AttentionKind:
        kind = super()._kind(layer)
        if kind.window:
            return kind
        kv_heads = self.num_global_key_value_heads if self.attention_k_eq_v else None
        return replace(kind, head_dim=self.global_head_dim, kv_heads=kv_heads)


def with_global_sizes(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move the sizes that newer versions of transformers list for each full-attention layer to the older keys.

    Raises UnsupportedError if ``per_layer_config`` has other entries, or different sizes for these layers.
    """
    values = dict(raw)
    if "per_layer_config" not in values:
        return values
    listed, kinds = values.pop("per_layer_config"), values.get("layer_types") or []
    full = [i for i, kind in enumerate(kinds) if kind == FULL]
    sizes = next(iter(listed.values()), None) if isinstance(listed, Mapping) else None
    if (
        not isinstance(sizes, Mapping)
        or not set(sizes) <= set(GLOBAL_SIZES)
        or listed != {layer: sizes for layer in listed}
        or sorted(map(_layer_number, listed)) != full
    ):
        raise UnsupportedError(
            "per_layer_config: expected the same head_dim and num_key_value_heads for all full_attention layers, "
            "and nothing else",
            where=["config.json"],
        )
    return values | {GLOBAL_SIZES[key]: size for key, size in sizes.items()}


def _layer_number(name: object) -> int:
    """The layer that a key names, also with leading zeros; -1 if it is no number."""
    return int(str(name)) if str(name).isdecimal() else -1
