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

THREADS = 8 * WARP  # of a block; small enough for any number of registers per thread


@dataclass(frozen=True)
class BindThreads(FunctionPass):
    """Bind parallel loops to blocks and threads; other statements outside of GPU threads run on one thread.

    Needs: lowered tensor functions. Loops and conditions around kernels stay, and run on the host.
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
    """A kernel with one thread for each iteration."""
    dtype = loop.var.dtype
    block, thread = Var("block", dtype), Var("thread", dtype)
    index = block * THREADS + thread
    body = IfThenElse(index < loop.extent, substitute(_Serial()(loop.body), {loop.var: index}))
    threads = For(thread, const(THREADS, dtype), body, THREAD, "threadIdx.x")
    return For(block, ceildiv(loop.extent, THREADS), threads, THREAD, "blockIdx.x")


def _single_thread(stmt: Stmt) -> Stmt:
    threads = For(Var("thread"), const(1, "int64"), _Serial()(stmt), THREAD, "threadIdx.x")
    return For(Var("block"), const(1, "int64"), threads, THREAD, "blockIdx.x")


class _Serial(Rewriter):
    """Makes parallel loops serial."""

    def rewrite_For(self, node: For) -> Stmt:
        node = self.rewrite_children(node)
        return replace(node, kind=SERIAL) if node.kind == PARALLEL else node
