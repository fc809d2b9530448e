"""Elementwise operations, with numpy's broadcasting between tensors and numbers."""

from __future__ import annotations

from ...relax import ops
from ...relax.ops import OperatorError
from ..tensor import Tensor, apply
from .traced import Operand, traced

_BOTH = {"a": Operand, "b": Operand}
_EITHER = {"x1": Operand, "x2": Operand}

add = traced(ops.add, _BOTH)
subtract = traced(ops.subtract, _BOTH)
multiply = traced(ops.multiply, _BOTH)
divide = traced(ops.divide, _BOTH)
power = traced(ops.power, _BOTH)
maximum = traced(ops.maximum, _EITHER)
minimum = traced(ops.minimum, _EITHER)
equal = traced(ops.equal, _BOTH)
not_equal = traced(ops.not_equal, _BOTH)
less = traced(ops.less, _BOTH)
less_equal = traced(ops.less_equal, _BOTH)
greater = traced(ops.greater, _BOTH)
greater_equal = traced(ops.greater_equal, _BOTH)
logical_and = traced(ops.logical_and, _BOTH)
logical_or = traced(ops.logical_or, _BOTH)

logical_not = traced(ops.logical_not)
negative = traced(ops.negative)
abs = traced(ops.abs)
square = traced(ops.square)
sqrt = traced(ops.sqrt)
rsqrt = traced(ops.rsqrt)
exp = traced(ops.exp)
log = traced(ops.log)
sin = traced(ops.sin)
cos = traced(ops.cos)
erf = traced(ops.erf)
floor = traced(ops.floor)
ceil = traced(ops.ceil)
round = traced(ops.round)
tanh = traced(ops.tanh)
sigmoid = traced(ops.sigmoid)
relu = traced(ops.relu)
relu6 = traced(ops.relu6)
silu = traced(ops.silu)
clip = traced(ops.clip)
softplus = traced(ops.softplus)


def where(condition: Tensor, x1: Operand, x2: Operand) -> Tensor:
    """``x1`` where ``condition`` is true (nonzero), else ``x2``."""
    return apply(ops.where, condition.astype("bool"), x1, x2)


def astype(x: Tensor, dtype: str) -> Tensor:
    """Cast the elements to ``dtype``; ``x`` itself when it has that dtype."""
    return x.astype(dtype)


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """``x`` where it is positive, else ``alpha * x``."""
    return apply(ops.leakyrelu, x, alpha=alpha)


def gelu(x: Tensor, approximate: str | None = None) -> Tensor:
    """``x * Phi(x)``; ``approximate="tanh"`` selects the tanh approximation."""
    if approximate not in (None, "none", "tanh"):
        raise OperatorError(f"gelu: approximate is {approximate!r}; expected 'tanh' or None")
    return apply(ops.gelu_tanh if approximate == "tanh" else ops.gelu, x)
