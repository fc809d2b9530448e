"""GPU threads in the loop IR: axes that loops are bound to, kernel nests, barriers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeGuard

from mlc_errors import MLCError

from ..ir.expr import Call, IntImm, PrimExpr, StringImm, cast, const
from ..ir.linear import key
from ..ir.visitor import Rewriter, substitute, walk
from .nodes import THREAD, Evaluate, For, IfThenElse, PrimFunc, Stmt

BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL_AXES = ("vthread", "vthread.x", "vthread.y", "vthread.z")
SHARING_AXES = (*THREAD_AXES, *VIRTUAL_AXES)
"""Axes over whose loops a ``shared`` buffer is shared."""
AXES = (*BLOCK_AXES, *THREAD_AXES, *VIRTUAL_AXES)
STORAGE_SYNC = "tvm_storage_sync"


def is_bound(stmt: object, axes: Collection[str] = AXES) -> TypeGuard[For]:
    """Whether a statement is a loop bound to one of ``axes``."""
    return isinstance(stmt, For) and stmt.kind == THREAD and stmt.thread in axes


def storage_sync(scope: str = "shared") -> Evaluate:
    """A barrier of all threads of a thread block (``shared``) or of a warp (``warp``)."""
    return Evaluate(Call(STORAGE_SYNC, (StringImm(scope),), "handle"))


def sync_scope(stmt: object) -> str | None:
    """The scope of a barrier statement; None for any other statement."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    if not isinstance(call, Call) or call.op != STORAGE_SYNC or not isinstance(call.args[0], StringImm):
        return None
    return call.args[0].value


def has_sync(stmt: object, scope: str = "shared") -> bool:
    """Whether a statement contains a barrier of that scope."""
    return any(sync_scope(node) == scope for node in walk(stmt))


def thread_loops(stmt: object) -> list[For]:
    """The loops over ``threadIdx`` axes inside a statement, outermost first."""
    return [node for node in walk(stmt) if is_bound(node, THREAD_AXES)]


def launch_extents(nest: Stmt) -> dict[str, int]:
    """The number of threads per thread block along each axis that a kernel nest uses, in the order x, y, z.

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
    """The body of a function with ``rewrite`` applied to every kernel nest (outermost loop bound to a GPU axis)."""
    return _KernelRewriter(rewrite)(func.body)


class _KernelRewriter(Rewriter):
    def __init__(self, rewrite: Callable[[For], Stmt]):
        self.rewrite = rewrite

    def rewrite_For(self, node: For) -> Stmt:
        return self.rewrite(node) if is_bound(node) else self.rewrite_children(node)


def merge_nested_threads(stmt: Stmt) -> Stmt:
    """Remove thread loops nested in a loop over the same axis, since both enumerate the same threads.

    An inner loop of smaller extent becomes a condition. Raises MLCError for one of larger extent.
    """
    return _MergeNested()(stmt)


class _MergeNested(Rewriter):
    def __init__(self) -> None:
        self.open: dict[str, For] = {}

    def __call__(self, node: Any) -> Any:
        return node if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_For(self, node: For) -> Stmt:
        axis = node.thread
        if axis is None:
            return self.rewrite_children(node)
        if axis in self.open:
            return self._merged(self.open[axis], node)
        self.open[axis] = node
        result = self.rewrite_children(node)
        del self.open[axis]
        return result

    def _merged(self, outer: For, inner: For) -> Stmt:
        body = self(substitute(inner.body, {inner.var: cast(inner.var.dtype, outer.var)}))
        extents = outer.extent, inner.extent
        if key(outer.extent) == key(inner.extent):
            return body
        sizes = [e.value for e in extents if isinstance(e, IntImm)]
        if len(sizes) < 2 or sizes[1] > sizes[0]:
            raise MLCError(
                f"loop {inner.var.name!r} has more iterations than {outer.var.name!r} around it, which is over "
                f"{outer.thread} too",
                hint="loops over one axis inside of each other are the same threads: split the inner one first",
            )
        return IfThenElse(outer.var < const(sizes[1], outer.var.dtype), body)
