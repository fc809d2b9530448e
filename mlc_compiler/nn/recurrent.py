"""Layers with a recurrent state: short convolutions.

T tokens of the call, of any sequences; see ``relax.ops.recurrent``.
"""

from __future__ import annotations

from ..relax import ops
from .module import Module
from .states import RecurrentState, SequenceArray
from .tensor import Parameter, Tensor

CONV = "conv"
"""The name of the array that convolutions use."""


class CausalConv(Module):
    """A causal depthwise convolution of ``taps`` tokens of a sequence, perhaps with SiLU.

    The weight is [taps, channels]: ``weight_expr.Taps`` of a checkpoint's [channels, 1, taps].
    """

    def __init__(self, channels: int, taps: int, bias: bool = False, activation: str = "", dtype: str = "float32"):
        self.activation = activation
        self.weight = Parameter((taps, channels), dtype)
        self.bias = Parameter((channels,), dtype) if bias else None

    @staticmethod
    def array(channels: int, taps: int) -> SequenceArray:
        """The state of one layer."""
        return SequenceArray(CONV, (taps - 1, channels))

    def forward(self, x: Tensor, state: RecurrentState, layer: int, first: int = 0) -> Tensor:
        """x [T, W], of which columns from ``first`` on are taken -> [T, channels]"""
        more = () if self.bias is None else (self.bias,)
        attrs = {"first": first, "activation": self.activation}
        return state.update(CONV, ops.causal_conv, layer, x, self.weight, more=more, **attrs)
