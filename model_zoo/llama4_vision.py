"""Llama 4's vision transformer: square images, learned and rotary positions, squares of patches joined to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.feed_forward import MLP
from mlc_compiler.nn.vision import ImageEmbedding, PatchEmbedding, VisionLayer, VisionTransformer
from mlc_compiler.relax.nodes import constant
from mlc_errors import MLCError, UnsupportedError
from model_zoo.vision import PROJECTOR, TOWER, joined_patches, vision_values
from model_zoo.weight_expr import CheckpointTensor, Permute, Ranges
from model_zoo.weight_map import WeightMap

KIND = "llama4_vision_model"
MERGE = 2
IGNORED = frozenset(
    "model_type norm_eps hidden_act vision_feature_select_strategy multi_modal_projector_bias projector_dropout "
    "rope_parameters vision_feature_layer".split()
)
"""Keys that are ignored, as in transformers: norms have an epsilon of 1e-5, activations are GELU."""


@dataclass(frozen=True, kw_only=True)
class Llama4VisionConfig:
    """Field names are Hugging Face's keys. image_size, patch_size: in pixels. projector_input_dim,
    projector_output_dim: sizes of the linear layers after joining patches. vision_output_dim: size of the result.
    """

    hidden_size: int = 768
    intermediate_size: int = 5632
    num_hidden_layers: int = 34
    num_attention_heads: int = 16
    num_channels: int = 3
    image_size: int = 448
    patch_size: int = 14
    pixel_shuffle_ratio: float = 1 / MERGE
    projector_input_dim: int = 4096
    projector_output_dim: int = 4096
    vision_output_dim: int = 7680
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        checks = {
            "hidden_size": (self.hidden_size % (4 * self.num_attention_heads) == 0, "a multiple of 4 for each head"),
            "pixel_shuffle_ratio": (self.pixel_shuffle_ratio == 1 / MERGE, f"{1 / MERGE}"),
            "intermediate_size": (self.intermediate_size == MERGE**2 * self.hidden_size, "4 times hidden_size"),
            "image_size": (self.side > 0 and self.side % MERGE == 0, "an even number of patches"),
            "projector_input_dim": (self.projector_input_dim == self.projector_output_dim, "projector_output_dim"),
            "vision_output_dim": (self.vision_output_dim == self.projector_output_dim, "projector_output_dim"),
        }
        for name, (is_valid, expected) in checks.items():
            if not is_valid:
                got = getattr(self, name)
                raise MLCError(f"vision_config: {name}: got {got}; expected {expected}", where=["config.json"])

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the vision_config of config.json. Raises MLCError and UnsupportedError as ``BaseConfig.from_hf``."""
        kind, rope = raw.get("model_type", KIND), raw.get("rope_parameters") or {}
        if kind != KIND:
            raise UnsupportedError(
                f"vision_config: got model_type {str(kind)[:80]!r}; expected {KIND}", where=["config.json"]
            )
        theta = {"rope_theta": rope["rope_theta"]} if isinstance(rope, Mapping) and "rope_theta" in rope else {}
        return cls(**vision_values(cls, KIND, {**raw, **theta}, IGNORED))

    @property
    def side(self) -> int:
        """The number of patches per row, and of rows of patches."""
        return self.image_size // self.patch_size

    @property
    def angles(self) -> np.ndarray:
        """Rotation angles, float32 [1 + side ** 2, R/2]: 0 for the class token; by column, then by row for patches."""
        pairs = self.hidden_size // self.num_attention_heads // 4
        frequencies = 1.0 / self.rope_theta ** (np.arange(pairs, dtype=np.float32) / pairs)
        rows, columns = np.indices((self.side, self.side)).reshape(2, -1, 1) + 1
        of_patches = np.concatenate([columns * frequencies, rows * frequencies], axis=1)
        return np.concatenate([np.zeros((1, 2 * pairs)), of_patches]).astype(np.float32)


