"""Innermost loops as long as a SIMD register become SIMD lanes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import dtype as dt
from ..ir.expr import Call, IntImm, Var
from ..ir.module import IRModule
from ..ir.simplify import Analyzer, key
from ..ir.visitor import Rewriter, uses, walk
from ..target import Target
from ..tir.calling import flat_index
from ..tir.nodes import SERIAL, VECTORIZED, BufferLoad, BufferStore, For, PrimFunc, Stmt
from .base import Pass


@dataclass(frozen=True)
class VectorizeShortLoops(Pass):
    """Make SIMD lanes of the innermost serial loops that fit one register.

    Such a loop stores consecutive elements, and what it loads is consecutive, too, or the same in all iterations. LLVM
    unrolls it before it looks for SIMD, and then makes lanes of the loop around it, with gathers. Longer loops are left
    to LLVM. Needs: lowered tensor functions; those whose buffers may overlap stay as they are.
    """

    name = "vectorize-short-loops"
    target: Target

    def run(self, mod: IRModule) -> IRModule:
        apart = {name: f for name, f in mod.of_type(PrimFunc).items() if f.attrs.get("tir.noalias")}
        return mod.updated({name: _Vectorize(self.target)(f) for name, f in apart.items()})


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
        if not isinstance(loop.extent, IntImm) or loop.extent.value not in _powers_of_two(self.target.lanes(widest)):
            return False
        own = [load for load in loads if load.buffer is store.buffer]
        return (
            self._step(store, loop.var) == 1
            and all(self._step(load, loop.var) in (0, 1) for load in loads)
            and all(key(load.indices) == key(store.indices) for load in own)
        )

    def _step(self, access: BufferLoad | BufferStore, var: Var) -> int | None:
        """How many elements an access moves from one iteration to the next; None when that varies."""
        form = self.analyzer.linear(flat_index(access.buffer, access.indices))
        atoms = [(atom, step) for atom, step in form.terms.values() if uses(atom, var)]
        if not atoms:
            return 0
        return atoms[0][1] if len(atoms) == 1 and atoms[0][0] is var else None


def _is_arithmetic(call: Call) -> bool:
    return "." not in call.op and call.op != "address_of"


def _powers_of_two(largest: int) -> set[int]:
    return {1 << i for i in range(1, largest.bit_length())}
