"""Further norms: without weights, per head of queries and keys, and per group."""

from __future__ import annotations

import numpy as np

from ..relax.nodes import constant
from . import op
from .layers import RMSNorm
from .module import Module
from .tensor import Parameter, Tensor


class UnweightedLayerNorm(Module):
    """``(x - mean) / sqrt(variance + epsilon)`` over the last axis, of ``size`` elements."""

    def __init__(self, size: int, epsilon: float = 1e-5):
        self.size = size
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        ones = Tensor(constant(np.ones(self.size, np.float32)))
        return op.layer_norm(x, ones, epsilon=self.epsilon)


class UnweightedRMSNorm(Module):
    """``x / sqrt(mean(x^2) + epsilon)`` over the last axis, of ``size`` elements."""

    def __init__(self, size: int, epsilon: float = 1e-5):
        self.size = size
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        ones = Tensor(constant(np.ones(self.size, np.float32)))
        return op.rms_norm(x, ones, epsilon=self.epsilon)


class HeadLayerNorm(Module):
    """A ``LayerNorm`` without bias for each head: x [T, heads, K], weight [heads, K]."""

    def __init__(self, heads: int, head_dim: int, epsilon: float = 1e-5, dtype: str = "float32"):
        self.normalize = UnweightedLayerNorm(head_dim, epsilon)
        self.weight = Parameter((heads, head_dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalize(x) * self.weight.astype(x.dtype)


class WideRMSNorm(RMSNorm):
    """An ``RMSNorm`` over all heads together: x [T, heads, K], weight [heads * K]."""

    def forward(self, x: Tensor) -> Tensor:
        tokens, heads, size = x.shape
        assert isinstance(heads, int) and isinstance(size, int)
        return op.reshape(super().forward(op.reshape(x, (tokens, heads * size))), x.shape)


class GroupedRMSNorm(Module):
    """An ``RMSNorm`` over each of ``groups`` equal parts of the last axis: x [T, W], weight [W]."""

    def __init__(self, size: int, groups: int, epsilon: float = 1e-5, dtype: str = "float32"):
        self.groups, self.epsilon = groups, epsilon
        self.weight = Parameter((size,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        tokens, size = x.shape
        assert isinstance(size, int)
        if self.groups == 1:
            return op.rms_norm(x, self.weight, epsilon=self.epsilon)
        parts = op.reshape(x, (tokens, self.groups, size // self.groups))
        ones = Tensor(constant(np.ones(size // self.groups, np.float32)))
        return op.reshape(op.rms_norm(parts, ones, epsilon=self.epsilon), x.shape) * self.weight.astype(x.dtype)
