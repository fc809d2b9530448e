"""Qwen2-VL: Qwen2 with 3D RoPE (time, height, width), and a vision transformer for images of any size.

Wang et al. 2024, "Qwen2-VL".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.feed_forward import MLP
from mlc_compiler.nn.vision import PatchTransformer, VisionLayer
from mlc_errors import MLCError
from model_zoo import qwen2, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.config_forms import text_part
from model_zoo.transformer import activation_of
from model_zoo.vision import (
    MAX_IMAGE_TOKENS,
    PROJECTOR,
    TOWER,
    ImageFields,
    ImageInput,
    VisionLanguageModel,
    vision_values,
)
from model_zoo.weight_map import WeightMap

EPSILON = 1e-6
ROTATION_KEYS = ("mrope_section", "mrope_interleaved")


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """hidden_size: that of the decoder. spatial_merge_size: patches per side of the square that becomes one token."""

    depth: int = 32
    embed_dim: int = 1280
    hidden_size: int = 3584
    hidden_act: str = "quick_gelu"
    mlp_ratio: int = 4
    num_heads: int = 16
    in_channels: int = 3
    patch_size: int = 14
    spatial_merge_size: int = 2
    temporal_patch_size: int = 2

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**vision_values(cls, "qwen2_vl", raw, ("in_chans", "spatial_patch_size", "rope_parameters")))

    @property
    def output_size(self) -> int:
        return self.hidden_size

    @property
    def width(self) -> int:
        """Elements of a patch's hidden state."""
        return self.embed_dim

    @property
    def patch_elements(self) -> int:
        """Elements of a patch; an image is repeated to ``temporal_patch_size`` frames."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def inv_freq(self) -> np.ndarray:
        half = self.width // self.num_heads // 2
        return 1.0 / 10000.0 ** (np.arange(0, half, 2, dtype=np.float32) / half)


@dataclass(frozen=True, kw_only=True)
class QwenVLFields(ImageFields):
    """Additional fields of a decoder; must precede the decoder's base class, as ``ImageFields``.

    mrope_section: numbers of pairs that are rotated by positions in time, height and width.
    """

    tower_config: ClassVar[type[Any]] = TowerConfig
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"vision_start_token_id", "vision_end_token_id", "vision_token_id", "video_token_id"}
    )
    image_token_id: int = 151655
    mrope_section: Sequence[int] = (16, 24, 24)

    def check_parts(self, hidden_size: int, rotary_dim: int) -> None:
        """Raise MLCError if the tower's sizes or ``mrope_section`` do not fit the decoder."""
        if len(self.mrope_section) != 3 or 2 * sum(self.mrope_section) != rotary_dim:
            expected = f"three numbers with the sum {rotary_dim // 2}"
            raise MLCError(f"mrope_section: got {list(self.mrope_section)}; expected {expected}", where=["config.json"])
        object.__setattr__(self, "mrope_section", tuple(self.mrope_section))
        if self.tower.output_size != hidden_size:
            raise MLCError(
                f"vision_config: the tower's results have {self.tower.output_size} elements; expected hidden_size, "
                f"{hidden_size}",
                where=["config.json"],
            )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """As in ``BaseConfig``; ``mrope_section`` is read from the RoPE parameters, and ``tie_word_embeddings`` from
        outside of ``text_config``."""
        values = {**text_part(raw, ()), **{key: raw[key] for key in ("tie_word_embeddings",) if key in raw}}
        for key in ("rope_parameters", "rope_scaling"):
            given = values.get(key)
            if isinstance(given, Mapping) and "mrope_section" in given:
                values["mrope_section"] = given["mrope_section"]
                kept = {k: v for k, v in given.items() if k not in ROTATION_KEYS and v != "mrope"}
                values[key] = kept or None
        return super().from_hf(values)

    @property
    def rotary_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis, count in enumerate(self.mrope_section) for _ in range(count))

    @cached_property
    def tower(self) -> Any:
        return self.tower_config.from_hf(self.vision_config or {})

    @property
    def images(self) -> ImageInput:
        c, token = self.tower, self.image_token_id
        shape = (-1, c.spatial_merge_size**2, c.patch_elements)
        return ImageInput(shape, MAX_IMAGE_TOKENS, token, token, (token,))


