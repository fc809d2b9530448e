"""Base configurations of models whose layers differ in sliding window or RoPE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlc_errors import MLCError
from model_zoo.config import AttentionKind, DecoderConfig
from model_zoo.config_keys import LAYER_TYPES
from model_zoo.rope import RopeParameters

FULL, SLIDING = LAYER_TYPES


@dataclass(frozen=True, kw_only=True)
class LayerTypesConfig(DecoderConfig):
    """layer_types: ``full_attention`` or ``sliding_attention`` for each layer; by default, every ``pattern``-th layer
    is full, or all layers if there is no window or no pattern.
    """

    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base
    layer_types: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.layer_types is None:
            object.__setattr__(self, "layer_types", self.default_layer_types())
        super().__post_init__()
        self._check_layers("layer_types", self.layer_types)
        object.__setattr__(self, "layer_types", tuple(self.layer_types or ()))
        unknown = sorted(set(self.layer_types or ()) - set(LAYER_TYPES))
        if unknown:
            raise MLCError(
                f"layer_types: got {unknown[0]!r}; expected {' or '.join(LAYER_TYPES)}", where=["config.json"]
            )

    @property
    def pattern(self) -> int | None:
        """Period of full-attention layers."""
        return None

    def default_layer_types(self) -> tuple[str, ...]:
        period, layers = self.pattern, range(self.num_hidden_layers)
        if not period or not self.sliding_window:
            return (FULL,) * len(layers)
        return tuple(SLIDING if (i + 1) % period else FULL for i in layers)

    def has_rope(self, layer: int) -> bool:
        """Whether a layer has RoPE."""
        return True

    @property
    def local_rope(self) -> RopeParameters | None:
        """RoPE parameters of layers with a window."""
        return self.rope

    @cached_property
    def _kinds(self) -> tuple[AttentionKind, ...]:
        return tuple(self._kind(i) for i in range(self.num_hidden_layers))

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        return self._kinds

    def _kind(self, layer: int) -> AttentionKind:
        assert self.layer_types is not None
        rotated = self.has_rope(layer)
        if self.layer_types[layer] == SLIDING and self.sliding_window:
            return AttentionKind("window" if rotated else "window_nope", self.sliding_window, self._rope(rotated, True))
        return AttentionKind("" if rotated else "nope", None, self._rope(rotated, False))

    def _rope(self, rotated: bool, local: bool) -> RopeParameters | None:
        return (self._local_rope if local else self.rope) if rotated else None

    @cached_property
    def _local_rope(self) -> RopeParameters | None:
        return self.local_rope

    def _check_layers(self, name: str, values: Sequence[Any] | None) -> None:
        if len(values or ()) < self.num_hidden_layers:
            raise MLCError(
                f"{name}: got {len(values or ())} entries; expected {self.num_hidden_layers}", where=["config.json"]
            )


@dataclass(frozen=True, kw_only=True)
class LocalRopeConfig(LayerTypesConfig):
    """rope_local_base_freq, rope_local_scaling: RoPE theta and scaling in layers with a window."""

    rope_local_base_freq: float = 10000.0
    rope_local_scaling: Mapping[str, Any] | None = None

    @property
    def local_rope(self) -> RopeParameters | None:
        return RopeParameters.from_hf(
            self.local_rotary_dim, self.rope_local_base_freq, self.rope_local_scaling, self.context_window_size
        )

    @property
    def local_rotary_dim(self) -> int:
        """Rotated elements of a head in layers with a window."""
        return self.rotary_dim


@dataclass(frozen=True, kw_only=True)
class PartialLocalRopeConfig(LocalRopeConfig):
    """partial_rotary_factor, local_partial_rotary_factor: the rotated fraction of a head in full-attention layers, and
    in layers with a window.
    """

    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # a field here, a class constant of the base
    local_partial_rotary_factor: float = 1.0

    @property
    def local_rotary_dim(self) -> int:
        return int(self.head_dim * self.local_partial_rotary_factor)
