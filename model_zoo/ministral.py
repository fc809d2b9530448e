"""Ministral 8B: Mistral with a sliding window in some layers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class MinistralConfig(LayerTypesConfig):
    model_type: ClassVar[str] = "ministral"
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    context_window_size: int = 131072

    def default_layer_types(self) -> tuple[str, ...]:
        return (SLIDING if self.sliding_window else FULL,) * self.num_hidden_layers


def model(c: MinistralConfig) -> CausalLM:
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), lambda: attention(c), lambda: gated_mlp(c, c.hidden_act))


TINY = MinistralConfig(**tiny.SIZES, sliding_window=21, layer_types=(FULL, SLIDING))
ARCHITECTURE = Architecture("ministral", MinistralConfig, model, llama_names, tiny=TINY)
