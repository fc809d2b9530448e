"""Vectorize innermost loops that fit one SIMD register."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm
from ....ir.simplify import Analyzer, key
from ....ir.visitor import Rewriter, walk
from ....passes.base import FunctionPass
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import SERIAL, VECTORIZED, BufferLoad, BufferStore, For, PrimFunc, Stmt
from ..machine import Cpu


@dataclass(frozen=True)
class VectorizeShortLoops(FunctionPass):
    """Vectorize the innermost serial loops that fit one SIMD register.

    Such a loop has one store with stride 1 and loads with stride 0 or 1. LLVM would unroll it first, then vectorize the
    loop around it with gathers. Longer loops are left to LLVM. Needs: lowered tensor functions; those without
    ``tir.noalias`` stay as they are.
    """

    name = "vectorize-short-loops"
    target: Target

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return _Vectorize(self.target)(func) if func.attrs.get("tir.noalias") else func


class _Vectorize(Rewriter):
    def __init__(self, target: Target):
        self.target = target
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> Stmt:
        self.analyzer.bind(node.var, node.extent)
        if node.kind == VECTORIZED:
            return node
        if self._fits_register(node):
            return replace(node, kind=VECTORIZED)
        return self.rewrite_children(node)

    def _fits_register(self, loop: For) -> bool:
        store = loop.body
        if loop.kind != SERIAL or loop.annotations or not isinstance(store, BufferStore):
            return False
        loads = [n for n in walk(store.value) if isinstance(n, BufferLoad)]
        if any(isinstance(n, Call) and not _is_arithmetic(n) for n in walk(store.value)):
            return False
        widest = max(dt.bits(buffer.dtype) for buffer in (store.buffer, *(load.buffer for load in loads)))
        if not isinstance(loop.extent, IntImm) or not _is_vector(loop.extent.value, Cpu.of(self.target).lanes(widest)):
            return False
        own = [load for load in loads if load.buffer is store.buffer]
        return (
            step_along(store, loop.var, self.analyzer) == 1
            and all(step_along(load, loop.var, self.analyzer) in (0, 1) for load in loads)
            and all(key(load.indices) == key(store.indices) for load in own)
        )


def _is_arithmetic(call: Call) -> bool:
    return "." not in call.op and call.op != "address_of"


def _is_vector(count: int, lanes: int) -> bool:
    """Whether ``count`` is a power of two from 2 to ``lanes``."""
    return 1 < count <= lanes and count & (count - 1) == 0
