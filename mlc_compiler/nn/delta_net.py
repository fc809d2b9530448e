"""Gated delta nets: linear attention that replaces what its state holds for a key.

B batch, S sequence, D hidden, T tokens of the call, H heads, G heads of keys, K elements of a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..relax import ops
from ..relax.nodes import constant
from . import op
from .layers import Linear, RMSNorm
from .module import Module
from .recurrent import CausalConv
from .states import RecurrentState, SequenceArray
from .tensor import Parameter, Tensor

LENGTH_EPSILON = 1e-6  # added to the squared lengths of queries and keys
STATE = "delta"
"""The name of the array of matrices."""


@dataclass(frozen=True)
class DeltaNetSizes:
    """Sizes of a gated delta net. key_heads: of queries and keys, a divisor of ``heads``; taps: of the convolution."""

    key_heads: int
    heads: int
    key_size: int
    value_size: int
    taps: int

    @property
    def keys(self) -> int:
        """Elements of a token's keys."""
        return self.key_heads * self.key_size

    @property
    def values(self) -> int:
        """Elements of a token's values."""
        return self.heads * self.value_size

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def arrays(self) -> tuple[SequenceArray, ...]:
        """The state of a layer."""
        matrices = SequenceArray(STATE, (self.heads, self.key_size, self.value_size))
        return CausalConv.array(self.channels, self.taps), matrices


class GatedDeltaNet(Module):
    """A gated delta net (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule").

    ``in_proj`` gives queries, keys, values and output gates, in this order; the first three pass through a short
    convolution with SiLU. ``in_proj_ba`` gives, for each head, the logit of the step size beta and the input ``a`` of
    the decay ``exp(-exp(A_log) softplus(a + dt_bias))``. Queries and keys are scaled to length 1, and scores have the
    factor ``1 / sqrt(K)``. The result is normalized in each head and gated.

    max_beta: beta is between 0 and this; above 1, a step may turn the sign of what the state holds for a key (Grazzi
    et al. 2024, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues").
    """

    def __init__(self, hidden_size: int, sizes: DeltaNetSizes, norm_epsilon: float, *, max_beta: float = 1.0):
        self.sizes = sizes
        self.max_beta = max_beta
        self.in_proj = Linear(hidden_size, sizes.channels + sizes.values, bias=False)
        self.in_proj_ba = Linear(hidden_size, 2 * sizes.heads, bias=False)
        self.conv1d = CausalConv(sizes.channels, sizes.taps, activation="silu")
        self.dt_bias, self.A_log = Parameter((sizes.heads,)), Parameter((sizes.heads,))
        self.norm = RMSNorm(sizes.value_size, norm_epsilon)
        self.out_proj = Linear(sizes.values, hidden_size, bias=False)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        sizes, (batch, length, hidden_size) = self.sizes, x.shape
        rows = op.reshape(x, (batch * length, hidden_size))
        mixed = self.in_proj(rows)
        gate = self._heads(op.split(mixed, [sizes.channels], axis=1)[1])
        q, k, v = op.split(self.conv1d(mixed, state, layer), [sizes.keys, 2 * sizes.keys], axis=1)
        args = [
            self._scaled(q, 1 / math.sqrt(sizes.key_size)),
            self._scaled(k, 1.0),
            self._heads(v),
            *self._gates(rows),
        ]
        y = self.norm(state.update(STATE, ops.gated_delta_rule, layer, *args)) * op.silu(gate)
        return self.out_proj(op.reshape(y, (batch, length, sizes.values)))

    def _heads(self, x: Tensor) -> Tensor:
        return op.reshape(x, (x.shape[0], self.sizes.heads, self.sizes.value_size))

    def _scaled(self, x: Tensor, length: float) -> Tensor:
        """[T, G K] -> [T, G, K] with vectors of this length: ``length * x / sqrt(sum of squares + epsilon)``."""
        size = self.sizes.key_size
        vectors = op.reshape(x, (x.shape[0], self.sizes.key_heads, size))
        weight = Tensor(constant(np.full(size, length / math.sqrt(size), np.float32)))
        return op.rms_norm(vectors, weight, epsilon=LENGTH_EPSILON / size)

    def _gates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Decay and beta, float32 [T, H]."""
        b, a = op.split(self.in_proj_ba(rows).astype("float32"), 2, axis=1)
        step = op.softplus(a + self.dt_bias.astype("float32"))
        beta = op.sigmoid(b)
        beta = beta if self.max_beta == 1 else beta * self.max_beta
        return op.exp(-(op.exp(self.A_log.astype("float32")) * step)), beta
