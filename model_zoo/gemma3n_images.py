"""Gemma 3n with images: MobileNetV5, of which an image is 256 tokens, and special tokens with embeddings of its size.

Sound, for which checkpoints have a third part, is not implemented; its tensors are not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.norms import UnweightedRMSNorm
from mlc_errors import MLCError
from model_zoo import gemma3n, mobilenetv5, vision
from model_zoo.architecture import Architecture
from model_zoo.config_forms import text_part
from model_zoo.gemma3n import Gemma3nForCausalLM
from model_zoo.gemma3n_config import Gemma3nTextConfig
from model_zoo.mobilenetv5 import MobileNetV5, MobileNetV5Config
from model_zoo.vision import LANGUAGE, PROJECTOR, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions

SOUND_KEYS = frozenset("audio_config audio_token_id boa_token_id eoa_token_id audio_soft_tokens_per_image".split())
QUANTIZATION = Exceptions(vision.QUANTIZATION.final_fc, (*vision.QUANTIZATION.kept, f"{LANGUAGE}.special_embeddings"))


@dataclass(frozen=True, kw_only=True)
class Gemma3nConfig(ImageFields, Gemma3nTextConfig):
    """boi_token_id, eoi_token_id: the tokens before and after an image's. vision_soft_tokens_per_image: a square."""

    model_type: ClassVar[str] = "gemma3n"
    image_token_id: int = 262145
    boi_token_id: int = 255999
    eoi_token_id: int = 262144
    vision_soft_tokens_per_image: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision and self.vision.token_side**2 != self.vision_soft_tokens_per_image:
            raise MLCError(
                f"vision_soft_tokens_per_image: got {self.vision_soft_tokens_per_image}; expected the tower's "
                f"{self.vision.token_side} x {self.vision.token_side}",
                where=["config.json"],
            )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_hf(text_part(raw, SOUND_KEYS))

    @cached_property
    def vision(self) -> MobileNetV5Config | None:  # type: ignore[override]
        return None if self.vision_config is None else MobileNetV5Config.from_hf(self.vision_config)

    @property
    def images(self) -> ImageInput | None:
        if self.vision is None:
            return None
        token = self.image_token_id
        around = ("\n\n", self.boi_token_id, token, self.eoi_token_id, "\n\n")
        return ImageInput(self.vision.shape, self.vision_soft_tokens_per_image, token, token, around)


class Projector(nn.Module):
    """Normalizes and projects tokens, [1, T, E] -> [1, T, D], to what the decoder multiplies as its own embeddings.

    The published model multiplies the tower's results by ``sqrt(E)`` first, which changes epsilon only.
    """

    def __init__(self, c: Gemma3nConfig, tower: MobileNetV5Config):
        epsilon = tower.rms_norm_eps
        self.soft_embedding_norm = nn.RMSNorm(tower.hidden_size, epsilon / tower.hidden_size)
        self.embedding_projection = nn.Linear(tower.hidden_size, c.hidden_size, bias=False)
        self.embedding_post_projection_norm = UnweightedRMSNorm(c.hidden_size, epsilon)
        self.scale = 1.0 / math.sqrt(c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.embedding_projection(self.soft_embedding_norm(x))
        return self.embedding_post_projection_norm(projected) * self.scale


class Gemma3nWithSpecialTokens(Gemma3nForCausalLM):
    """Some tokens, such as the one after an image, have embeddings of the tower's size, which are projected.

    ``special_embeddings`` are the results of this projection, in the place of rows of the table of texts.
    """

    def __init__(self, c: Gemma3nConfig, layers: list[nn.Module], **options: Any):
        super().__init__(c, layers, **options)
        tower = c.vision
        self.first_special, self.special_count = (tower.vocab_offset, tower.vocab_size) if tower else (0, 0)
        self.special_embeddings = nn.Embedding(self.special_count, c.hidden_size) if tower else None

    def embed_tokens(self, input_ids: Tensor) -> Tensor:
        x = super().embed_tokens(input_ids)
        if self.special_embeddings is None:
            return x
        index = input_ids - self.first_special
        nearest = op.minimum(op.maximum(index, 0), self.special_count - 1)
        rows = self.special_embeddings(nearest).astype(x.dtype)
        return op.where(op.expand_dims(op.equal(index, nearest), -1), rows, x)


class Gemma3nWithImages(VisionLanguageModel):
    """Gemma 3n with its image tower. The tokens of an image have the per-layer inputs of ``image_token_id``."""

    language_model: Gemma3nForCausalLM

    def __init__(self, c: Gemma3nConfig, language_model: Gemma3nForCausalLM):
        tower, projector = (MobileNetV5(c.vision), Projector(c, c.vision)) if c.vision else (None, None)
        super().__init__(language_model, tower, projector)
        self.image_token_id = c.image_token_id

    def image_embed(self, *inputs: Tensor) -> Tensor:
        x = super().image_embed(*inputs)
        rows = self.language_model.per_layer.embed(op.full((x.shape[0],), self.image_token_id, "int32"))
        return op.concat([x, rows.astype(x.dtype)], dim=1)


def model(c: Gemma3nConfig) -> Gemma3nWithImages:
    return Gemma3nWithImages(c, gemma3n.model(c, Gemma3nWithSpecialTokens))


def weights(c: Gemma3nConfig) -> WeightMap:
    m = vision.within_parts(gemma3n.weights(c))
    m.other_prefix(f"{PROJECTOR}.", "model.embed_vision.")
    for part in ("audio_tower", "embed_audio"):
        m.unused(f"model.{part}.*")
    if c.vision is None:
        vision.without_tower(m)
        return m
    mobilenetv5.tower_weights(m, c.vision)
    sources = [f"{PROJECTOR}.{n}.weight" for n in ("embedding", "hard_embedding_norm", "embedding_projection")]
    m.computed(f"{LANGUAGE}.special_embeddings.weight", sources, special_embeddings(c, c.vision))
    return m


def special_embeddings(c: Gemma3nConfig, tower: MobileNetV5Config) -> Any:
    """The function of embeddings [V, E], the weight [E] of their norm and a projection [D, E] that gives [V, D]."""

    def normed(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(tower.rms_norm_eps))

    def compute(*tensors: np.ndarray) -> np.ndarray:
        embeddings, weight, projection = (x.astype(np.float32) for x in tensors)
        projected = (normed(embeddings) * weight) @ projection.T
        return normed(projected) / np.float32(math.sqrt(c.hidden_size))

    return compute


TINY = Gemma3nConfig(
    **gemma3n.SIZES,
    vision_config=mobilenetv5.SMALL,
    vision_soft_tokens_per_image=4,
    image_token_id=991,
    boi_token_id=8,
    eoi_token_id=990,
)
ARCHITECTURE = Architecture(
    "gemma3n",
    Gemma3nConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=QUANTIZATION,
)