class RotatedTransformer(VisionTransformer):
    """A tower with rotary positions: pixels [1, C, H, W] -> patches [1, S, D], without the class token."""

    def __init__(self, c: Llama4VisionConfig):
        def norm() -> nn.Module:
            return nn.LayerNorm(c.hidden_size)

        def layer() -> VisionLayer:
            mlp = MLP(c.hidden_size, c.intermediate_size, op.gelu, bias=True)
            return VisionLayer(c.hidden_size, c.num_attention_heads, mlp, norm)

        patch = PatchEmbedding(c.num_channels, c.patch_size, c.hidden_size, bias=False)
        embeddings = ImageEmbedding(patch, c.side**2, c.hidden_size, class_token=True)
        super().__init__(embeddings, layer, c.num_hidden_layers, norm(), norm())
        self.angles = c.angles

    def forward(self, pixels: Tensor) -> Tensor:
        assert self.pre_layrnorm and self.post_layernorm
        x = self.pre_layrnorm(self.embeddings(pixels))
        rotation = (Tensor(constant(np.cos(self.angles))), Tensor(constant(np.sin(self.angles))))
        for layer in self.layers:
            x = layer(x, rotation)
        return op.split(self.post_layernorm(x), [1], axis=1)[1]


class Projector(nn.Module):
    """Joins squares of patches and projects them, [1, S, E] -> [1, T, D]. hidden_size: D, that of the decoder."""

    def __init__(self, c: Llama4VisionConfig, hidden_size: int):
        self.side = c.side
        self.fc1 = nn.Linear(c.intermediate_size, c.projector_input_dim, bias=False)
        self.fc2 = nn.Linear(c.projector_output_dim, c.projector_output_dim, bias=False)
        self.linear_1 = nn.Linear(c.vision_output_dim, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        joined = joined_patches(x, self.side, MERGE)
        return self.linear_1(op.gelu(self.fc2(op.gelu(self.fc1(joined)))))


def image_weights(m: WeightMap, c: Llama4VisionConfig) -> None:
    """Add the rules of tower and projector. In checkpoints, the class token is last instead of first, and the rotated
    pairs are interleaved.
    """
    embeddings, patches = f"{TOWER}.embeddings", c.side**2
    m.rename(f"{embeddings}.patch_embedding", "vision_model.patch_embedding.linear")
    m.rename(f"{embeddings}.class_embedding", "vision_model.class_embedding")
    positions = CheckpointTensor("vision_model.positional_embedding_vlm")
    m.rename(f"{embeddings}.position_embedding", Ranges((positions,), ((patches, patches + 1), (0, patches))))
    m.rename(f"{TOWER}.pre_layrnorm", "vision_model.layernorm_pre")
    m.rename(f"{TOWER}.post_layernorm", "vision_model.layernorm_post")
    for layer in range(c.num_hidden_layers):
        _layer(m, c, f"{TOWER}.layers.{layer}", f"vision_model.model.layers.{layer}")
    for name in ("fc1", "fc2"):
        m.rename(f"{PROJECTOR}.{name}", f"vision_model.vision_adapter.mlp.{name}")


def _layer(m: WeightMap, c: Llama4VisionConfig, layer: str, source: str) -> None:
    view = (c.num_attention_heads, c.hidden_size // c.num_attention_heads // 2, 2)
    rotated = [Permute((CheckpointTensor(f"{source}.self_attn.{x}_proj"),), view, (0, 2, 1)) for x in "qk"]
    m.concat(f"{layer}.self_attn.qkv_proj", [*rotated, f"{source}.self_attn.v_proj"])
    names = {
        "self_attn.out_proj": "self_attn.o_proj",
        "layer_norm1": "input_layernorm",
        "layer_norm2": "post_attention_layernorm",
        "mlp.up_proj": "mlp.fc1",
        "mlp.down_proj": "mlp.fc2",
    }
    for name, theirs in names.items():
        m.rename(f"{layer}.{name}", f"{source}.{theirs}")
