"""Write out unrolled loops, so that what follows sees constant indices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.expr import IntImm, const
from ..ir.module import IRModule
from ..ir.visitor import Rewriter, substitute, walk
from ..tir.nodes import UNROLLED, For, PrimFunc, Stmt, seq
from .base import Pass
from .lower_blocks import Simplify


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Replace ``T.unroll`` loops of constant extent by their iterations.

    The pipeline leaves that to LLVM, which is told to; this is for reading, and for what interprets schedules.
    """

    name = "unroll-loops"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: unroll_loops(f) for name, f in mod.of_type(PrimFunc).items()})


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """One function; see :class:`UnrollLoops`."""
    if not any(isinstance(n, For) and n.kind == UNROLLED for n in walk(func.body)):
        return func
    return replace(func, body=Simplify()(_Unroll()(func.body)))


class _Unroll(Rewriter):
    def rewrite_For(self, node: For) -> Stmt:
        body = self(node.body)
        if node.kind != UNROLLED or not isinstance(node.extent, IntImm):
            return node if body is node.body else replace(node, body=body)
        copies = [substitute(body, {node.var: const(i, node.var.dtype)}) for i in range(node.extent.value)]
        return seq(*copies)
