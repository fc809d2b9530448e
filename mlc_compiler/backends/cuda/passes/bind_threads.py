"""Turn statements outside of GPU threads into kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.expr import Var, ceildiv, const
from ....ir.visitor import Rewriter, substitute, walk
from ....passes.base import FunctionPass
from ....tir.nodes import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    Allocate,
    BufferLoad,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from ....tir.threads import is_bound
from ..machine import WARP

THREADS = "cuda.threads"
"""The annotation of a parallel loop for the threads of a block."""
ITERATIONS = "cuda.iterations"
"""The annotation of a parallel loop for its iterations that a thread runs, unrolled."""
DEFAULT_THREADS = 8 * WARP  # small enough for any number of registers per thread


@dataclass(frozen=True)
class BindThreads(FunctionPass):
    """Bind parallel loops to blocks and threads; other statements outside of GPU threads run on one thread.

    Annotations of a loop: ``cuda.threads``, the threads of a block, by default 256; ``cuda.iterations``, those that a
    thread runs, by default 1. Adjacent threads run adjacent iterations. Needs: lowered tensor functions. Loops and
    conditions around kernels stay, and run on the host.
    """

    name = "bind-threads"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return replace(func, body=_bound(func.body))


def has_kernels(stmt: Stmt) -> bool:
    """Whether a statement has loops over GPU threads."""
    return any(is_bound(n) for n in walk(stmt))


def _bound(stmt: Stmt) -> Stmt:
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(map(_bound, stmt.stmts)))
    if is_bound(stmt):
        return stmt
    if isinstance(stmt, For) and stmt.kind == PARALLEL and not has_kernels(stmt):
        return _parallel_kernel(stmt)
    if _runs_on_host(stmt):
        return _around(stmt)
    return _single_thread(stmt)


def _runs_on_host(stmt: Stmt) -> bool:
    """Whether a statement is control flow around kernels that depends on scalar parameters only."""
    if not any(isinstance(n, For) and n.kind in (THREAD, PARALLEL) for n in walk(stmt)):
        return False
    if isinstance(stmt, For):
        return not _loads(stmt.extent)
    if isinstance(stmt, LetStmt):
        return not _loads(stmt.value)
    if isinstance(stmt, IfThenElse):
        return not _loads(stmt.condition)
    return isinstance(stmt, Allocate)


def _loads(node: object) -> bool:
    return any(isinstance(n, BufferLoad) for n in walk(node))


def _around(stmt: Stmt) -> Stmt:
    if isinstance(stmt, IfThenElse):
        otherwise = None if stmt.else_case is None else _bound(stmt.else_case)
        return replace(stmt, then_case=_bound(stmt.then_case), else_case=otherwise)
    assert isinstance(stmt, For | LetStmt | Allocate)
    return replace(stmt, body=_bound(stmt.body))


def _parallel_kernel(loop: For) -> Stmt:
    """A kernel whose threads run the iterations of a loop."""
    dtype = loop.var.dtype
    count, iterations = loop.annotations.get(THREADS, DEFAULT_THREADS), loop.annotations.get(ITERATIONS, 1)
    block, thread, step = Var("block", dtype), Var("thread", dtype), Var("step", dtype)
    first = block if iterations == 1 else block * iterations + step
    index = first * count + thread
    body: Stmt = IfThenElse(index < loop.extent, substitute(_Serial()(loop.body), {loop.var: index}))
    if iterations > 1:
        body = For(step, const(iterations, dtype), body, UNROLLED)
    threads = For(thread, const(count, dtype), body, THREAD, "threadIdx.x")
    return For(block, ceildiv(loop.extent, count * iterations), threads, THREAD, "blockIdx.x")


def _single_thread(stmt: Stmt) -> Stmt:
    threads = For(Var("thread"), const(1, "int64"), _Serial()(stmt), THREAD, "threadIdx.x")
    return For(Var("block"), const(1, "int64"), threads, THREAD, "blockIdx.x")


class _Serial(Rewriter):
    """Makes parallel loops serial."""

    def rewrite_For(self, node: For) -> Stmt:
        node = self.rewrite_children(node)
        return replace(node, kind=SERIAL) if node.kind == PARALLEL else node
