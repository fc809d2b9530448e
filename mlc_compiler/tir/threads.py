"""GPU threads in the loop IR: axes that loops are bound to, kernel nests, barriers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeGuard

from mlc_errors import MLCError

from ..ir.expr import Call, IntImm, StringImm
from ..ir.visitor import Rewriter, walk
from .nodes import THREAD, Evaluate, For, PrimFunc, Stmt

BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL_AXES = ("vthread", "vthread.x", "vthread.y", "vthread.z")
AXES = (*BLOCK_AXES, *THREAD_AXES, *VIRTUAL_AXES)
STORAGE_SYNC = "tvm_storage_sync"


def is_bound(stmt: object, axes: Collection[str] = AXES) -> TypeGuard[For]:
    """Whether a statement is a loop bound to one of ``axes``."""
    return isinstance(stmt, For) and stmt.kind == THREAD and stmt.thread in axes


def storage_sync(scope: str = "shared") -> Evaluate:
    """A barrier: of all threads of a block for ``shared``, of a warp for ``warp``."""
    return Evaluate(Call(STORAGE_SYNC, (StringImm(scope),), "handle"))


def sync_scope(stmt: object) -> str | None:
    """The scope of a barrier; None for any other statement."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    if not isinstance(call, Call) or call.op != STORAGE_SYNC or not isinstance(call.args[0], StringImm):
        return None
    return call.args[0].value


def has_sync(stmt: object, scope: str = "shared") -> bool:
    """Whether a statement contains a barrier of that scope."""
    return any(sync_scope(node) == scope for node in walk(stmt))


def thread_loops(stmt: object) -> list[For]:
    """The loops over threads of a block inside a statement, outermost first."""
    return [node for node in walk(stmt) if is_bound(node, THREAD_AXES)]


def launch_extents(nest: Stmt) -> dict[str, int]:
    """The number of threads of a block along each axis that a kernel nest uses, in the order x, y, z.

    Of several loops over an axis, the one with the largest extent counts. Raises MLCError for an extent that is not
    constant.
    """
    found: dict[str, int] = {}
    for loop in thread_loops(nest):
        assert loop.thread is not None
        if not isinstance(loop.extent, IntImm):
            raise MLCError(f"the extent of loop {loop.var.name!r} over {loop.thread} is not a constant")
        found[loop.thread] = max(found.get(loop.thread, 1), loop.extent.value)
    return {axis: found[axis] for axis in THREAD_AXES if axis in found}


def rewrite_kernels(func: PrimFunc, rewrite: Callable[[For], Stmt]) -> Stmt:
    """The body of a function with every kernel nest, an outermost loop over blocks or threads, rewritten."""
    return _KernelRewriter(rewrite)(func.body)


class _KernelRewriter(Rewriter):
    def __init__(self, rewrite: Callable[[For], Stmt]):
        self.rewrite = rewrite

    def rewrite_For(self, node: For) -> Stmt:
        return self.rewrite(node) if is_bound(node) else self.rewrite_children(node)
