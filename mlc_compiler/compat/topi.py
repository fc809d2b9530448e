"""``tvm.topi``: operators as tensor expressions, for ``emit_te``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..relax import ops
from ..tir import te


def dense(data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> Any:
    """``data @ weight.T + bias``: data [M, K], weight [N, K], bias [N]; returns [M, N]."""
    return ops.linear.te(data, weight, bias)


add, subtract, multiply, divide = ops.add.te, ops.subtract.te, ops.multiply.te, ops.divide.te
exp, tanh, sigmoid, matmul, transpose = ops.exp.te, ops.tanh.te, ops.sigmoid.te, ops.matmul.te, ops.permute_dims.te
nn = SimpleNamespace(dense=dense, relu=ops.relu.te, softmax=ops.softmax.te)
