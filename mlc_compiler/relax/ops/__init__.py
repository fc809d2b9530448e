"""Graph operators, by name. ``ops.add(x, y)`` builds a call; ``get_operator("add")`` tells what it computes.

Names and argument order are those of Apache TVM's Relax.
"""

from __future__ import annotations

from . import create, elementwise, manipulate, normalize, reduce, search
from . import linear as products
from .create import (
    arange,
    full,
    ones,
    zeros,
)
from .elementwise import (
    abs,
    add,
    astype,
    ceil,
    clip,
    cos,
    divide,
    equal,
    erf,
    exp,
    floor,
    floor_divide,
    floor_mod,
    gelu,
    gelu_tanh,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    power,
    relu,
    round,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sqrt,
    subtract,
    tanh,
    where,
)
from .linear import (
    dequantize,
    linear,
    matmul,
)
from .manipulate import (
    broadcast_to,
    concat,
    expand_dims,
    permute_dims,
    reshape,
    split,
    squeeze,
    strided_slice,
    take,
    tril,
    triu,
)
from .normalize import (
    layer_norm,
    rms_norm,
    softmax,
)
from .reduce import (
    argmax,
    argmin,
    cumprod,
    cumsum,
    max,
    mean,
    min,
    sum,
    variance,
)
from .registry import Operator, OperatorError
from .search import (
    argsort,
    sort,
    topk,
)

__all__ = [
    "Operator",
    "OperatorError",
    "abs",
    "add",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "astype",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "cos",
    "cumprod",
    "cumsum",
    "dequantize",
    "divide",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "gelu",
    "gelu_tanh",
    "get_operator",
    "greater",
    "greater_equal",
    "layer_norm",
    "less",
    "less_equal",
    "linear",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "ones",
    "permute_dims",
    "power",
    "relu",
    "reshape",
    "rms_norm",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "squeeze",
    "strided_slice",
    "subtract",
    "sum",
    "take",
    "tanh",
    "topk",
    "tril",
    "triu",
    "variance",
    "where",
    "zeros",
]

FAMILIES = (create, elementwise, products, manipulate, normalize, reduce, search)
OPERATORS = {o.name: o for family in FAMILIES for o in vars(family).values() if isinstance(o, Operator)}


def get_operator(name: str) -> Operator:
    """The operator of this name. Raises OperatorError for an unknown one."""
    if name not in OPERATORS:
        raise OperatorError(f"unknown operator {name!r}", hint=f"operators: {', '.join(sorted(OPERATORS))}")
    return OPERATORS[name]
