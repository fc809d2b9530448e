"""Upper bounds of sizes in floating point, to detect overflow of 64-bit arithmetic before it happens."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.expr import BinaryOp, Cast, IntImm, PrimExpr, Var
from .. import llvm_ir as ll
from ..expressions import CodegenError
from ..values import F64

LARGEST = float(1 << 47)  # bytes that a process can address


def magnitude(b: ll.IRBuilder, size: PrimExpr, env: Mapping[int, ll.Value]) -> ll.Value:
    """Emit an upper bound of ``|size|`` as a double. env: values of its variables, by identity."""
    if isinstance(size, IntImm):
        return ll.Constant(F64, float(abs(size.value)))
    if isinstance(size, Var):
        return _absolute(b, b.sitofp(env[id(size)], F64))
    if isinstance(size, Cast):
        return magnitude(b, size.value, env)
    if not isinstance(size, BinaryOp):
        raise CodegenError(f"a size holds a {type(size).__name__}; expected arithmetic on sizes")
    x, y = magnitude(b, size.a, env), magnitude(b, size.b, env)
    if size.op == "*":
        return b.fmul(x, y)
    if size.op == "//":
        return b.fdiv(x, y) if isinstance(size.b, IntImm) and size.b.value else x
    return b.fadd(x, y)


def _absolute(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    negative = b.fcmp_ordered("<", value, ll.Constant(F64, 0.0))
    return b.select(negative, b.fsub(ll.Constant(F64, 0.0), value), value)
