"""Qwen2.5-VL: Qwen2-VL with windowed attention, RMS norms and gated MLPs in the tower.

Bai et al. 2025, "Qwen2.5-VL Technical Report".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import GatedMLP
from mlc_compiler.nn.vision import PatchTransformer, VisionLayer
from mlc_errors import MLCError
from model_zoo import qwen2, qwen2_vl, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.qwen2_vl import EPSILON
from model_zoo.transformer import activation_of
from model_zoo.vision import VisionLanguageModel, vision_values
from model_zoo.weight_map import WeightMap

IGNORED = ("in_chans", "spatial_patch_size", "rope_parameters", "tokens_per_second")


@dataclass(frozen=True, kw_only=True)
class TowerConfig(qwen2_vl.TowerConfig):
    """hidden_size: that of the tower. window_size: in pixels. fullatt_block_indexes: layers without windows."""

    hidden_size: int = 1280
    out_hidden_size: int = 3584
    intermediate_size: int = 3420
    hidden_act: str = "silu"
    window_size: int = 112
    fullatt_block_indexes: Sequence[int] = (7, 15, 23, 31)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        values = vision_values(cls, "qwen2_5_vl", raw, IGNORED)
        if values.get("window_size", 112) < values.get("patch_size", 14) * values.get("spatial_merge_size", 2):
            raise MLCError("vision_config: window_size: expected at least the pixels of a token", where=["config.json"])
        return cls(**values)

    @property
    def width(self) -> int:
        return self.hidden_size

    @property
    def output_size(self) -> int:
        return self.out_hidden_size

    @property
    def window(self) -> int:
        """Rows and columns of patches in a window, a multiple of those of a token."""
        return self.window_size // self.spatial_merge_size // self.patch_size * self.spatial_merge_size


@dataclass(frozen=True, kw_only=True)
class Qwen25VLConfig(qwen2_vl.Qwen2VLConfig):
    model_type: ClassVar[str] = "qwen2_5_vl"
    tower_config: ClassVar[type[Any]] = TowerConfig


def tower(c: TowerConfig) -> PatchTransformer:
    def layer() -> VisionLayer:
        mlp = GatedMLP(c.width, c.intermediate_size, activation_of(c.hidden_act), bias=True)
        return VisionLayer(c.width, c.num_heads, mlp, lambda: nn.RMSNorm(c.width, EPSILON))

    patch = nn.Linear(c.patch_elements, c.width, bias=False)
    layers = [layer() for _ in range(c.depth)]
    return PatchTransformer(patch, layers, c.inv_freq, c.window, c.fullatt_block_indexes)


def model(c: Qwen25VLConfig) -> VisionLanguageModel:
    merger = qwen2_vl.Merger(c.tower, nn.RMSNorm(c.tower.width, EPSILON))
    return VisionLanguageModel(qwen2.Qwen2ForCausalLM(c), tower(c.tower), merger)


def weights(c: Qwen25VLConfig) -> WeightMap:
    return qwen2_vl.weights(c, {"gate_up_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]})


SMALL = {
    "depth": 2,
    "hidden_size": 48,
    "intermediate_size": 60,
    "out_hidden_size": 100,
    "num_heads": 4,
    "patch_size": 7,
    "window_size": 28,
    "fullatt_block_indexes": [1],
}
TINY = Qwen25VLConfig(**tiny.SIZES, vision_config=SMALL, image_token_id=7, mrope_section=(3, 4, 3))
ARCHITECTURE = Architecture(
    "qwen2_5_vl",
    Qwen25VLConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
