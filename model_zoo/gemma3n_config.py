"""The configuration of Gemma 3n's text part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_errors import MLCError, UnsupportedError
from model_zoo.config_check import is_finite
from model_zoo.layer_types import LocalRopeConfig

SPARSE_LAYERS, SPARSITY = 10, 0.95


@dataclass(frozen=True, kw_only=True)
class Gemma3nTextConfig(LocalRopeConfig):
    """num_kv_shared_layers: number of last layers that use the keys and values of an earlier layer.

    activation_sparsity_pattern: fraction of each layer's activations that is set to 0; by default 0.95 in the first ten
    layers of a model that has more.
    """

    model_type: ClassVar[str] = "gemma3n_text"
    ignored: ClassVar[frozenset[str]] = frozenset({"altup_coef_clip"})  # acts in training

    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    hidden_activation: str = "gelu_pytorch_tanh"
    sliding_window: int | None = 512  # type: ignore[misc]  # a class constant of DecoderConfig
    final_logit_softcapping: float | None = 30.0
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    context_window_size: int = 32768
    vocab_size_per_layer_input: int = 262144
    hidden_size_per_layer_input: int = 256
    altup_active_idx: int | None = 0
    altup_num_inputs: int = 4
    altup_correct_scale: bool = True
    num_kv_shared_layers: int | None = 15
    laurel_rank: int = 64
    activation_sparsity_pattern: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation_sparsity_pattern is not None:
            pattern = tuple(self.activation_sparsity_pattern)
            object.__setattr__(self, "activation_sparsity_pattern", pattern)
            self._check_layers("activation_sparsity_pattern", pattern)
            if not all(is_finite(part) and 0 <= part < 1 for part in pattern):
                raise MLCError("activation_sparsity_pattern: expected numbers from 0 to 1", where=["config.json"])
        if (self.altup_active_idx or 0) >= self.altup_num_inputs:
            raise MLCError(
                f"altup_active_idx: got {self.altup_active_idx}; expected less than altup_num_inputs, "
                f"{self.altup_num_inputs}",
                where=["config.json"],
            )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf(_with_one_intermediate_size(raw))

    @property
    def pattern(self) -> int | None:
        return 5

    @property
    def kv_layers(self) -> int:
        return self.num_hidden_layers - (self.num_kv_shared_layers or 0)

    @property
    def embedding_size(self) -> int:
        return self.hidden_size + self.num_hidden_layers * self.hidden_size_per_layer_input

    def sparsity(self, layer: int) -> float:
        """The fraction of a layer's activations that is set to 0."""
        if self.activation_sparsity_pattern is not None:
            return self.activation_sparsity_pattern[layer]
        return SPARSITY if layer < SPARSE_LAYERS < self.num_hidden_layers else 0.0


def _with_one_intermediate_size(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    sizes = raw.get("intermediate_size")
    if not isinstance(sizes, list) or not sizes:
        return raw
    if any(size != sizes[0] for size in sizes):
        raise UnsupportedError(
            f"intermediate_size: got {str(sizes)[:80]}; expected the same in all layers", where=["config.json"]
        )
    return {**raw, "intermediate_size": sizes[0]}
