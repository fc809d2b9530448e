"""Gated delta nets: linear attention whose update overwrites the value that the state associates with a key.

B batch, S sequence, D hidden, T tokens per call, H heads, G key heads, K elements of a key, V elements of a value.
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

LENGTH_EPSILON = 1e-6  # added to the squared norms of queries and keys
STATE = "delta"
"""Name of the state array with the matrices."""


@dataclass(frozen=True)
class DeltaNetSizes:
    """Sizes of a gated delta net. key_heads: heads of queries and keys, a divisor of ``heads``; taps: kernel width."""

    key_heads: int
    heads: int
    key_size: int
    value_size: int
    taps: int

    @property
    def keys(self) -> int:
        """Number of elements of a token's keys."""
        return self.key_heads * self.key_size

    @property
    def values(self) -> int:
        """Number of elements of a token's values."""
        return self.heads * self.value_size

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def arrays(self) -> tuple[SequenceArray, ...]:
        """The state arrays of a layer."""
        matrices = SequenceArray(STATE, (self.heads, self.key_size, self.value_size))
        return CausalConv.array(self.channels, self.taps), matrices


class DeltaNet(Module):
    """Base class of gated delta nets. Maps x [B, S, D] to [B, S, D].

    ``in_proj`` computes queries, keys, values and ``extra`` more elements, in this order; the first three pass through
    a short convolution with SiLU. Queries and keys are normalized to unit length, and scores are scaled by
    ``1 / sqrt(K)``. The result is normalized per head and gated.
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
        """Compute decay [T, H] or [T, H, K] and beta [T, H], float32, from x [T, D] and the rest of ``in_proj``."""
        raise NotImplementedError

    def output_gate(self, extra: Tensor) -> Tensor:
        """Compute the output gate [T, H, V] from ``extra``, the rest of ``in_proj``'s result."""
        raise NotImplementedError

    def heads(self, x: Tensor) -> Tensor:
        """Reshape [T, H V] to [T, H, V]."""
        return op.reshape(x, (x.shape[0], self.sizes.heads, self.sizes.value_size))

    def _scaled(self, x: Tensor, length: float) -> Tensor:
        """Reshape [T, G K] to [T, G, K] and scale to ``length``: ``length * x / sqrt(sum of squares + epsilon)``."""
        size = self.sizes.key_size
        vectors = op.reshape(x, (x.shape[0], self.sizes.key_heads, size))
        weight = Tensor(constant(np.full(size, length / math.sqrt(size), np.float32)))
        return op.rms_norm(vectors, weight, epsilon=LENGTH_EPSILON / size)


class GatedDeltaNet(DeltaNet):
    """A gated delta net (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule").

    The last part of ``in_proj`` is the output gate before its SiLU. ``in_proj_ba`` computes, for each head, the logit
    of the step size beta and the input ``a`` of the decay ``exp(-exp(A_log) softplus(a + dt_bias))``.

    max_beta: upper bound of beta; above 1, a step may flip the sign of the value stored for a key (Grazzi
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
    """Kimi delta attention (Kimi Team 2025, "Kimi Linear", section 3): a gated delta net with a decay per row.

    The last parts of ``in_proj`` are ``value_size`` elements from which ``f_b_proj`` computes the input ``f`` of the
    decay ``exp(-exp(A_log) softplus(f + dt_bias))``, and as many from which ``g_b_proj`` computes the output gate
    before its sigmoid. ``b_proj`` computes the logit of each head's step size beta. ``sizes.key_heads`` is
    ``sizes.heads``.
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
