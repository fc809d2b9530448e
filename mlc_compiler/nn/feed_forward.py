"""Feed-forward blocks of decoder layers: gated or plain, with any activation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from . import op
from .layers import Linear
from .mixture import gated
from .module import Module
from .tensor import Parameter, Tensor

Activation = Callable[[Tensor], Tensor]


def relu_squared(x: Tensor) -> Tensor:
    """``max(x, 0) ** 2`` (So et al. 2021)"""
    return op.square(op.relu(x))


def quick_gelu(x: Tensor) -> Tensor:
    """``x * sigmoid(1.702 x)`` (Hendrycks and Gimpel 2016)"""
    return x * op.sigmoid(x * 1.702)


_tanh_gelu = partial(op.gelu, approximate="tanh")
ACTIVATIONS: dict[str, Activation] = {
    "silu": op.silu,
    "swish": op.silu,
    "gelu": op.gelu,
    "quick_gelu": quick_gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": op.relu,
    "relu2": relu_squared,
}
"""Activation functions by the names in Hugging Face's configurations."""


class XIELU(Module):
    """xIELU activation (Huang and Schlag 2024) with two learned scalars, [1] each, as in checkpoints.

    With ``p = softplus(alpha_p)`` and ``n = beta + softplus(alpha_n)``: ``p x^2 + beta x`` for positive x, else
    ``n (expm1(min(x, epsilon)) - x) + beta x``.
    """

    def __init__(self, beta: float = 0.5, epsilon: float = -1e-6):
        self.beta, self.epsilon = beta, epsilon
        self.alpha_p, self.alpha_n = Parameter((1,)), Parameter((1,))

    def forward(self, x: Tensor) -> Tensor:
        positive = op.softplus(self.alpha_p.astype(x.dtype))
        negative = op.softplus(self.alpha_n.astype(x.dtype)) + self.beta
        below = (op.exp(op.minimum(x, self.epsilon)) - 1.0 - x) * negative
        return op.where(x > 0.0, op.square(x) * positive, below) + x * self.beta


class GatedMLP(Module):
    """``down(activation(gate(x)) * up(x))``; gate and up are one matmul, in this order (Shazeer 2020).

    bias: all projections have a bias; down_bias: ``down`` has one. limit: see ``mixture.gated``.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Activation = op.silu,
        bias: bool = False,
        *,
        down_bias: bool = False,
        limit: float | None = None,
    ):
        self.activation, self.limit = activation, limit
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size, bias=bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias or down_bias)

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Apply to x [..., D]. added: [..., 2 * intermediate_size], added to gate and up."""
        gate_up = self.gate_up_proj(x) if added is None else self.gate_up_proj(x) + added
        return self.down_proj(gated(self.activation, self.limit)(gate_up))


class MLP(Module):
    """``down(activation(up(x)))``"""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: Activation, bias: bool = False):
        self.up_proj = Linear(hidden_size, intermediate_size, bias=bias)
        self.activation = activation
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.up_proj(x)))
