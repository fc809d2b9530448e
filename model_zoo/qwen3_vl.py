"""Qwen3-VL: Qwen3 with interleaved 3D RoPE; features of some tower layers are added to its first layers (DeepStack).

An embedding is the concatenation of the hidden state and the features to add, which are zero for text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.feed_forward import MLP
from mlc_compiler.nn.vision import DeepPatchTransformer, GridPositions, VisionLayer
from mlc_errors import MLCError
from model_zoo import qwen2_vl, qwen3, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.qwen2_vl import EPSILON, QwenVLFields
from model_zoo.transformer import CausalLM, activation_of
from model_zoo.vision import PROJECTOR, TOWER, VisionLanguageModel, vision_values
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class TowerConfig(qwen2_vl.TowerConfig):
    """hidden_size: that of the tower. deepstack_visual_indexes: layers whose results go to the first layers of the
    decoder."""

    depth: int = 27
    hidden_size: int = 1152
    out_hidden_size: int = 3584
    intermediate_size: int = 4304
    hidden_act: str = "gelu_pytorch_tanh"
    patch_size: int = 16
    num_position_embeddings: int = 2304
    deepstack_visual_indexes: Sequence[int] = (8, 16, 24)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        c = cls(**vision_values(cls, "qwen3_vl", raw, ("rope_parameters",)))
        tapped = list(c.deepstack_visual_indexes)
        if tapped != sorted(set(tapped)) or not all(0 <= i < c.depth for i in tapped):
            expected = f"rising numbers below {c.depth}"
            raise MLCError(f"deepstack_visual_indexes: got {tapped}; expected {expected}", where=["config.json"])
        return c

    @property
    def width(self) -> int:
        return self.hidden_size

    @property
    def output_size(self) -> int:
        return self.out_hidden_size


def interleaved_axes(sections: Sequence[int]) -> tuple[int, ...]:
    """The axis of each rotated pair: round-robin while an axis has pairs left; the rest belong to axis 0."""
    return tuple(i % 3 if i < 3 * sections[i % 3] else 0 for i in range(sum(sections)))


@dataclass(frozen=True, kw_only=True)
class Qwen3VLConfig(QwenVLFields, qwen3.Qwen3Config):
    model_type: ClassVar[str] = "qwen3_vl"
    tower_config: ClassVar[type[Any]] = TowerConfig
    rope_theta: float = 5e6
    mrope_section: Sequence[int] = (24, 20, 20)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_parts(self.hidden_size, self.head_dim)
        if len(self.tower.deepstack_visual_indexes) > self.num_hidden_layers:
            raise MLCError(f"deepstack_visual_indexes: expected at most {self.num_hidden_layers} layers")

    @property
    def rotary_axes(self) -> tuple[int, ...]:
        return interleaved_axes(self.mrope_section)

    @property
    def embedding_size(self) -> int:
        return self.hidden_size * (1 + len(self.tower.deepstack_visual_indexes))


class DeepCausalLM(CausalLM):
    """A decoder with embeddings [S, (1 + P) D]; the last P parts are added to the results of the first P layers."""

    def __init__(self, c: Qwen3VLConfig, layers: Sequence[nn.Module], norm: nn.Module):
        super().__init__(c, layers, norm)
        self.size, self.parts = c.hidden_size, c.embedding_size // c.hidden_size

    def embed(self, input_ids: Tensor) -> Tensor:
        x = super().embed(input_ids)
        nothing = op.zeros((x.shape[0], (self.parts - 1) * self.size), x.dtype)
        return op.concat([x, nothing], dim=1) if self.parts > 1 else x

    def forward(self, x: Tensor, *states: Any) -> Tensor:
        x, *added = op.split(x, self.parts, axis=2) if self.parts > 1 else [x]
        return self.model.with_added(x, states, added)


class Merger(nn.Module):
    """Joins the patches of each token and projects them, [1, T, M, E] -> [1, T, D]; the norm is before or after."""

    def __init__(self, c: TowerConfig, norm_after: bool):
        self.joined = c.width * c.spatial_merge_size**2
        self.norm = nn.LayerNorm(self.joined if norm_after else c.width, EPSILON)
        self.norm_after = norm_after
        self.linear_fc1 = nn.Linear(self.joined, self.joined)
        self.linear_fc2 = nn.Linear(self.joined, c.output_size)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, x.shape[1], self.joined)
        x = self.norm(op.reshape(x, shape)) if self.norm_after else op.reshape(self.norm(x), shape)
        return self.linear_fc2(op.gelu(self.linear_fc1(x)))


class Mergers(nn.Module):
    """Projects the results of the last and of the tapped layers, and concatenates them in this order."""

    def __init__(self, c: TowerConfig):
        self.merger = Merger(c, norm_after=False)
        self.deepstack_merger_list = nn.ModuleList([Merger(c, norm_after=True) for _ in c.deepstack_visual_indexes])

    def forward(self, results: Sequence[Tensor]) -> Tensor:
        *tapped, last = results
        deep = [merger(x) for merger, x in zip(self.deepstack_merger_list, tapped, strict=True)]
        return op.concat([self.merger(last), *deep], dim=2) if deep else self.merger(last)


def tower(c: TowerConfig) -> DeepPatchTransformer:
    def layer() -> VisionLayer:
        mlp = MLP(c.width, c.intermediate_size, activation_of(c.hidden_act), bias=True)
        return VisionLayer(c.width, c.num_heads, mlp, lambda: nn.LayerNorm(c.width, EPSILON))

    patch = nn.Linear(c.patch_elements, c.width)
    positions = GridPositions(math.isqrt(c.num_position_embeddings), c.width)
    layers = [layer() for _ in range(c.depth)]
    return DeepPatchTransformer(patch, layers, c.inv_freq, positions, c.deepstack_visual_indexes)


def model(c: Qwen3VLConfig) -> VisionLanguageModel:
    return VisionLanguageModel(qwen3.model(c, DeepCausalLM), tower(c.tower), Mergers(c.tower))


def weights(c: Qwen3VLConfig) -> WeightMap:
    m = vision.within_parts(qwen3.weights(c))
    image_weights(m, c.tower)
    return m


def image_weights(m: WeightMap, c: TowerConfig) -> None:
    """Add the rules of a tower and its projector."""
    qwen2_vl.tower_weights(m, c.depth, {"up_proj": ["linear_fc1"], "down_proj": ["linear_fc2"]})
    m.rename(f"{TOWER}.pos_embed", "visual.pos_embed")
    parts = ["merger", *(f"deepstack_merger_list.{i}" for i in range(len(c.deepstack_visual_indexes)))]
    for part in parts:
        for name in ("norm", "linear_fc1", "linear_fc2"):
            m.rename(f"{PROJECTOR}.{part}.{name}", f"visual.{part}.{name}")


SMALL = {
    "depth": 3,
    "hidden_size": 48,
    "intermediate_size": 60,
    "out_hidden_size": 100,
    "num_heads": 4,
    "patch_size": 7,
    "num_position_embeddings": 25,
    "deepstack_visual_indexes": [0, 1],
}
TINY = Qwen3VLConfig(**tiny.SIZES, vision_config=SMALL, image_token_id=7, mrope_section=(4, 3, 3))
ARCHITECTURE = Architecture(
    "qwen3_vl",
    Qwen3VLConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
