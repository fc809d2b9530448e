"""Gemma 4's vision transformer for images of any size; its results are averaged over the patches of each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.norms import UnweightedRMSNorm
from mlc_compiler.nn.vision import AxialPositions, PatchTransformer
from mlc_compiler.relax import ops
from mlc_errors import MLCError, UnsupportedError
from model_zoo.transformer import activation_of
from model_zoo.vision import TOWER, vision_values
from model_zoo.weight_expr import CheckpointTensor
from model_zoo.weight_map import WeightMap

KIND, CHANNELS = "gemma4_vision", 3
IGNORED = ("model_type", "max_position_embeddings", "rope_parameters", "attention_bias", "default_output_length")
BOUNDS = ("input_min", "input_max", "output_min", "output_max")


@dataclass(frozen=True, kw_only=True)
class Gemma4VisionConfig:
    """Field names are Hugging Face's keys. patch_size: in pixels. pooling_kernel_size: patches per side of the square
    that becomes one token. position_embedding_size: maximum rows and columns of patches. use_clipped_linears: linear
    layers clamp inputs and results. standardize: tokens have a bias and a scale.
    """

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 16
    num_attention_heads: int = 12
    num_key_value_heads: int = 12
    head_dim: int = 64
    hidden_activation: str = "gelu_pytorch_tanh"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 100.0
    pooling_kernel_size: int = 3
    patch_size: int = 16
    position_embedding_size: int = 10240
    use_clipped_linears: bool = False
    standardize: bool = False

    def __post_init__(self) -> None:
        for key, expected in (
            ("num_key_value_heads", self.num_attention_heads),
            ("head_dim", -4 * (-self.head_dim // 4)),
        ):
            if (got := getattr(self, key)) != expected:
                raise MLCError(f"vision_config: {key}: got {got}; expected {expected}", where=["config.json"])

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
    def patch_elements(self) -> int:
        return CHANNELS * self.patch_size**2

    @property
    def inv_freq(self) -> np.ndarray:
        """Inverse frequencies of the rotary embedding, float32 [head_dim / 4], the same for columns and rows."""
        half = self.head_dim // 2
        return 1.0 / self.rope_theta ** (np.arange(0, half, 2, dtype=np.float32) / half)


class BoundedLinear(nn.Linear):
    """A linear layer whose inputs and results are clamped. bounds [4]: input min, max, output min, max."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features, bias=False)
        self.bounds = nn.Parameter((len(BOUNDS),))

    def forward(self, x: Tensor) -> Tensor:
        least_in, most_in, least_out, most_out = op.split(self.bounds.astype(x.dtype), len(BOUNDS))
        x = op.minimum(op.maximum(x, least_in), most_in)
        return op.minimum(op.maximum(super().forward(x), least_out), most_out)


def linear(c: Gemma4VisionConfig, in_features: int, out_features: int) -> nn.Linear:
    return (BoundedLinear if c.use_clipped_linears else _unbiased)(in_features, out_features)


def _unbiased(in_features: int, out_features: int) -> nn.Linear:
    return nn.Linear(in_features, out_features, bias=False)


class NormedAttention(nn.Module):
    """Attention among all patches, with norms of queries, keys and values in each head, and unscaled scores.

    x: [1, S, E]; rotation: see ``FullAttention``.
    """

    def __init__(self, c: Gemma4VisionConfig):
        self.heads, self.head_dim = c.num_attention_heads, c.head_dim
        size = self.heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (linear(c, c.hidden_size, size) for _ in "qkv")
        self.o_proj = linear(c, size, c.hidden_size)
        self.q_norm, self.k_norm = (nn.RMSNorm(c.head_dim, c.rms_norm_eps) for _ in "qk")
        self.v_norm = UnweightedRMSNorm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        shape = (x.shape[1], self.heads, self.head_dim)
        q, k, v = (op.reshape(part(x), shape) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = self.q_norm(q), self.k_norm(k), self.v_norm(v)
        if rotation:
            q, k = (nn.tensor.apply(ops.rotary_embedding, part, *rotation) for part in (q, k))
        q, k, v = (op.reshape(part, (1, *shape)) for part in (q, k, v))
        out = op.scaled_dot_product_attention(q, k, v, scale=1.0)
        return self.o_proj(op.reshape(out, (1, x.shape[1], self.heads * self.head_dim)))


class SandwichVisionLayer(nn.Module):
    """A layer with norms before and after attention and gated MLP."""

    def __init__(self, c: Gemma4VisionConfig):
        def norm() -> nn.RMSNorm:
            return nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()
        self.self_attn = NormedAttention(c)
        self.activation = activation_of(c.hidden_activation)
        self.gate_proj, self.up_proj = (linear(c, c.hidden_size, c.intermediate_size) for _ in range(2))
        self.down_proj = linear(c, c.intermediate_size, c.hidden_size)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), rotation))
        y = self.pre_feedforward_layernorm(x)
        y = self.down_proj(self.activation(self.gate_proj(y)) * self.up_proj(y))
        return x + self.post_feedforward_layernorm(y)


