"""Accesses of shared buffers in a kernel nest, and whether two of them need a barrier in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ....ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, cast, const
from ....ir.simplify import Analyzer, key
from ....ir.visitor import free_vars, substitute, walk
from ....tir.intrinsics import find_tensor_intrin
from ....tir.nodes import Buffer, BufferLoad, Evaluate, For, LetStmt, Range, SeqStmt, Stmt
from ....tir.schedule.access import accesses_in
from ....tir.schedule.affine import equal_variables
from ....tir.schedule.dependence import same_element
from ....tir.threads import launch_extents, thread_loops

MAX_STAGES = 16  # of a pipeline through shared memory


@dataclass(frozen=True)
class SharedAccess:
    """A box of a shared buffer that a thread reads or writes.

    loops: variables of finished loops; the access may be from any of their iterations. earlier: variable of a loop; the
    access is from an earlier iteration of it. collective: whether several threads execute it together.
    """

    buffer: Buffer
    box: tuple[Range, ...]
    is_write: bool
    loops: tuple[Var, ...] = ()
    earlier: Var | None = None
    collective: bool = False


Accesses = list[SharedAccess]


class SharedAccesses:
    """Collects and compares the accesses of one kernel nest. Loops over one thread axis share a variable."""

    def __init__(self, nest: For):
        self.analyzer = Analyzer()
        self.threads: dict[str, Var] = {}
        self.loaded: list[Var] = []
        self.extents = launch_extents(nest)
        for axis, extent in self.extents.items():
            self.threads[axis] = Var(axis)
            self.analyzer.bind(self.threads[axis], extent)
        self.mapping: dict[Var, PrimExpr] = {
            lp.var: cast(lp.var.dtype, self.threads[str(lp.thread)]) for lp in thread_loops(nest)
        }
        for loop in (n for n in walk(nest) if isinstance(n, For) and n.var not in self.mapping):
            self.analyzer.bind(loop.var, substitute(loop.extent, self.mapping))
        self.fragments = {n.buffer for n in walk(nest) if isinstance(n, BufferLoad) and n.buffer.scope == "warp"}

    def is_full(self, loop: For) -> bool:
        """Whether a thread loop is run by all threads of the block."""
        return isinstance(loop.extent, IntImm) and loop.extent.value == self.extents[str(loop.thread)]

    def runs(self, loop: For) -> bool:
        """Whether a loop has at least one iteration."""
        return self.analyzer.prove(loop.extent >= 1)

    def let(self, stmt: LetStmt) -> None:
        """Substitute a variable in accesses that are collected from here on, unless its value is loaded from memory."""
        if any(isinstance(n, BufferLoad) for n in walk(stmt.value)):
            self.loaded.append(stmt.var)
        else:
            self.mapping[stmt.var] = substitute(stmt.value, self.mapping)

    def of(self, node: Stmt | PrimExpr) -> Accesses:
        """The distinct accesses of a statement without loops and conditions, or of an expression."""
        stmt = LetStmt(Var("value", node.dtype), node, SeqStmt(())) if isinstance(node, PrimExpr) else node
        collective = _is_collective(stmt)
        found = [
            SharedAccess(a.buffer, substitute(a.box, self.mapping), a.is_write, collective=collective)
            for a in accesses_in(stmt)
            if a.buffer.scope == "shared"
        ]
        return _distinct(found)

    def over(self, var: Var | None, found: Accesses) -> Accesses:
        """Accesses inside a loop, as seen after its end."""
        return _distinct(a if var is None else replace(a, loops=(*a.loops, var)) for a in found)

    def previous(self, found: Accesses, var: Var | None, adjacent: bool) -> Accesses:
        """Accesses inside a loop, as seen from a later iteration; from the next one if ``adjacent``."""
        if var is None:
            return list(found)
        if not adjacent:
            return [replace(a, earlier=var) for a in found]
        before = {var: var - const(1, var.dtype)}
        return [replace(a, box=substitute(a.box, before)) for a in found]

    def conflict(self, first: Accesses, second: Accesses) -> Buffer | None:
        """A buffer for which a barrier is needed between earlier and later accesses; None when there is none."""
        for a in first:
            for b in second:
                if a.buffer is b.buffer and (a.is_write or b.is_write) and self._meet(a, b):
                    return a.buffer
        return None

    def _meet(self, a: SharedAccess, b: SharedAccess) -> bool:
        """Whether different threads may access the same element."""
        varying = [*self.threads.values(), *self.loaded, *a.loops, *b.loops]
        if a.earlier is not None:
            varying.append(a.earlier)
        return any(
            self._meet_at(replace(a, box=substitute(a.box, at)), replace(b, box=substitute(b.box, at)), varying)
            for at in self._stages(a, b, varying)
        )

    def _stages(self, a: SharedAccess, b: SharedAccess, varying: list[Var]) -> list[dict[Var, PrimExpr]]:
        """Case distinction for a common loop variable ``k`` that selects a stage by ``k % stages``: one per stage."""
        common = {id(v) for v in varying}
        for node in walk((a.box, b.box)):
            if isinstance(node, BinaryOp) and node.op == "%" and isinstance(node.b, IntImm):
                loops = free_vars(node.a)
                if len(loops) == 1 and id(loops[0]) not in common and 1 < node.b.value <= MAX_STAGES:
                    rounds = Var(loops[0].name, loops[0].dtype)
                    self.analyzer.bind(rounds, self.analyzer.extents.get(id(loops[0]), loops[0] + 1))
                    return [{loops[0]: rounds * node.b + stage} for stage in range(node.b.value)]
        return [{}]

    def _meet_at(self, a: SharedAccess, b: SharedAccess, varying: list[Var]) -> bool:
        equations = [same_element(x, y) for x, y in zip(a.box, b.box, strict=True)]
        same = equal_variables(equations, varying, self.analyzer)
        if same is None or (a.earlier is not None and id(a.earlier) in same):
            return False
        return a.collective or b.collective or any(id(t) not in same for t in self.threads.values())


def _distinct(found: Iterable[SharedAccess]) -> Accesses:
    """Remove duplicate accesses."""
    result: dict[object, SharedAccess] = {}
    for a in found:
        box = tuple((key(r.min), key(r.extent)) for r in a.box)
        loops = frozenset(map(id, (*a.loops, a.earlier)))
        result.setdefault((id(a.buffer), a.is_write, box, loops, a.collective), a)
    return list(result.values())


def _is_collective(stmt: Stmt) -> bool:
    """Whether a statement is an instruction of several lanes with an operand that they access together."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    if not isinstance(call, Call) or not call.op.startswith("intrinsic."):
        return False
    row = find_tensor_intrin(call.op.removeprefix("intrinsic."))
    return row.lanes > 1 and not all(operand.per_lane for operand in row.operands)
