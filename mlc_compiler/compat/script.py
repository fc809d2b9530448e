"""``tvm.script``: the names of TVMScript in Python source."""

from __future__ import annotations

from ..script import I, R, T

ir, relax, tir = I, R, T
ir_module = I.ir_module
Tensor, Object = R.Tensor, R.Object

__all__ = ["Object", "Tensor", "ir", "ir_module", "relax", "tir"]
