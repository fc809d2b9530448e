"""Phi-3-vision and 3.5: Phi-3, and CLIP with squares of patches joined and projected (Abdin et al. 2024).

An image is shown in tiles and then as a whole. The tokens of tiles are ordered by the rows of the image; a learned
vector ends each row, and another one precedes the tokens of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from model_zoo import phi3, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.config_check import invalid
from model_zoo.config_keys import refuse_unsupported
from model_zoo.phi3 import Phi3Config
from model_zoo.transformer import activation_of
from model_zoo.vision import CLIP, PROJECTOR, TOWER, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap

LARGE_CLIP_NAME = "openai/clip-vit-large-patch14-336"
LARGE_CLIP: Mapping[str, Any] = {
    "model_type": CLIP,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
"""The tower of that name, which all published models use."""
EMBD_LAYER: Mapping[str, Any] = {
    "embedding_cls": "image",
    "projection_cls": "mlp",
    "hd_transform_order": "sub_glb",
    "use_hd_transform": True,
    "with_learnable_separator": True,
}
SEPARATORS = 2
"""Results of ``image_embed`` after those of the patches: the vector after a row, and that before the whole image."""


@dataclass(frozen=True, kw_only=True)
class Phi3VConfig(ImageFields, Phi3Config):
    """img_processor, embd_layer: entries of config.json; each key has one supported value. vision_config: sizes of the
    tower, which config.json only names.

    image_token_id: the id of ``<|image|>``. bos_token_id: the token that also precedes the text after an image, or
    None.
    """

    model_type: ClassVar[str] = "phi3_v"
    merge: ClassVar[int] = 2
    vision_config: Mapping[str, Any] | None = field(default_factory=lambda: dict(LARGE_CLIP))
    image_token_id: int = 32044
    bos_token_id: int | None = None
    img_processor: Mapping[str, Any] | None = None
    embd_layer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tower.side % self.merge:
            raise invalid("vision_config: image_size", self.tower.image_size, "an even number of patches in a row")
        for given, supported in ((self.img_processor, self._img_processor), (self.embd_layer, EMBD_LAYER)):
            refuse_unsupported(self.model_type, given or {}, {key: (value,) for key, value in supported.items()})

    @property
    def _img_processor(self) -> Mapping[str, Any]:
        return {
            "name": CLIP,
            "model_name": LARGE_CLIP_NAME,
            "image_dim_out": self.tower.hidden_size,
            "num_img_tokens": self.row_tokens**2,
            "layer_idx": -2,
            "type_feature": "patch",
        }

    @property
    def row_tokens(self) -> int:
        """Tokens of a row of a tile."""
        return self.tower.side // self.merge

    @property
    def images(self) -> ImageInput:
        token, row = self.image_token_id, self.row_tokens
        begin = () if self.bos_token_id is None else (self.bos_token_id,)
        return ImageInput(self.tower.shape, row * row + SEPARATORS, token, token, (token, *begin), row_tokens=row)


class Projector(nn.Module):
    """Projects squares of patches, [1, 1 + S, E] -> [1, S / 4 + 2, D], and appends the two separators."""

    def __init__(self, c: Phi3VConfig):
        self.side, self.merge = c.tower.side, c.merge
        size = c.tower.hidden_size * c.merge**2
        self.row_end, self.before_whole = Parameter((1, size)), Parameter((1, size))
        self.linear_1 = nn.Linear(size, c.hidden_size)
        self.activation = activation_of("gelu")
        self.linear_2 = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        _, patches = op.split(x, [1], axis=1)
        squares = vision.joined_patches(patches, self.side, self.merge)
        separators = [op.reshape(s, (1, *s.shape)).astype(x.dtype) for s in (self.row_end, self.before_whole)]
        return self.linear_2(self.activation(self.linear_1(op.concat([squares, *separators], dim=1))))


def model(c: Phi3VConfig) -> VisionLanguageModel:
    return VisionLanguageModel(phi3.model(c), vision.tower(c.tower, c.tower.num_hidden_layers - 1), Projector(c))


def weights(c: Phi3VConfig) -> WeightMap:
    m = vision.weights(phi3.weights(c), c.tower, c.tower.num_hidden_layers - 1)
    images = "model.vision_embed_tokens"
    m.other_prefix(f"{TOWER}.", f"{images}.img_processor.vision_model.")
    m.rename(f"{PROJECTOR}.linear_1", f"{images}.img_projection.0")
    m.rename(f"{PROJECTOR}.linear_2", f"{images}.img_projection.2")
    m.flatten(f"{PROJECTOR}.row_end", f"{images}.sub_GN")
    m.flatten(f"{PROJECTOR}.before_whole", f"{images}.glb_GN")
    m.tied(f"{images}.wte.weight", to="model.embed_tokens.weight")
    return m


SMALL_TOWER = {
    "model_type": CLIP,
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}
TINY = Phi3VConfig(**tiny.SIZES, vision_config=SMALL_TOWER, image_token_id=7)
ARCHITECTURE = Architecture(
    "phi3_v",
    Phi3VConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
