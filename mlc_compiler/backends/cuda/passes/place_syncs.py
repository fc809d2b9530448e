"""Insert the thread block barriers that shared buffers need."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlc_errors import MLCError

from ....ir.expr import PrimExpr
from ....passes.base import FunctionPass
from ....tir.nodes import (
    VECTORIZED,
    Allocate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ....tir.threads import THREAD_AXES, is_bound, rewrite_kernels, storage_sync, sync_scope, thread_loops
from ....tir.varying import Varying
from .shared_accesses import Accesses, SharedAccesses

EXPLICIT = "cuda.explicit_sync"


@dataclass(frozen=True)
class PlaceSyncs(FunctionPass):
    """Insert ``tvm_storage_sync("shared")`` between dependent accesses of shared buffers by different threads.

    A linear scan of every kernel nest: a barrier is placed before the first statement that conflicts with an access
    since the last barrier, also one of the previous iteration of a loop. Existing barriers count. Accesses that are
    provably by one thread, or never to one element, need none. Functions with the attribute ``cuda.explicit_sync``,
    and nests whose outermost loop has it as an annotation, are left as they are. Needs: lowered tensor functions
    without virtual threads. Raises MLCError for a barrier inside a condition or a loop that depends on the thread.
    """

    name = "place-syncs"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return place_syncs(func, name)


def place_syncs(func: PrimFunc, name: str) -> PrimFunc:
    """Insert barriers in one function; see :class:`PlaceSyncs`."""
    if func.attrs.get(EXPLICIT):
        return func

    def planned(nest: For) -> Stmt:
        return nest if nest.annotations.get(EXPLICIT) else _Planner(nest, name).run()

    return replace(func, body=rewrite_kernels(func, planned))


@dataclass
class _Span:
    """A statement with its barriers.

    head: its accesses before the first barrier; tail: the accesses since the last barrier, including those before the
    statement if it has none; synced: whether every path through it meets a barrier.
    """

    stmt: Stmt
    head: Accesses
    tail: Accesses
    synced: bool


class _Planner:
    def __init__(self, nest: For, function: str):
        self.nest, self.function = nest, function
        self.shared = SharedAccesses(nest)
        threads = [lp.var for lp in thread_loops(nest)]
        self.varying = Varying(nest, threads, lambda buffer: buffer.scope in ("local", "warp"))
        self.varying.found |= {id(b) for b in self.shared.fragments}
        self.divergent: Stmt | None = None  # the outermost enclosing statement that depends on the thread

    def run(self) -> Stmt:
        return self.scan(self.nest, []).stmt

    def scan(self, s: Stmt, pending: Accesses) -> _Span:
        """``pending``: the accesses since the last barrier before the statement."""
        if isinstance(s, SeqStmt):
            return self._sequence(s, pending)
        if isinstance(s, Allocate):
            span = self.scan(s.body, pending)
            return replace(span, stmt=Allocate(s.buffer, span.stmt))
        if isinstance(s, LetStmt):
            return self._let(s, pending)
        if isinstance(s, For) and is_bound(s) and not self._is_partial(s):
            span = self.scan(s.body, pending)
            return replace(span, stmt=replace(s, body=span.stmt))
        if isinstance(s, For | While | IfThenElse):
            return self._control(s, pending)
        if sync_scope(s) == "shared":
            self._refuse_divergent("there is a barrier")
            return _Span(s, [], [], True)
        return self._leaf(s, s, pending)

    def _is_partial(self, loop: For) -> bool:
        """Whether a thread loop has fewer iterations than the block has threads."""
        return loop.thread in THREAD_AXES and not self.shared.is_full(loop)

    def _sequence(self, s: SeqStmt, pending: Accesses) -> _Span:
        stmts: list[Stmt] = []
        head: Accesses = []
        synced = False
        for child in s.stmts:
            span = self.scan(child, pending)
            head += [] if synced else span.head
            synced |= span.synced
            pending = span.tail
            stmts.append(span.stmt)
        return _Span(SeqStmt(tuple(stmts)), head, pending, synced)

    def _leaf(self, s: Stmt, accessing: Stmt | PrimExpr, pending: Accesses) -> _Span:
        """Scan a statement without inner barriers; ``accessing``: its part with accesses to consider."""
        own = self.shared.of(accessing)
        if self._before(own, pending):
            return _Span(seq(storage_sync(), s), [], own, True)
        return _Span(s, own, [*pending, *own], False)

    def _let(self, s: LetStmt, pending: Accesses) -> _Span:
        value = self._leaf(SeqStmt(()), s.value, pending)
        self.shared.let(s)
        body = self.scan(s.body, value.tail)
        head = value.head + ([] if value.synced else body.head)
        stmt = seq(value.stmt, replace(s, body=body.stmt))
        return _Span(stmt, head, body.tail, value.synced or body.synced)

    # -- conditions and loops

    def _control(self, s: For | While | IfThenElse, pending: Accesses) -> _Span:
        outer = self.divergent
        if outer is None and self._diverges(s):
            self.divergent = s
        inner = self._branches(s) if isinstance(s, IfThenElse) else self._loop(s)
        self.divergent = outer
        if self._before(inner.head, pending):
            return replace(inner, stmt=seq(storage_sync(), inner.stmt), head=[], synced=True)
        return inner if inner.synced else replace(inner, tail=[*pending, *inner.tail])

    def _diverges(self, s: For | While | IfThenElse) -> bool:
        if isinstance(s, For):
            return s.kind == VECTORIZED or is_bound(s) or self.varying.depends(s.extent)
        return self.varying.depends(s.condition)

    def _branches(self, s: IfThenElse) -> _Span:
        condition = self.shared.of(s.condition)
        then = self.scan(s.then_case, condition)
        otherwise = self.scan(s.else_case or SeqStmt(()), condition)
        stmt = IfThenElse(s.condition, then.stmt, otherwise.stmt if s.else_case is not None else None)
        head = [*condition, *then.head, *otherwise.head]
        return _Span(stmt, head, [*then.tail, *otherwise.tail], then.synced and otherwise.synced)

    def _loop(self, s: For | While) -> _Span:
        """Scan a loop; scan its body again, after itself, if it conflicts with its previous iteration."""
        first = self.shared.of(s.extent if isinstance(s, For) else s.condition)
        body = self.scan(s.body, first)
        var = s.var if isinstance(s, For) and not is_bound(s) else None
        carried = [] if is_bound(s) else self.shared.previous(body.tail, var, adjacent=body.synced)
        if self.shared.conflict(carried, [*first, *body.head]) is not None:
            body = self.scan(s.body, [*carried, *first])
            body = replace(body, tail=[a for a in body.tail if a not in carried])
        stmt = replace(s, body=body.stmt)
        head, tail = self.shared.over(var, [*first, *body.head]), self.shared.over(var, [*first, *body.tail])
        return _Span(stmt, head, tail, body.synced and isinstance(s, For) and self.shared.runs(s))

    # -- barriers

    def _before(self, own: Accesses, pending: Accesses) -> bool:
        """Whether a barrier is required before accesses. Raises MLCError in divergent control flow."""
        conflict = self.shared.conflict(pending, own)
        if conflict is None:
            return False
        self._refuse_divergent(f"accesses of the shared buffer {conflict.name!r} need a barrier between them")
        return True

    def _refuse_divergent(self, why: str) -> None:
        if self.divergent is not None:
            raise MLCError(
                f"divergent barrier: {why} inside {_described(self.divergent)}, which not all threads run alike",
                where=[f"function {self.function!r}"],
                hint="move the accesses out of it, so that all threads of the block reach the barrier",
            )


def _described(s: Stmt) -> str:
    if isinstance(s, For):
        return f"the loop {s.var.name!r}"
    return "a condition" if isinstance(s, IfThenElse) else "a while loop"
