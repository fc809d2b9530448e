"""Scratch memory that several threads share, or that no stack can hold, becomes a parameter of the tensor function."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, Var
from ..ir.module import IRModule
from ..ir.visitor import Rewriter
from ..tir.nodes import PARALLEL, Allocate, Buffer, BufferLoad, BufferStore, For, LetStmt, PrimFunc, Stmt
from .base import Pass

MAX_STACK_BYTES = 1 << 18  # of one buffer: a worker's stack has some megabytes


@dataclass(frozen=True)
class LiftAllocs(Pass):
    """Move allocations to trailing parameters, counted by the attribute ``num_scratch``.

    Moved are those around whole parallel loops, and those inside of them whose size is symbolic or large: these become
    one buffer with a part for each iteration. Needs: lowered tensor functions. The memory plan gives the scratch
    buffers their place in the workspace.
    """

    name = "lift-allocs"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: lift_allocs(f) for name, f in mod.of_type(PrimFunc).items()})


def lift_allocs(func: PrimFunc) -> PrimFunc:
    """One function; see :class:`LiftAllocs`."""
    body, lifted = _strip(func.body)
    inner = _LiftLarge(lifted)
    body = inner(body)
    if not lifted:
        return func
    buffers = func.buffers
    scalars = [p for p in func.params if isinstance(p, Var)]
    params: tuple[Buffer | Var, ...] = (*buffers, *lifted, *scalars)
    return replace(func, params=params, body=body, attrs={**func.attrs, "num_scratch": len(lifted)})


def _strip(stmt: Stmt) -> tuple[Stmt, list[Buffer]]:
    if isinstance(stmt, Allocate):
        body, lifted = _strip(stmt.body)
        return body, [stmt.buffer, *lifted]
    if isinstance(stmt, LetStmt):
        body, lifted = _strip(stmt.body)
        return replace(stmt, body=body), lifted
    return stmt, []


@dataclass
class _LiftLarge(Rewriter):
    """Replaces large allocations inside of parallel loops; collects the new buffers in ``lifted``."""

    lifted: list[Buffer]
    iterations: list[For] = field(default_factory=list)
    parts: dict[int, tuple[Buffer, Var]] = field(default_factory=dict)

    def rewrite_For(self, node: For) -> Stmt:
        if node.kind != PARALLEL:
            return self.rewrite_children(node)
        self.iterations.append(node)
        result = self.rewrite_children(node)
        self.iterations.pop()
        return result

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        if not self.iterations or not _is_large(node.buffer):
            return self.rewrite_children(node)
        loop, buffer = self.iterations[-1], node.buffer
        whole = Buffer(buffer.name, (loop.extent, *buffer.shape), buffer.dtype)
        self.lifted.append(whole)
        self.parts[id(buffer)] = (whole, loop.var)
        return self(node.body)

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferLoad(whole, (part, *node.indices))

    def rewrite_BufferStore(self, node: BufferStore) -> Stmt:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferStore(whole, node.value, (part, *node.indices))


def _is_large(buffer: Buffer) -> bool:
    count = dt.nbytes(buffer.dtype)
    for size in buffer.shape:
        if not isinstance(size, IntImm):
            return True
        count *= size.value
    return count > MAX_STACK_BYTES
