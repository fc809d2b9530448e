"""Granite with sliding windows: learned attention sinks, and RoPE with a theta for each layer, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from model_zoo import granite, tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind
from model_zoo.config_check import invalid, is_finite
from model_zoo.granite import GraniteConfig
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.rope import RopeParameters
from model_zoo.weight_rules import llama_names

PATTERN = 4


@dataclass(frozen=True, kw_only=True)
class GraniteSWAConfig(LayerTypesConfig, GraniteConfig):
    """layer_rope_theta: RoPE theta of each layer, 0 for no RoPE; by default, ``rope_theta`` for all layers."""

    model_type: ClassVar[str] = "granite_swa"
    sinks: ClassVar[bool] = True

    rms_norm_eps: float = 1e-5
    sliding_window: int | None = 128  # type: ignore[misc]  # a class constant of DecoderConfig
    tie_word_embeddings: bool = True
    layer_rope_theta: Sequence[float] | None = None

    def __post_init__(self) -> None:
        thetas = self.layer_rope_theta
        if thetas is not None:
            if len(thetas) < self.num_hidden_layers or not all(is_finite(theta) and theta >= 0 for theta in thetas):
                raise invalid("layer_rope_theta", thetas, "a number from 0 for each layer")
            object.__setattr__(self, "layer_rope_theta", tuple(thetas))
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        return tuple(SLIDING if i % PATTERN else FULL for i in range(self.num_hidden_layers))

    @cached_property
    def _rotations(self) -> dict[float, RopeParameters]:
        """RoPE parameters by theta, in the order of layers."""
        thetas = self.layer_rope_theta or (self.rope_theta,)
        return {
            theta: RopeParameters.from_hf(self.rotary_dim, theta, self.rope_scaling, self.context_window_size)
            for theta in thetas
            if theta
        }

    def _kind(self, layer: int) -> AttentionKind:
        theta = self.layer_rope_theta[layer] if self.layer_rope_theta else self.rope_theta
        window = self.sliding_window if (self.layer_types or ())[layer] == SLIDING else None
        place = list(self._rotations).index(theta) if theta else None
        rotation = "nope" if place is None else f"rope{place}" if place else ""
        name = "_".join(part for part in ("window" if window else "", rotation) if part)
        return AttentionKind(name, window, self._rotations.get(theta))


TINY = GraniteSWAConfig(**tiny.SIZES, sliding_window=21, embedding_multiplier=12.0, **granite.MULTIPLIERS)
ARCHITECTURE = Architecture("granite_swa", GraniteSWAConfig, granite.model, llama_names, tiny=TINY)
