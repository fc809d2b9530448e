"""CWM (Code World Model): Llama with a sliding window in three of four layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names

PATTERN = 4
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 16.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True, kw_only=True)
class CwmConfig(LayerTypesConfig):
    model_type: ClassVar[str] = "cwm"
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    rope_scaling: Mapping[str, Any] | None = field(default_factory=LLAMA3.copy)
    hidden_act: str = "silu"
    mlp_bias: bool = False
    sliding_window: int | None = 8192  # type: ignore[misc]  # a class constant of DecoderConfig
    context_window_size: int = 131072

    def default_layer_types(self) -> tuple[str, ...]:
        return tuple(SLIDING if i % PATTERN else FULL for i in range(self.num_hidden_layers))


def model(c: CwmConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    return pre_norm_model(c, norm, lambda: attention(c), lambda: gated_mlp(c, c.hidden_act, c.mlp_bias))


TINY = CwmConfig(**tiny.SIZES, sliding_window=21)
ARCHITECTURE = Architecture("cwm", CwmConfig, model, llama_names, tiny=TINY)
