"""Llama 4 Scout and Maverick with images: an image is shown in tiles, and then as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from model_zoo import llama4, vision
from model_zoo.architecture import Architecture
from model_zoo.llama4 import Llama4TextConfig
from model_zoo.llama4_vision import MERGE, Llama4VisionConfig, Projector, RotatedTransformer, image_weights
from model_zoo.vision import ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions

START, WHOLE, END = "<|image_start|>", "<|image|>", "<|image_end|>"
SEPARATORS = ("<|tile_x_separator|>", "<|tile_y_separator|>", "")


@dataclass(frozen=True, kw_only=True)
class Llama4Config(ImageFields, Llama4TextConfig):
    """image_placeholder_id: the token ``<|image|>``, which chat templates write for an image."""

    model_type: ClassVar[str] = "llama4"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Llama4TextConfig.names,
        "image_token_id": ("image_token_index",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"boi_token_index", "eoi_token_index"})
    image_token_id: int = 200092
    image_placeholder_id: int = 200090

    @cached_property
    def vision(self) -> Llama4VisionConfig | None:  # type: ignore[override]
        return None if self.vision_config is None else Llama4VisionConfig.from_hf(self.vision_config)

    @property
    def images(self) -> ImageInput | None:
        if self.vision is None:
            return None
        c, token = self.vision, self.image_token_id
        return ImageInput(
            (1, c.num_channels, c.image_size, c.image_size),
            (c.side // MERGE) ** 2,
            token,
            self.image_placeholder_id,
            (WHOLE, token, END),
            tile=(token,),
            separators=SEPARATORS,
            opening=START,
        )


def model(c: Llama4Config) -> VisionLanguageModel:
    text = llama4.model(c)
    if c.vision is None:
        return VisionLanguageModel(text, None, None)
    return VisionLanguageModel(text, RotatedTransformer(c.vision), Projector(c.vision, c.hidden_size))


def weights(c: Llama4Config) -> WeightMap:
    m = vision.within_parts(llama4.weights(c))
    if c.vision is None:
        m.unused("vision_model.*")
        vision.without_tower(m)
    else:
        image_weights(m, c.vision)
    return m


TOWER: Mapping[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
    **dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), 52),
}
ARCHITECTURE = Architecture(
    "llama4",
    Llama4Config,
    model,
    weights,
    tiny=Llama4Config(**llama4.SIZES, vision_config=TOWER, image_token_id=7, image_placeholder_id=8),
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=Exceptions(vision.QUANTIZATION.final_fc, (*llama4.KEPT.kept, *vision.QUANTIZATION.kept)),
)
