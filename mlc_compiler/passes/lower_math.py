"""Lower elementary functions to arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import dtype as dt
from ..ir.expr import Call, Cast, PrimExpr, cast
from ..ir.module import IRModule
from ..ir.visitor import Rewriter
from ..tir.math import F32, ON_CPU, Rules
from ..tir.nodes import PrimFunc
from .base import Pass

KEPT = frozenset({"address_of", "if_then_else", "reinterpret", "likely"})


@dataclass(frozen=True)
class LowerMath(Pass):
    """Replace calls of exp, tanh, sigmoid, erf, sin, cos, log, pow … by the expressions in ``rules``.

    Floats narrower than float32 are computed in float32 and rounded. rules: for CPUs by default, which expand
    float32 to arithmetic that vectorizes, and keep float64 functions as calls of the C library; functions that it lacks
    are expressed by others. ``tir/math`` defines the formulas and their error bounds.
    """

    name = "lower-math"
    rules: Rules = field(default_factory=lambda: ON_CPU)

    def run(self, mod: IRModule) -> IRModule:
        rewrite = _LowerCalls(self.rules)
        return mod.updated({name: rewrite(f) for name, f in mod.of_type(PrimFunc).items()})


class _LowerCalls(Rewriter):
    def __init__(self, rules: Rules):
        self.rules = rules

    def rewrite_Call(self, node: Call) -> PrimExpr:
        args = self(node.args)
        operand = args[0].dtype if args else ""
        if node.op in KEPT or "." in node.op or not dt.is_float(operand):
            return node if args is node.args else Call(node.op, args, node.dtype)
        if dt.bits(operand) < 32:
            return self._in_wider_type(node, args)
        rule = self.rules[operand].get(node.op)
        if rule is not None:
            return self(rule(*args))
        return node if args is node.args else Call(node.op, args, node.dtype)

    def _in_wider_type(self, node: Call, args: tuple[PrimExpr, ...]) -> PrimExpr:
        """Compute in a wider type and round once; for ``fma`` that is float64, where its result is exact."""
        inner = "float64" if node.op == "fma" else F32
        result = inner if dt.is_float(node.dtype) else node.dtype
        call = Call(node.op, tuple(cast(inner, a) for a in args), result)
        return Cast(node.dtype, self(call)) if dt.is_float(node.dtype) else self(call)
