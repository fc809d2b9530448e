"""Configuration base and weight paths of models with gated delta nets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlc_compiler.nn.delta_net import DeltaNetSizes
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds, RecurrentKind
from model_zoo.config_check import invalid
from model_zoo.hybrid import FULL, HybridConfig
from model_zoo.weight_rules import LAYER

LINEAR = "linear_attention"


@dataclass(frozen=True, kw_only=True)
class DeltaNetConfig(HybridConfig, DecoderConfig):
    """layer_types: LINEAR or FULL for each layer. linear_*: sizes of delta nets, see ``DeltaNetSizes``."""

    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        heads = self.linear_num_value_heads
        if heads % self.linear_num_key_heads:
            raise invalid(
                "linear_num_key_heads", self.linear_num_key_heads, f"a divisor of linear_num_value_heads, {heads}"
            )

    @property
    def delta_net(self) -> DeltaNetSizes:
        heads = (self.linear_num_key_heads, self.linear_num_value_heads)
        return DeltaNetSizes(*heads, self.linear_key_head_dim, self.linear_value_head_dim, self.linear_conv_kernel_dim)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {FULL: (AttentionKind(rope=self.rope),), LINEAR: (RecurrentKind(self.delta_net.arrays),)}


def delta_nets(c: DeltaNetConfig) -> list[tuple[str, str]]:
    """(path in the model, path in checkpoints) of each delta net."""
    layers = [LAYER.format(i) for i, kind in enumerate(c.types) if kind == LINEAR]
    return [(f"{layer}.self_attn", f"{layer}.linear_attn") for layer in layers]
