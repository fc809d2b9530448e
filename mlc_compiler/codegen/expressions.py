"""Emit scalar expressions as LLVM values; inside a vectorized loop, as vectors over its lanes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from ..ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, Select, Var
from ..ir.visitor import walk
from ..tir.intrinsics import find_tensor_intrin
from . import llvm_ir as ll
from . import values as v
from .arithmetic import CodegenError, operate
from .byte_lookup import LOOKUP_BYTES, lookup_bytes
from .conversions import literal
from .emitter import Lanes
from .functions import call
from .instructions import emit_tensor_intrin
from .memory import MemoryEmitter

__all__ = ["CodegenError", "ExprEmitter", "Lanes"]

CONTRACT = ("contract",)
REASSOCIATE = (*CONTRACT, "reassoc", "nsz")
NODES_WORTH_A_BRANCH = 60


class ExprEmitter(MemoryEmitter):
    """Emits expressions. accumulation: the scalar sum that may be reassociated.

    A sum rounds in the same way in every function, so that a token's result does not depend on the number of tokens
    beside it: multiplications are fused with additions here, not by LLVM, and sums of vectors keep their order
    (``interleave-reductions`` gives them enough accumulators).
    """

    accumulation: PrimExpr | None = None

    def __call__(self, e: PrimExpr) -> ll.Value:
        method: Callable[[PrimExpr], ll.Value] | None = getattr(self, f"emit_{type(e).__name__}", None)
        if method is None:
            raise CodegenError(f"no code for {type(e).__name__}: {e!r}")
        return method(e)

    def emit_Var(self, e: Var) -> ll.Value:
        if self.lanes is not None and e is self.lanes.var:
            element = v.value_type(e.dtype)
            steps = [ll.Constant(element, i) for i in range(self.lanes.count)]
            return ll.Constant(ll.VectorType(element, self.lanes.count), steps)
        if id(e) not in self.env:
            raise CodegenError(f"variable {e.name!r} has no value here")
        return self.env[id(e)]

    def emit_ReduceAxis(self, e: Var) -> ll.Value:
        return self.emit_Var(e)

    def emit_IntImm(self, e: IntImm) -> ll.Value:
        return ll.Constant(v.value_type(e.dtype), e.value)

    def emit_FloatImm(self, e: FloatImm) -> ll.Value:
        return literal(e.value, e.dtype)

    def emit_Cast(self, e: Cast) -> ll.Value:
        return self.convert(self(e.value), e.value.dtype, e.dtype)

    def emit_Not(self, e: Not) -> ll.Value:
        return self.b.not_(self(e.value))

    def emit_Let(self, e: Let) -> ll.Value:
        body: PrimExpr = e
        while isinstance(body, Let):
            self.define(body.var, body.value)
            body = body.body
        return self(body)

    def emit_Select(self, e: Select) -> ll.Value:
        c, a, d = v.same_lanes(self.b, self(e.condition), self(e.true_value), self(e.false_value))
        return self.b.select(c, a, d)

    def emit_BinaryOp(self, e: BinaryOp) -> ll.Value:
        reassociated = e is self.accumulation and self.lanes is None
        if not reassociated and (fused := self._multiply_add(e)) is not None:
            return fused
        flags = REASSOCIATE if reassociated else CONTRACT if e.op == "*" else ()
        a, d = v.same_lanes(self.b, self(e.a), self(e.b))
        return operate(self.b, e.op, a, d, e.a.dtype, flags, "convert_float16" in self.capabilities)

    def _multiply_add(self, e: BinaryOp) -> ll.Value | None:
        """Fuse ``x * y + z``, ``x * y - z`` or ``z - x * y``; None for others and without the instruction."""
        if e.op not in ("+", "-") or e.dtype not in ("float32", "float64") or "fma" not in self.capabilities:
            return None
        first = _is_product(e.a)
        product, other = (e.a, e.b) if first else (e.b, e.a)
        if not (isinstance(product, BinaryOp) and _is_product(product)):
            return None
        x, y, z = v.same_lanes(self.b, self(product.a), self(product.b), self(other))
        if e.op == "-":
            x, z = (x, self.b.fneg(z)) if first else (self.b.fneg(x), z)
        return call(self.b, "fma", [x, y, z], e.dtype, e.dtype, self.capabilities)

    def emit_Call(self, e: Call) -> ll.Value:
        if e.op == "if_then_else":
            return self._lazy_select(e)
        if e.op.startswith("intrinsic."):
            return emit_tensor_intrin(self, find_tensor_intrin(e.op.removeprefix("intrinsic.")), e.args)
        if e.op == LOOKUP_BYTES:
            return lookup_bytes(
                self.b, self(e.args[0]), [w.value for w in e.args[1:] if isinstance(w, IntImm)], self.target
            )
        if not e.args:
            raise CodegenError(f"no code for the function {e.op!r} without arguments")
        args = v.same_lanes(self.b, *(self(a) for a in e.args))
        return call(self.b, e.op, args, e.args[0].dtype, e.dtype, self.capabilities)

    # -- if_then_else -------------------------------------------------------------------------------------------

    def _lazy_select(self, e: Call) -> ll.Value:
        condition = self(e.args[0])
        if v.lanes_of(condition) > 1:
            return self._masked_select(e, condition)
        with self.b.if_else(condition) as (then, otherwise):
            with then:
                a = self(e.args[1])
                a_block = self.b.block
            with otherwise:
                d = self(e.args[2])
                d_block = self.b.block
        if v.lanes_of(a) != v.lanes_of(d):
            a, d = self._splat_in(a_block, a, v.lanes_of(d)), self._splat_in(d_block, d, v.lanes_of(a))
        phi = self.b.phi(a.type)
        phi.add_incoming(a, a_block)
        phi.add_incoming(d, d_block)
        return phi

    def _splat_in(self, block: ll.Block, value: ll.Value, lanes: int) -> ll.Value:
        with self.b.goto_block(block):
            return v.splat(self.b, value, lanes)

    def _masked_select(self, e: Call, condition: ll.Value) -> ll.Value:
        """Emit both sides under masks; branch around a long computation of the true side if no lane needs it."""
        d = self.under(self.b.not_(condition), lambda: self(e.args[2]))
        if sum(1 for _ in islice(walk(e.args[1]), NODES_WORTH_A_BRANCH)) < NODES_WORTH_A_BRANCH:
            a = self.under(condition, lambda: self(e.args[1]))
        else:
            a = self._if_any_lane(condition, e.args[1])
        c, a, d = v.same_lanes(self.b, condition, a, d)
        return self.b.select(c, a, d)

    def _if_any_lane(self, condition: ll.Value, e: PrimExpr) -> ll.Value:
        needed = self.any_lane(condition)
        before = self.b.block
        with self.b.if_then(needed, likely=False):
            value = self.under(condition, lambda: self(e))
            end = self.b.block
        phi = self.b.phi(value.type)
        phi.add_incoming(value, end)
        phi.add_incoming(ll.Constant(value.type, ll.Undefined), before)
        return phi


def _is_product(e: PrimExpr) -> bool:
    return isinstance(e, BinaryOp) and e.op == "*"
