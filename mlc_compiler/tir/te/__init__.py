"""Tensor expressions: a formula for each element of a tensor; ``create_prim_func`` turns them into loops and blocks.

n = te.var("n")
A = te.placeholder((n, 64), "float32", "A")
k = te.reduce_axis(64, "k")
S = te.compute((n,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="S")
func = te.create_prim_func([A, S])
"""

from __future__ import annotations

from .expressions import (
    Reduce,
    ReduceAxis,
    Tensor,
    broadcast_index,
    broadcast_shape,
    call,
    cast,
    collect_assumptions,
    compute,
    cos,
    elementwise,
    erf,
    exp,
    f32,
    if_then_else,
    log,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    require_equal,
    rsqrt,
    scalar,
    select,
    sigmoid,
    sin,
    sqrt,
    sum,
    tanh,
    var,
)
from .prim_func import create_prim_func, reduction_identity
from .statements import Cell, each, extern

__all__ = [
    "Cell",
    "Reduce",
    "ReduceAxis",
    "Tensor",
    "broadcast_index",
    "broadcast_shape",
    "call",
    "cast",
    "collect_assumptions",
    "compute",
    "cos",
    "create_prim_func",
    "each",
    "elementwise",
    "erf",
    "exp",
    "extern",
    "f32",
    "if_then_else",
    "log",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "reduction_identity",
    "require_equal",
    "rsqrt",
    "scalar",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "var",
]
