"""SigLIP 2's vision transformer for images of any size, with a resampled grid of positions (Tschannen et al. 2025)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import MLP
from mlc_compiler.nn.vision import PatchTransformer, ResampledPositions, VisionLayer
from mlc_errors import MLCError, UnsupportedError
from model_zoo.transformer import activation_of
from model_zoo.vision import HARMLESS, TOWER, encoder_layers, vision_values
from model_zoo.weight_map import WeightMap

SIGLIP2 = "siglip2_vision_model"


@dataclass(frozen=True, kw_only=True)
class Siglip2Config:
    """Field names are Hugging Face's keys. patch_size: in pixels. num_patches: learned positions of a square grid."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: int = 3
    patch_size: int = 16
    num_patches: int = 256
    hidden_act: str = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        heads, side = self.num_attention_heads, math.isqrt(self.num_patches)
        if self.hidden_size % heads:
            raise _wrong("hidden_size", self.hidden_size, f"a multiple of the {heads} heads")
        if side**2 != self.num_patches:
            raise _wrong("num_patches", self.num_patches, f"a square, such as {side**2}")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the vision_config of config.json. Raises MLCError and UnsupportedError as ``BaseConfig.from_hf``."""
        kind = raw.get("model_type", SIGLIP2)
        if kind != SIGLIP2:
            raise UnsupportedError(
                f"vision_config: got model_type {str(kind)[:80]!r}; expected {SIGLIP2}", where=["config.json"]
            )
        return cls(**vision_values(cls, SIGLIP2, raw, HARMLESS | {"model_type"}))

    @property
    def patch_elements(self) -> int:
        return self.num_channels * self.patch_size**2


def _wrong(key: str, value: object, expected: str) -> MLCError:
    return MLCError(f"vision_config: {key}: got {value!r}; expected {expected}", where=["config.json"])


def tower(c: Siglip2Config) -> PatchTransformer:
    def norm() -> nn.Module:
        return nn.LayerNorm(c.hidden_size, c.layer_norm_eps)

    def layer() -> VisionLayer:
        mlp = MLP(c.hidden_size, c.intermediate_size, activation_of(c.hidden_act), bias=True)
        return VisionLayer(c.hidden_size, c.num_attention_heads, mlp, norm)

    patch = nn.Linear(c.patch_elements, c.hidden_size)
    positions = ResampledPositions(math.isqrt(c.num_patches), c.hidden_size)
    layers = [layer() for _ in range(c.num_hidden_layers)]
    return PatchTransformer(patch, layers, None, pos_embed=positions, post_norm=norm())


def tower_weights(m: WeightMap, c: Siglip2Config) -> None:
    """Add the tower's rules. In checkpoints, a patch is ordered by pixel, then by channel."""
    m.other_prefix(f"{TOWER}.", f"{TOWER}.vision_model.")
    patch, embeddings, view = f"{TOWER}.patch_embed", f"{TOWER}.embeddings", (c.patch_size**2, c.num_channels)
    m.permute(f"{patch}.weight", f"{embeddings}.patch_embedding.weight", view=view, order=(1, 0), axis=1)
    m.rename(f"{patch}.bias", f"{embeddings}.patch_embedding.bias")
    m.rename(f"{TOWER}.pos_embed", f"{embeddings}.position_embedding")
    encoder_layers(m, c.num_hidden_layers)
    m.unused(f"{TOWER}.head.*")
