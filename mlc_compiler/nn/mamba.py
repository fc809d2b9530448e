"""Mamba and Mamba-2: selective state-space models.

B batch, S sequence, D hidden, T tokens per call, H heads of P channels each, N state elements per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..relax import ops
from . import op
from .layers import Linear
from .module import Module
from .recurrent import CausalConv, flat
from .states import RecurrentState, SequenceArray
from .tensor import Parameter, Tensor

SSM = "ssm"
"""Name of the state array with the scan states."""


@dataclass(frozen=True)
class Mamba2Sizes:
    """Sizes of Mamba-2. groups: number of B and C vectors, each shared by adjacent heads; taps: kernel width."""

    hidden_size: int
    heads: int
    head_dim: int
    state_size: int
    groups: int
    taps: int

    @property
    def inner(self) -> int:
        """Number of channels of all heads."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Number of channels of x, B and C together."""
        return self.inner + 2 * self.groups * self.state_size

    @property
    def arrays(self) -> tuple[SequenceArray, ...]:
        """The state arrays of one layer."""
        scan = SequenceArray(SSM, (self.heads, self.state_size, self.head_dim))
        return CausalConv.array(self.convolved, self.taps), scan


class Mamba2(Module):
    """A layer of Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", figure 6): x [B, S, D] -> [B, S, D].

    ``in_proj`` computes a gate, x, B, C and dt, in this order; x, B and C pass through a short convolution with SiLU.
    The scan is the operator ``recurrent.ssd``. Its result is multiplied by SiLU of the gate and normalized, in
    this order, or in the other with ``norm_first``. dt_limits: minimum and maximum step, () for none.
    """

    def __init__(
        self,
        sizes: Mamba2Sizes,
        norm: Module | None,
        *,
        bias: bool = False,
        out_bias: bool = False,
        conv_bias: bool = True,
        norm_first: bool = False,
        dt_limits: Sequence[float] = (),
    ):
        self.sizes, self.norm_first, self.dt_limits = sizes, norm_first, tuple(dt_limits)
        self.in_proj = Linear(sizes.hidden_size, sizes.inner + sizes.convolved + sizes.heads, bias=bias)
        self.conv1d = CausalConv(sizes.convolved, sizes.taps, conv_bias, "silu")
        self.dt_bias, self.A, self.D = (Parameter((sizes.heads,)) for _ in range(3))
        self.norm = norm
        self.out_proj = Linear(sizes.inner, sizes.hidden_size, bias=out_bias)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        sizes, projected = self.sizes, flat(self.in_proj(x))
        xbc = self.conv1d(projected, state, layer, sizes.inner)
        y = state.update(
            SSM,
            ops.ssd,
            layer,
            *(xbc, projected, self.dt_bias, self.A, self.D),
            groups=sizes.groups,
            dt_first=sizes.inner + sizes.convolved,
            dt_limits=self.dt_limits,
        )
        gate, _ = op.split(projected, [sizes.inner], axis=1)
        y = self._gated(op.reshape(y, (y.shape[0], sizes.inner)), op.silu(gate))
        return self.out_proj(op.reshape(y, (*x.shape[:-1], sizes.inner)))

    def _gated(self, y: Tensor, gate: Tensor) -> Tensor:
        if self.norm is None:
            return y * gate
        return self.norm(y) * gate if self.norm_first else self.norm(y * gate)


@dataclass(frozen=True)
class MambaSizes:
    """Sizes of a Mamba layer. channels: C of the scan; rank: size of dt's low-rank input; taps: convolution width."""

    hidden_size: int
    channels: int
    state_size: int
    rank: int
    taps: int

    @property
    def arrays(self) -> tuple[SequenceArray, ...]:
        """The state arrays of one layer."""
        scan = SequenceArray(SSM, (1, self.state_size, self.channels))
        return CausalConv.array(self.channels, self.taps), scan


class Mamba(Module):
    """A layer of Mamba (Gu and Dao 2023, figure 3): x [B, S, D] -> [B, S, D].

    ``in_proj`` computes x and a gate, in this order; x passes through a short convolution with SiLU. dt, B and C are
    projected from it by ``x_proj``, each with an optional norm. The scan is the operator ``recurrent.selective_scan``.
    """

    def __init__(
        self,
        sizes: MambaSizes,
        *,
        bias: bool = False,
        conv_bias: bool = True,
        dt_norm: Module | None = None,
        b_norm: Module | None = None,
        c_norm: Module | None = None,
    ):
        self.sizes = sizes
        self.in_proj = Linear(sizes.hidden_size, 2 * sizes.channels, bias=bias)
        self.conv1d = CausalConv(sizes.channels, sizes.taps, conv_bias, "silu")
        self.x_proj = Linear(sizes.channels, sizes.rank + 2 * sizes.state_size, bias=False)
        self.dt_proj = Linear(sizes.rank, sizes.channels)
        self.A, self.D = Parameter((sizes.state_size, sizes.channels)), Parameter((sizes.channels,))
        self.dt_layernorm, self.b_layernorm, self.c_layernorm = dt_norm, b_norm, c_norm
        self.out_proj = Linear(sizes.channels, sizes.hidden_size, bias=bias)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        sizes, projected = self.sizes, flat(self.in_proj(x))
        u = self.conv1d(projected, state, layer)
        parts = op.split(self.x_proj(u), [sizes.rank, sizes.rank + sizes.state_size], axis=1)
        norms = (self.dt_layernorm, self.b_layernorm, self.c_layernorm)
        dt, b, c = (norm(part) if norm else part for norm, part in zip(norms, parts, strict=True))
        step = op.softplus(self.dt_proj(dt).astype("float32"))
        shape = (u.shape[0], 1, sizes.channels)
        operands = (op.reshape(u, shape), op.reshape(step, shape), b, c, self.A, self.D)
        y = op.reshape(state.update(SSM, ops.selective_scan, layer, *operands), u.shape)
        gate = op.split(projected, 2, axis=1)[1]
        return self.out_proj(op.reshape(y * op.silu(gate), (*x.shape[:-1], sizes.channels)))
