"""Gemma 4 with images: a token of an image is the mean of 3 x 3 patches, with the padding token's per-layer inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import KVCacheConfig
from mlc_compiler.nn.norms import UnweightedRMSNorm
from mlc_compiler.nn.states import State
from mlc_errors import UnsupportedError
from model_zoo import gemma4, gemma4_vision, vision
from model_zoo.architecture import Architecture
from model_zoo.config_forms import text_part
from model_zoo.gemma4_config import Gemma4TextConfig
from model_zoo.gemma4_vision import Gemma4VisionConfig, PooledPatchTransformer
from model_zoo.per_layer_inputs import PerLayerCausalLM
from model_zoo.vision import PROJECTOR, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions

SOUND_KEYS = frozenset("audio_config video_token_id audio_token_id boa_token_id eoa_token_id eoa_token_index".split())
QUANTIZATION = Exceptions(vision.QUANTIZATION.final_fc, (*gemma4.KEPT.kept, *vision.QUANTIZATION.kept))


@dataclass(frozen=True, kw_only=True)
class Gemma4Config(ImageFields, Gemma4TextConfig):
    """boi_token_id, eoi_token_id: tokens before and after those of an image. vision_soft_tokens_per_image: the maximum.

    use_bidirectional_attention: "vision" if tokens of an image attend to all of it in layers with a window. Such an
    image has at most as many tokens as a window.
    """

    model_type: ClassVar[str] = "gemma4"
    image_token_id: int = 258880
    boi_token_id: int = 255999
    eoi_token_id: int = 258882
    pad_token_id: int | None = 0
    vision_soft_tokens_per_image: int = 280
    use_bidirectional_attention: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (got := self.use_bidirectional_attention) not in (None, "vision"):
            raise UnsupportedError(f"use_bidirectional_attention: got {got!r}; expected none or 'vision'")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf(text_part(raw, SOUND_KEYS))

    @cached_property
    def vision(self) -> Gemma4VisionConfig | None:  # type: ignore[override]
        return None if self.vision_config is None else Gemma4VisionConfig.from_hf(self.vision_config)

    def shows_whole_images(self, state: State) -> bool:
        return isinstance(state, KVCacheConfig) and state.sliding_window is not None

    @property
    def images(self) -> ImageInput | None:
        if self.vision is None:
            return None
        shape, token = (-1, self.vision.pooling_kernel_size**2, self.vision.patch_elements), self.image_token_id
        expansion, sees_itself = (self.boi_token_id, token, self.eoi_token_id), bool(self.use_bidirectional_attention)
        tokens = self.vision_soft_tokens_per_image
        if sees_itself and self.sliding_window:
            tokens = min(tokens, self.sliding_window)
        return ImageInput(shape, tokens, token, token, expansion, sees_itself)


class Projector(nn.Module):
    """Normalizes and projects tokens, [1, T, E] -> [1, T, D]; divides by ``sqrt(D)``, by which the decoder scales."""

    def __init__(self, c: Gemma4Config, tower: Gemma4VisionConfig):
        self.norm = UnweightedRMSNorm(tower.hidden_size, tower.rms_norm_eps)
        self.embedding_projection = nn.Linear(tower.hidden_size, c.hidden_size, bias=False)
        self.scale = 1.0 / math.sqrt(c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding_projection(self.norm(x)) * self.scale


class Gemma4WithImages(VisionLanguageModel):
    """Embeddings of image tokens include per-layer inputs if those of text tokens do."""

    def __init__(self, c: Gemma4Config, language_model: nn.Module):
        tower = PooledPatchTransformer(c.vision) if c.vision else None
        super().__init__(language_model, tower, Projector(c, c.vision) if c.vision else None)
        self.pad_token_id = c.pad_token_id or 0

    def image_embed(self, *inputs: Tensor) -> Tensor:
        x = super().image_embed(*inputs)
        if not isinstance(self.language_model, PerLayerCausalLM):
            return x
        rows = self.language_model.per_layer.embed(op.full((x.shape[0],), self.pad_token_id, "int32"))
        return op.concat([x, rows.astype(x.dtype)], dim=1)


def model(c: Gemma4Config) -> Gemma4WithImages:
    return Gemma4WithImages(c, gemma4.model(c))


def weights(c: Gemma4Config) -> WeightMap:
    m = vision.within_parts(gemma4.weights(c))
    m.other_prefix(f"{PROJECTOR}.", "model.embed_vision.")
    for part in ("audio_tower", "embed_audio"):
        m.unused(f"model.{part}.*")
    if c.vision is None:
        vision.without_tower(m)
    else:
        gemma4_vision.tower_weights(m, c.vision)
    return m


TINY = Gemma4Config(**gemma4.SIZES, vision_config=gemma4_vision.SMALL, image_token_id=7, boi_token_id=8, eoi_token_id=9)
ARCHITECTURE = Architecture(
    "gemma4",
    Gemma4Config,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=QUANTIZATION,
)