@dataclass(frozen=True, kw_only=True)
class Qwen2VLConfig(QwenVLFields, qwen2.Qwen2Config):
    model_type: ClassVar[str] = "qwen2_vl"
    rope_theta: float = 1e6

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_parts(self.hidden_size, self.head_dim)


class Merger(nn.Module):
    """Joins the patches of each token and projects them, [1, T, M, E] -> [1, T, D]."""

    def __init__(self, c: Any, norm: nn.Module):
        joined = c.width * c.spatial_merge_size**2
        self.ln_q = norm
        self.linear_1 = nn.Linear(joined, joined)
        self.linear_2 = nn.Linear(joined, c.output_size)

    def forward(self, x: Tensor) -> Tensor:
        joined = op.reshape(self.ln_q(x), (1, x.shape[1], self.linear_1.in_features))
        return self.linear_2(op.gelu(self.linear_1(joined)))


def tower(c: TowerConfig) -> PatchTransformer:
    def layer() -> VisionLayer:
        mlp = MLP(c.width, c.width * c.mlp_ratio, activation_of(c.hidden_act), bias=True)
        return VisionLayer(c.width, c.num_heads, mlp, lambda: nn.LayerNorm(c.width, EPSILON))

    patch = nn.Linear(c.patch_elements, c.width, bias=False)
    return PatchTransformer(patch, [layer() for _ in range(c.depth)], c.inv_freq)


def model(c: Qwen2VLConfig) -> VisionLanguageModel:
    merger = Merger(c.tower, nn.LayerNorm(c.tower.width, EPSILON))
    return VisionLanguageModel(qwen2.Qwen2ForCausalLM(c), tower(c.tower), merger)


MLP_NAMES: Mapping[str, Sequence[str]] = {"up_proj": ["fc1"], "down_proj": ["fc2"]}


def weights(c: Qwen2VLConfig, mlp: Mapping[str, Sequence[str]] = MLP_NAMES) -> WeightMap:
    """The weight map. mlp: linear layer of the tower's MLP -> names in the checkpoint, which are concatenated."""
    m = vision.weights(qwen2.weights(c), None)
    tower_weights(m, c.tower.depth, mlp)
    for name, source in {"ln_q": "ln_q", "linear_1": "mlp.0", "linear_2": "mlp.2"}.items():
        m.rename(f"{PROJECTOR}.{name}", f"visual.merger.{source}")
    return m


def tower_weights(m: WeightMap, depth: int, mlp: Mapping[str, Sequence[str]]) -> None:
    m.other_prefix("visual.", "model.visual.")
    m.flatten(f"{TOWER}.patch_embed", "visual.patch_embed.proj")
    names = {"self_attn.qkv_proj": "attn.qkv", "self_attn.out_proj": "attn.proj"}
    names |= {"layer_norm1": "norm1", "layer_norm2": "norm2"}
    for layer in range(depth):
        ours, theirs = f"{TOWER}.layers.{layer}", f"visual.blocks.{layer}"
        for name, source in names.items():
            m.rename(f"{ours}.{name}", f"{theirs}.{source}")
        for name, sources in mlp.items():
            m.concat(f"{ours}.mlp.{name}", [f"{theirs}.mlp.{source}" for source in sources])


SMALL = {"depth": 2, "embed_dim": 48, "hidden_size": 100, "num_heads": 4, "mlp_ratio": 2, "patch_size": 7}
TINY = Qwen2VLConfig(**tiny.SIZES, vision_config=SMALL, image_token_id=7, mrope_section=(3, 4, 3))
ARCHITECTURE = Architecture(
    "qwen2_vl",
    Qwen2VLConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
