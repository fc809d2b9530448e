"""Layers with a recurrent state: short convolutions.

T: tokens per call, of any sequences; see ``relax.ops.recurrent``.
"""

from __future__ import annotations

from math import prod

from ..relax import ops
from . import op
from .layers import Linear
from .module import Module
from .states import RecurrentState, SequenceArray
from .tensor import Parameter, Tensor

CONV = "conv"
"""Name of the state array of convolutions."""


class CausalConv(Module):
    """A causal depthwise convolution over ``taps`` tokens of a sequence, optionally followed by SiLU.

    The weight is [taps, channels], converted by ``weight_expr.Taps`` from a checkpoint's [channels, 1, taps].
    """

    def __init__(self, channels: int, taps: int, bias: bool = False, activation: str = "", dtype: str = "float32"):
        self.activation = activation
        self.weight = Parameter((taps, channels), dtype)
        self.bias = Parameter((channels,), dtype) if bias else None

    @staticmethod
    def array(channels: int, taps: int) -> SequenceArray:
        """The state array of one layer."""
        return SequenceArray(CONV, (taps - 1, channels))

    def forward(self, x: Tensor, state: RecurrentState, layer: int, first: int = 0) -> Tensor:
        """Apply to columns ``first`` to ``first + channels`` of x [T, W] -> [T, channels]."""
        more = () if self.bias is None else (self.bias,)
        attrs = {"first": first, "activation": self.activation}
        return state.update(CONV, ops.causal_conv, layer, x, self.weight, more=more, **attrs)


class GatedConv(Module):
    """``out(c * conv(b * x))``, where b, c and x [B, S, D] are one projection of the input, in this order (LFM2)."""

    def __init__(self, hidden_size: int, taps: int, bias: bool = False):
        self.in_proj = Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.conv = CausalConv(hidden_size, taps, bias)
        self.out_proj = Linear(hidden_size, hidden_size, bias=bias)

    def forward(self, x: Tensor, state: RecurrentState, layer: int) -> Tensor:
        b, c, inner = op.split(flat(self.in_proj(x)), 3, axis=-1)
        return self.out_proj(op.reshape(c * self.conv(b * inner, state, layer), x.shape))


def flat(x: Tensor) -> Tensor:
    """Flatten [..., W] to [T, W]."""
    return op.reshape(x, (prod(x.shape[:-1]), x.shape[-1]))
