"""LFM2-VL: LFM2, and SigLIP 2 with squares of patches joined and projected.

A large image is shown in tiles, and then as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from model_zoo import lfm2, siglip2, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.hybrid import FULL
from model_zoo.lfm2 import CONV, Lfm2Config
from model_zoo.siglip2 import Siglip2Config
from model_zoo.transformer import activation_of
from model_zoo.vision import MAX_IMAGE_TOKENS, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap

START, END, WHOLE, TILE = "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<|img_row_{row}_col_{column}|>"
PROCESSOR_KEYS = frozenset(
    "do_image_splitting encoder_patch_size max_image_tokens max_num_patches max_pixels_tolerance max_tiles "
    "min_image_tokens min_tiles tile_size".split()
)
"""Keys of image settings, which are read from the image processor's file instead."""


@dataclass(frozen=True, kw_only=True)
class Lfm2VlConfig(ImageFields, Lfm2Config):
    """downsample_factor: patches per side of the square that becomes one token."""

    model_type: ClassVar[str] = "lfm2_vl"
    ignored: ClassVar[frozenset[str]] = Lfm2Config.ignored | PROCESSOR_KEYS
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "vision_feature_layer": (-1,),
        "use_image_special_tokens": (True,),
        "use_thumbnail": (True,),
    }
    image_token_id: int = 396
    downsample_factor: int = 2
    projector_hidden_act: str = "gelu"
    projector_hidden_size: int = 2560
    projector_bias: bool = True
    projector_use_layernorm: bool = True

    @cached_property
    def vision(self) -> Siglip2Config:  # type: ignore[override]
        return Siglip2Config.from_hf(self.vision_config or {})

    @property
    def images(self) -> ImageInput:
        shape, token = (-1, self.downsample_factor**2, self.vision.patch_elements), self.image_token_id
        return ImageInput(
            shape,
            MAX_IMAGE_TOKENS,
            token,
            token,
            (token, END),
            tile=(TILE, token),
            separators=("", "", WHOLE),
            opening=START,
        )


class Projector(nn.Module):
    """Joins the patches of each token and projects them, [1, T, M, E] -> [1, T, D]."""

    def __init__(self, c: Lfm2VlConfig):
        self.joined = c.vision.hidden_size * c.downsample_factor**2
        self.layer_norm = nn.LayerNorm(self.joined) if c.projector_use_layernorm else None
        self.linear_1 = nn.Linear(self.joined, c.projector_hidden_size, c.projector_bias)
        self.activation = activation_of(c.projector_hidden_act)
        self.linear_2 = nn.Linear(c.projector_hidden_size, c.hidden_size, c.projector_bias)

    def forward(self, x: Tensor) -> Tensor:
        x = op.reshape(x, (1, x.shape[1], self.joined))
        x = self.layer_norm(x) if self.layer_norm else x
        return self.linear_2(self.activation(self.linear_1(x)))


def model(c: Lfm2VlConfig) -> VisionLanguageModel:
    return VisionLanguageModel(lfm2.model(c), siglip2.tower(c.vision), Projector(c))


def weights(c: Lfm2VlConfig) -> WeightMap:
    m = vision.within_parts(lfm2.weights(c))
    siglip2.tower_weights(m, c.vision)
    return m


TOWER = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_size": 7,
    "num_patches": 25,
}
TINY = Lfm2VlConfig(
    **tiny.SIZES,
    layer_types=(CONV, FULL),
    block_multiple_of=8,
    projector_hidden_size=52,
    vision_config=TOWER,
    image_token_id=7,
)
ARCHITECTURE = Architecture(
    "lfm2_vl",
    Lfm2VlConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
