"""Idefics3 and SmolVLM: Llama, and SigLIP with squares of patches joined and projected (Laurençon et al. 2024).

A large image is also shown in tiles, each encoded like a separate image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_errors import MLCError
from model_zoo import tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.llama import LlamaConfig, LlamaForCausalLM
from model_zoo.vision import LANGUAGE, PROJECTOR, ImageFields, ImageInput, VisionConfig, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names

AROUND, WHOLE, TILE = "<fake_token_around_image>", "<global-img>", "<row_{row}_col_{column}>"


@dataclass(frozen=True, kw_only=True)
class Idefics3Config(ImageFields, LlamaConfig):
    """scale_factor: patches per side of the square that becomes one token."""

    model_type: ClassVar[str] = "idefics3"
    ignored: ClassVar[frozenset[str]] = frozenset({"neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor"})
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    rms_norm_eps: float = 1e-5
    image_token_id: int = 128257
    scale_factor: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tower.side % self.scale_factor:
            expected = f"a divisor of {self.tower.side}, the patches in a row of an image"
            raise MLCError(f"scale_factor: got {self.scale_factor}; expected {expected}", where=["config.json"])

    @property
    def images(self) -> ImageInput:
        c, token = self.tower, self.image_token_id
        tokens = (c.side // self.scale_factor) ** 2
        return ImageInput(c.shape, tokens, token, token, (AROUND, WHOLE, token, AROUND), tile=(AROUND, TILE, token))


class SmolVLMConfig(Idefics3Config):
    model_type: ClassVar[str] = "smolvlm"


class Projector(nn.Module):
    """Joins squares of patches and projects them, [1, S, E] -> [1, T, D]."""

    def __init__(self, c: Idefics3Config, tower: VisionConfig):
        self.factor, self.rows = c.scale_factor, tower.side
        self.proj = nn.Linear(tower.hidden_size * c.scale_factor**2, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(vision.joined_patches(x, self.rows, self.factor))


def model(c: Idefics3Config) -> VisionLanguageModel:
    return VisionLanguageModel(LlamaForCausalLM(c), vision.tower(c.tower, post_norm=True), Projector(c, c.tower))


def weights(c: Idefics3Config) -> WeightMap:
    m = vision.weights(llama_names(c), c.tower)
    m.rename(f"{PROJECTOR}.proj", f"{PROJECTOR}.modality_projection.proj")
    m.other_prefix(f"{LANGUAGE}.model.", "model.text_model.")
    m.other_prefix(f"{vision.TOWER}.", "model.vision_model.")
    m.other_prefix(f"{PROJECTOR}.", "model.connector.")
    return m


TOWER = {
    "model_type": "idefics3_vision",
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}
TINY = {**tiny.SIZES, "vision_config": TOWER, "image_token_id": 7}
ARCHITECTURE, SMOLVLM = (
    Architecture(
        config.model_type,
        config,
        model,
        weights,
        tiny=config(**TINY),
        entry_points=vision.entry_points,
        images=lambda c: c.images,
        quantization=vision.QUANTIZATION,
    )
    for config in (Idefics3Config, SmolVLMConfig)
)
