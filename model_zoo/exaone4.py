"""EXAONE 4: norms after attention and MLP, QK norms, sliding windows; no RoPE in full-attention layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, PostNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Exaone4Config(LayerTypesConfig):
    """sliding_window_pattern: period of full-attention layers, as a number or a string of that length such as LLLG.

    A model without a window has RoPE in all layers.
    """

    model_type: ClassVar[str] = "exaone4"
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    sliding_window_pattern: str | int | None = 4

    @property
    def pattern(self) -> int | None:
        pattern = self.sliding_window_pattern
        return len(pattern) if isinstance(pattern, str) else pattern

    def has_rope(self, layer: int) -> bool:
        assert self.layer_types is not None
        return not self.sliding_window or self.layer_types[layer] == SLIDING


def model(c: Exaone4Config) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer() -> nn.Module:
        attend = attention(c, q_norm=norm(c.head_dim), k_norm=norm(c.head_dim))
        return PostNormLayer(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_act))

    return CausalLM(c, [layer() for _ in range(c.num_hidden_layers)], norm(c.hidden_size))


TINY = Exaone4Config(**tiny.SIZES, sliding_window=21, sliding_window_pattern=2)
ARCHITECTURE = Architecture("exaone4", Exaone4Config, model, llama_names, tiny=TINY)
