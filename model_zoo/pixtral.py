"""Pixtral's vision transformer for images of any size, with 2D RoPE (Agrawal et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.feed_forward import GatedMLP
from mlc_compiler.nn.vision import PatchTransformer, VisionLayer
from mlc_errors import MLCError, UnsupportedError
from model_zoo.transformer import activation_of
from model_zoo.vision import TOWER, vision_values
from model_zoo.weight_map import WeightMap

PIXTRAL = "pixtral"
EPSILON = 1e-5
IGNORED = frozenset({"model_type", "vocab_size", "image_size", "rope_parameters"})
"""``image_size`` is the size of the largest image in training."""


@dataclass(frozen=True, kw_only=True)
class PixtralConfig:
    """Field names are Hugging Face's keys. patch_size: in pixels. head_dim: by default hidden_size / heads."""

    hidden_size: int = 1024
    intermediate_size: int = 4096
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_channels: int = 3
    patch_size: int = 16
    hidden_act: str = "gelu"
    head_dim: int | None = None
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        size = self.hidden_size // self.num_attention_heads
        if self.hidden_size % self.num_attention_heads or self.head_dim not in (None, size) or size % 4:
            raise MLCError(
                f"vision_config: got {self.num_attention_heads} heads of {self.head_dim or size} elements; expected a "
                f"multiple of 4 elements, hidden_size, {self.hidden_size}, together",
                where=["config.json"],
            )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the vision_config of config.json. Raises MLCError and UnsupportedError as ``BaseConfig.from_hf``."""
        kind, rope = raw.get("model_type", PIXTRAL), raw.get("rope_parameters") or {}
        if kind != PIXTRAL:
            raise UnsupportedError(
                f"vision_config: got model_type {str(kind)[:80]!r}; expected {PIXTRAL}", where=["config.json"]
            )
        theta = {"rope_theta": rope["rope_theta"]} if isinstance(rope, Mapping) and "rope_theta" in rope else {}
        return cls(**vision_values(cls, PIXTRAL, {**raw, **theta}, IGNORED))

    @property
    def patch_elements(self) -> int:
        return self.num_channels * self.patch_size**2

    @property
    def inv_freq(self) -> np.ndarray:
        """Inverse frequencies, float32 [2, R/4]: even elements of those for R belong to rows, odd ones to columns."""
        size = self.hidden_size // self.num_attention_heads
        all_of_them = 1.0 / self.rope_theta ** (np.arange(0, size, 2, dtype=np.float32) / size)
        return np.stack([all_of_them[0::2], all_of_them[1::2]])


class NormedPatch(nn.Module):
    """Projects and normalizes patches, [1, S, K] -> [1, S, E]."""

    def __init__(self, c: PixtralConfig):
        self.patch_conv = nn.Linear(c.patch_elements, c.hidden_size, bias=False)
        self.ln_pre = nn.RMSNorm(c.hidden_size, EPSILON)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.ln_pre(self.patch_conv(pixels))


def tower(c: PixtralConfig) -> PatchTransformer:
    def norm() -> nn.Module:
        return nn.RMSNorm(c.hidden_size, EPSILON)

    def layer() -> VisionLayer:
        mlp = GatedMLP(c.hidden_size, c.intermediate_size, activation_of(c.hidden_act))
        return VisionLayer(c.hidden_size, c.num_attention_heads, mlp, norm, bias=False)

    return PatchTransformer(NormedPatch(c), [layer() for _ in range(c.num_hidden_layers)], c.inv_freq)


NAMES = {
    "layer_norm1": ["attention_norm"],
    "layer_norm2": ["ffn_norm"],
    "self_attn.qkv_proj": [f"attention.{name}_proj" for name in "qkv"],
    "self_attn.out_proj": ["attention.o_proj"],
    "mlp.gate_up_proj": ["feed_forward.gate_proj", "feed_forward.up_proj"],
    "mlp.down_proj": ["feed_forward.down_proj"],
}


def tower_weights(m: WeightMap, c: PixtralConfig) -> None:
    m.flatten(f"{TOWER}.patch_embed.patch_conv", f"{TOWER}.patch_conv")
    m.rename(f"{TOWER}.patch_embed.ln_pre", f"{TOWER}.ln_pre")
    for layer in range(c.num_hidden_layers):
        for name, sources in NAMES.items():
            theirs = [f"{TOWER}.transformer.layers.{layer}.{source}" for source in sources]
            m.concat(f"{TOWER}.layers.{layer}.{name}", theirs)
