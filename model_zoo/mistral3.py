"""Mistral Small 3.1 and 3.2, Ministral 3, Devstral: Mistral or Ministral 3, and Pixtral's tower for images.

Squares of patches are joined and projected. Each row of an image's tokens ends with a text token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_errors import UnsupportedError
from model_zoo import ministral3, pixtral, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.config_forms import text_part
from model_zoo.ministral3 import SCALING, Ministral3Config
from model_zoo.pixtral import PixtralConfig
from model_zoo.transformer import activation_of
from model_zoo.vision import MAX_IMAGE_TOKENS, PROJECTOR, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names

TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
    "ministral3": {},
}
"""model_type of text_config -> Hugging Face's defaults for keys that it leaves out, if not Ministral 3's."""
ROW_ENDS = ("[IMG_BREAK]", "[IMG_END]")


@dataclass(frozen=True, kw_only=True)
class Mistral3Config(ImageFields, Ministral3Config):
    """spatial_merge_size: patches per side of the square that becomes one token."""

    model_type: ClassVar[str] = "mistral3"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"image_token_id": ("image_token_index",)}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"vision_feature_layer": (-1,)}
    image_token_id: int = 10
    projector_hidden_act: str = "gelu"
    multimodal_projector_bias: bool = False
    spatial_merge_size: int = 2

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        text = raw.get("text_config")
        kind = text.get("model_type", "mistral") if isinstance(text, Mapping) else "ministral3"
        if kind not in TEXT_DEFAULTS:
            raise UnsupportedError(
                f"text_config: got model_type {str(kind)[:80]!r}; mistral3 models have {' or '.join(TEXT_DEFAULTS)}",
                where=["config.json"],
            )
        tied = {key: raw[key] for key in ("tie_word_embeddings",) if key in raw}
        return super().from_hf({**TEXT_DEFAULTS[kind], **text_part(raw, ()), **tied})

    @cached_property
    def vision(self) -> PixtralConfig | None:  # type: ignore[override]
        return None if self.vision_config is None else PixtralConfig.from_hf(self.vision_config)

    @property
    def images(self) -> ImageInput | None:
        if self.vision is None:
            return None
        shape, token = (-1, self.spatial_merge_size**2, self.vision.patch_elements), self.image_token_id
        return ImageInput(shape, MAX_IMAGE_TOKENS, token, token, (token,), row_ends=ROW_ENDS)


class Projector(nn.Module):
    """Normalizes patches, joins those of each token and projects them, [1, T, M, E] -> [1, T, D]."""

    def __init__(self, c: Mistral3Config, size: int):
        self.norm = nn.RMSNorm(size, c.rms_norm_eps)
        self.merging_layer = nn.Linear(size * c.spatial_merge_size**2, size, bias=False)
        self.linear_1 = nn.Linear(size, c.hidden_size, bias=c.multimodal_projector_bias)
        self.activation = activation_of(c.projector_hidden_act)
        self.linear_2 = nn.Linear(c.hidden_size, c.hidden_size, bias=c.multimodal_projector_bias)

    def forward(self, x: Tensor) -> Tensor:
        joined = op.reshape(self.norm(x), (1, x.shape[1], self.merging_layer.in_features))
        return self.linear_2(self.activation(self.linear_1(self.merging_layer(joined))))


def model(c: Mistral3Config) -> VisionLanguageModel:
    text = ministral3.model(c)
    if c.vision is None:
        return VisionLanguageModel(text, None, None)
    return VisionLanguageModel(text, pixtral.tower(c.vision), Projector(c, c.vision.hidden_size))


def weights(c: Mistral3Config) -> WeightMap:
    """The inputs of the stored merging layer are ordered by element, then by patch of a token."""
    m = vision.within_parts(llama_names(c))
    if c.vision is None:
        vision.without_tower(m)
        return m
    pixtral.tower_weights(m, c.vision)
    merging, view = f"{PROJECTOR}.merging_layer", (c.vision.hidden_size, c.spatial_merge_size**2)
    m.permute(merging, f"{PROJECTOR}.patch_merger.merging_layer", view=view, order=(1, 0), axis=1)
    return m


TOWER: Mapping[str, Any] = {
    "model_type": pixtral.PIXTRAL,
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_size": 7,
}
TINY = Mistral3Config(**tiny.SIZES, rope_scaling=SCALING, vision_config=TOWER, image_token_id=7)
ARCHITECTURE = Architecture(
    "mistral3",
    Mistral3Config,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