class PooledPatchTransformer(PatchTransformer):
    """A patch transformer that returns the mean of each token's patches, float32 [1, T, E]. pixels: from 0 to 1."""

    def __init__(self, c: Gemma4VisionConfig):
        layers = [SandwichVisionLayer(c) for _ in range(c.num_hidden_layers)]
        patch = _unbiased(c.patch_elements, c.hidden_size)
        positions = AxialPositions(c.position_embedding_size, c.hidden_size)
        super().__init__(patch, layers, c.inv_freq, pos_embed=positions)
        self.scale = c.hidden_size**0.5
        self.std_bias, self.std_scale = (nn.Parameter((c.hidden_size,)) if c.standardize else None for _ in range(2))

    def forward(self, pixels: Tensor, positions: Tensor) -> Tensor:
        rows, columns = op.split(positions, 2, axis=2)
        patches = super().forward(pixels * 2.0 - 1.0, op.concat([columns, rows], dim=2)).astype("float32")
        x = op.mean(patches, axis=2) * self.scale
        if self.std_bias is None or self.std_scale is None:
            return x
        return (x - self.std_bias.astype("float32")) * self.std_scale.astype("float32")


def tower_weights(m: WeightMap, c: Gemma4VisionConfig) -> None:
    """Map the tower's weights; heads are permuted, as checkpoints rotate the halves for columns and rows separately."""
    embedder, view = f"{TOWER}.patch_embedder", (c.patch_size**2, CHANNELS)
    m.permute(f"{TOWER}.patch_embed", f"{embedder}.input_proj", view=view, order=(1, 0), axis=1)
    table = CheckpointTensor(f"{embedder}.position_embedding_table")
    m.computed(f"{TOWER}.pos_embed.weight", [table], lambda both: both.reshape(-1, both.shape[-1]))
    for layer in range(c.num_hidden_layers):
        _layer_weights(m, c, f"{TOWER}.layers.{layer}", f"{TOWER}.encoder.layers.{layer}")


def _layer_weights(m: WeightMap, c: Gemma4VisionConfig, ours: str, theirs: str) -> None:
    quarter = c.head_dim // 4
    for x in "qk":
        view = (c.num_attention_heads, 2, 2, quarter)
        m.permute(
            f"{ours}.self_attn.{x}_proj.weight",
            f"{theirs}.self_attn.{x}_proj.linear.weight",
            view=view,
            order=(0, 2, 1, 3),
        )
        norm = f"self_attn.{x}_norm.weight"
        m.permute(f"{ours}.{norm}", f"{theirs}.{norm}", view=(2, 2, quarter), order=(1, 0, 2))
    products = {f"self_attn.{x}_proj": f"self_attn.{x}_proj" for x in "qkvo"}
    products |= {f"{x}_proj": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
    for name, source in products.items():
        if name not in ("self_attn.q_proj", "self_attn.k_proj"):
            m.rename(f"{ours}.{name}.weight", f"{theirs}.{source}.linear.weight")
        if c.use_clipped_linears:
            m.computed(f"{ours}.{name}.bounds", [f"{theirs}.{source}.{bound}" for bound in BOUNDS], _stacked)
    for norm in (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ):
        m.rename(f"{ours}.{norm}", f"{theirs}.{norm}")


def _stacked(*bounds: np.ndarray) -> np.ndarray:
    return np.stack([bound.reshape(()) for bound in bounds])


SMALL = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "patch_size": 7,
    "position_embedding_size": 40,
    "use_clipped_linears": True,
    "standardize": True,
}
