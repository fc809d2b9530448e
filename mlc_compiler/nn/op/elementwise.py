"""Element by element, with numpy's broadcasting between tensors and numbers."""

from __future__ import annotations

from ...relax import ops
from ...relax.ops import OperatorError
from ..tensor import Number, Tensor, apply

Operand = Tensor | Number


def add(a: Operand, b: Operand) -> Tensor:
    return apply(ops.add, a, b)


def subtract(a: Operand, b: Operand) -> Tensor:
    return apply(ops.subtract, a, b)


def multiply(a: Operand, b: Operand) -> Tensor:
    return apply(ops.multiply, a, b)


def divide(a: Operand, b: Operand) -> Tensor:
    return apply(ops.divide, a, b)


def power(a: Operand, b: Operand) -> Tensor:
    """``a`` to the power of ``b``."""
    return apply(ops.power, a, b)


def maximum(x1: Operand, x2: Operand) -> Tensor:
    return apply(ops.maximum, x1, x2)


def minimum(x1: Operand, x2: Operand) -> Tensor:
    return apply(ops.minimum, x1, x2)


def equal(a: Operand, b: Operand) -> Tensor:
    return apply(ops.equal, a, b)


def not_equal(a: Operand, b: Operand) -> Tensor:
    return apply(ops.not_equal, a, b)


def less(a: Operand, b: Operand) -> Tensor:
    return apply(ops.less, a, b)


def less_equal(a: Operand, b: Operand) -> Tensor:
    return apply(ops.less_equal, a, b)


def greater(a: Operand, b: Operand) -> Tensor:
    return apply(ops.greater, a, b)


def greater_equal(a: Operand, b: Operand) -> Tensor:
    return apply(ops.greater_equal, a, b)


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    return apply(ops.logical_and, a, b)


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    return apply(ops.logical_or, a, b)


def logical_not(x: Tensor) -> Tensor:
    return apply(ops.logical_not, x)


def where(condition: Tensor, x1: Operand, x2: Operand) -> Tensor:
    """``x1`` where ``condition`` (bool) holds, else ``x2``."""
    return apply(ops.where, condition, x1, x2)


def astype(x: Tensor, dtype: str) -> Tensor:
    """The elements in another type; ``x`` itself when it has that type."""
    return x.astype(dtype)


def clip(x: Tensor, min: float, max: float) -> Tensor:
    """The elements limited to ``[min, max]``."""
    return apply(ops.clip, x, min=min, max=max)


def negative(x: Tensor) -> Tensor:
    return apply(ops.negative, x)


def abs(x: Tensor) -> Tensor:
    return apply(ops.abs, x)


def square(x: Tensor) -> Tensor:
    return apply(ops.square, x)


def sqrt(x: Tensor) -> Tensor:
    return apply(ops.sqrt, x)


def rsqrt(x: Tensor) -> Tensor:
    """``1 / sqrt(x)``"""
    return apply(ops.rsqrt, x)


def exp(x: Tensor) -> Tensor:
    return apply(ops.exp, x)


def log(x: Tensor) -> Tensor:
    return apply(ops.log, x)


def sin(x: Tensor) -> Tensor:
    return apply(ops.sin, x)


def cos(x: Tensor) -> Tensor:
    return apply(ops.cos, x)


def erf(x: Tensor) -> Tensor:
    return apply(ops.erf, x)


def floor(x: Tensor) -> Tensor:
    return apply(ops.floor, x)


def ceil(x: Tensor) -> Tensor:
    return apply(ops.ceil, x)


def round(x: Tensor) -> Tensor:
    """To the nearest integer, halves to the even one."""
    return apply(ops.round, x)


def tanh(x: Tensor) -> Tensor:
    return apply(ops.tanh, x)


def sigmoid(x: Tensor) -> Tensor:
    return apply(ops.sigmoid, x)


def relu(x: Tensor) -> Tensor:
    return apply(ops.relu, x)


def relu6(x: Tensor) -> Tensor:
    """``x`` limited to ``[0, 6]``."""
    return apply(ops.relu6, x)


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """``x`` where it is positive, else ``alpha * x``."""
    return apply(ops.leakyrelu, x, alpha=alpha)


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``"""
    return apply(ops.silu, x)


def gelu(x: Tensor, approximate: str | None = None) -> Tensor:
    """``x * Phi(x)``; ``approximate="tanh"`` is the tanh formula."""
    if approximate not in (None, "none", "tanh"):
        raise OperatorError(f"gelu: approximate is {approximate!r}; expected 'tanh' or None")
    return apply(ops.gelu_tanh if approximate == "tanh" else ops.gelu, x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above ``threshold``."""
    return apply(ops.softplus, x, beta=beta, threshold=threshold)
