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


class DeltaNet(Module):
    """What delta nets have in common: x [B, S, D] -> [B, S, D].

    ``in_proj`` gives queries, keys, values and ``extra`` elements more, in this order; the first three pass through a
    short convolution with SiLU. Queries and keys are scaled to length 1, and scores have the factor ``1 / sqrt(K)``.
    The result is normalized in each head and gated.
    """

    def __init__(self, hidden_size: int, sizes: DeltaNetSizes, norm_epsilon: float, extra: int):
        self.sizes = sizes
        self.in_proj = Linear(hidden_size, sizes.channels + extra, bias=False)
        self.conv1d = CausalConv(sizes.channels, sizes.taps, activation="silu")
        self.norm = RMSNorm(sizes.value_size, norm_epsilon)
        self.out_proj = Linear(sizes.values, hidden_size, bias=False)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        sizes, (batch, length, hidden_size) = self.sizes, x.shape
        rows = op.reshape(x, (batch * length, hidden_size))
        mixed = self.in_proj(rows)
        extra = op.split(mixed, [sizes.channels], axis=1)[1]
        q, k, v = op.split(self.conv1d(mixed, state, layer), [sizes.keys, 2 * sizes.keys], axis=1)
        args = [self._scaled(q, 1 / math.sqrt(sizes.key_size)), self._scaled(k, 1.0), self.heads(v)]
        y = state.update(STATE, ops.gated_delta_rule, layer, *args, *self.gates(rows, extra))
        return self.out_proj(op.reshape(self.norm(y) * self.output_gate(extra), (batch, length, sizes.values)))

    def gates(self, rows: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Decay [T, H] or [T, H, K] and beta [T, H], float32, from x [T, D] and the rest of ``in_proj``'s result."""
        raise NotImplementedError

    def output_gate(self, extra: Tensor) -> Tensor:
        """[T, H, V], from the rest of ``in_proj``'s result."""
        raise NotImplementedError

    def heads(self, x: Tensor) -> Tensor:
        """[T, H V] -> [T, H, V]"""
        return op.reshape(x, (x.shape[0], self.sizes.heads, self.sizes.value_size))

    def _scaled(self, x: Tensor, length: float) -> Tensor:
        """[T, G K] -> [T, G, K] with vectors of this length: ``length * x / sqrt(sum of squares + epsilon)``."""
        size = self.sizes.key_size
        vectors = op.reshape(x, (x.shape[0], self.sizes.key_heads, size))
        weight = Tensor(constant(np.full(size, length / math.sqrt(size), np.float32)))
        return op.rms_norm(vectors, weight, epsilon=LENGTH_EPSILON / size)


class GatedDeltaNet(DeltaNet):
    """A gated delta net (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule").

    The last part of ``in_proj`` are output gates, before their SiLU. ``in_proj_ba`` gives, for each head, the logit of
    the step size beta and the input ``a`` of the decay ``exp(-exp(A_log) softplus(a + dt_bias))``.

    max_beta: beta is between 0 and this; above 1, a step may turn the sign of what the state holds for a key (Grazzi
    et al. 2024, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues").
    """

    def __init__(self, hidden_size: int, sizes: DeltaNetSizes, norm_epsilon: float, *, max_beta: float = 1.0):
        super().__init__(hidden_size, sizes, norm_epsilon, sizes.values)
        self.max_beta = max_beta
        self.in_proj_ba = Linear(hidden_size, 2 * sizes.heads, bias=False)
        self.dt_bias, self.A_log = Parameter((sizes.heads,)), Parameter((sizes.heads,))

    def gates(self, rows: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        b, a = op.split(self.in_proj_ba(rows).astype("float32"), 2, axis=1)
        step = op.softplus(a + self.dt_bias.astype("float32"))
        beta = op.sigmoid(b)
        beta = beta if self.max_beta == 1 else beta * self.max_beta
        return op.exp(-(op.exp(self.A_log.astype("float32")) * step)), beta

    def output_gate(self, extra: Tensor) -> Tensor:
        return op.silu(self.heads(extra))


class KimiDeltaNet(DeltaNet):
    """Kimi delta attention (Kimi Team 2025, "Kimi Linear", section 3): a gated delta net with a decay for each row.

    The last parts of ``in_proj`` are ``value_size`` elements of which ``f_b_proj`` makes the input ``f`` of the decay
    ``exp(-exp(A_log) softplus(f + dt_bias))``, and as many of which ``g_b_proj`` makes output gates, before their
    sigmoid. ``b_proj`` gives the logit of each head's step size beta. ``sizes.key_heads`` is ``sizes.heads``.
    """

    def __init__(self, hidden_size: int, sizes: DeltaNetSizes, norm_epsilon: float):
        rank = sizes.value_size
        super().__init__(hidden_size, sizes, norm_epsilon, 2 * rank)
        self.f_b_proj = Linear(rank, sizes.keys, bias=False)
        self.g_b_proj = Linear(rank, sizes.values, bias=False)
        self.b_proj = Linear(hidden_size, sizes.heads, bias=False)
        self.dt_bias, self.A_log = Parameter((sizes.keys,)), Parameter((sizes.heads, 1))

    def gates(self, rows: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        f = self.f_b_proj(op.split(extra, 2, axis=1)[0]).astype("float32")
        step = op.softplus(f + self.dt_bias.astype("float32"))
        steps = op.reshape(step, (rows.shape[0], self.sizes.heads, self.sizes.key_size))
        beta = op.sigmoid(self.b_proj(rows).astype("float32"))
        return op.exp(-(op.exp(self.A_log.astype("float32")) * steps)), beta

    def output_gate(self, extra: Tensor) -> Tensor:
        return op.sigmoid(self.heads(self.g_b_proj(op.split(extra, 2, axis=1)[1])))
