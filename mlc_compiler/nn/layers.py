"""Layers. Weights have a storage dtype and are converted to the input's dtype, which is also the result's."""

from __future__ import annotations

from collections.abc import Sequence

from . import op
from .module import Module
from .tensor import Parameter, Tensor


class Linear(Module):
    """``x @ weight.T + bias``; weight [out_features, in_features], bias [out_features].

    out_features: an integer, or the name of a symbolic size.
    """

    def __init__(self, in_features: int, out_features: int | str, bias: bool = True, dtype: str = "float32"):
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.linear(x, self.weight, self.bias)


class Embedding(Module):
    """Lookup of rows of ``weight`` [num, dim] by integer index; the result has the weight's dtype.

    num: an integer, or the name of a symbolic size.
    """

    def __init__(self, num: int | str, dim: int, dtype: str = "float32"):
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, indices: Tensor) -> Tensor:
        return op.take(self.weight, indices, axis=0)

    def lm_head_forward(self, x: Tensor) -> Tensor:
        """Apply the output head with tied weights: ``x @ weight.T``."""
        return op.linear(x, self.weight)


class Experts(Module):
    """A linear layer per expert; weight [num_experts, out_features, in_features], bias [num_experts, out_features]."""

    def __init__(
        self, num_experts: int, in_features: int, out_features: int, bias: bool = False, dtype: str = "float32"
    ):
        self.num_experts = num_experts
        self.weight = Parameter((num_experts, out_features, in_features), dtype)
        self.bias = Parameter((num_experts, out_features), dtype) if bias else None

    def forward(self, x: Tensor, experts: Tensor, rows: Tensor | None = None) -> Tensor:
        """Grouped matmul: row ``rows[r]`` of x [T, in_features] (by default row r) times expert ``experts[r]``.

        experts, rows: integers [R]. Returns [R, out_features]; see ``relax.ops.expert_linear``.
        """
        return with_expert_bias(op.expert_linear(x, self.weight, experts, rows), self.bias, experts)


def with_expert_bias(y: Tensor, bias: Tensor | None, experts: Tensor) -> Tensor:
    """``y[r] + bias[experts[r]]`` for y [R, N] and bias [E, N] of any floating dtype; y when there is no bias."""
    return y if bias is None else y + op.take(bias, experts, axis=0).astype(y.dtype)


class RMSNorm(Module):
    """``x * weight / sqrt(mean(x^2) + epsilon)`` over the last axis."""

    def __init__(self, hidden_size: int, epsilon: float = 1e-5, dtype: str = "float32"):
        self.epsilon = epsilon
        self.weight = Parameter((hidden_size,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return op.rms_norm(x, self.weight, epsilon=self.epsilon)


class GroupNorm(Module):
    """Group normalization over ``num_groups`` equal groups of channels and the axes after the second."""

    def __init__(self, num_groups: int, num_channels: int, epsilon: float = 1e-5, dtype: str = "float32"):
        self.num_groups = num_groups
        self.epsilon = epsilon
        self.weight = Parameter((num_channels,), dtype)
        self.bias = Parameter((num_channels,), dtype)

    def forward(self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None) -> Tensor:
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.epsilon, channel_axis, axes)


class ReLU(Module):
    """``max(x, 0)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """``x * sigmoid(x)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """``x * Phi(x)``; ``approximate="tanh"`` selects the tanh approximation."""

    def __init__(self, approximate: str | None = None):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x, self.approximate)


class LayerNorm(Module):
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` over the last axis."""

    def __init__(self, hidden_size: int, epsilon: float = 1e-5, bias: bool = True, dtype: str = "float32"):
        self.epsilon = epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.weight, self.bias, epsilon=self.epsilon)
