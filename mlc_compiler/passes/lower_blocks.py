"""Lower blocks to plain loops: substitute block variables, guard reduction inits, allocate intermediate buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.expr import BinaryOp, IntImm, PrimExpr, conjuncts, const, is_const, logical_and
from ..ir.simplify import Analyzer, simplify
from ..ir.visitor import Rewriter, nodes_of, substitute, uses
from ..tir.guards import tighten_loops
from ..tir.liveness import Touched
from ..tir.nodes import (
    UNROLLED,
    VECTORIZED,
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    is_root,
)
from ..tir.regions import accesses
from ..tir.schedule.caching import STORAGE_ALIGN
from ..tir.schedule.reduction import decompose_reduction
from ..tir.schedule.tree import ScheduleError, loops_above, paths
from ..tir.scratch import Alignment, place_scratch
from ..tir.threads import merge_nested_threads
from .base import FunctionPass


@dataclass(frozen=True)
class LowerBlocks(FunctionPass):
    """Lower blocks to loops, stores and conditionals; intermediate buffers become allocations of the live size.

    The ``init`` of a reduction runs before its loops, even if these turn out to be empty. Predicates become
    loop extents where possible, see ``tighten_loops``. Nested loops over one thread axis are merged.
    """

    name = "lower-blocks"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return lower_blocks(func) if is_root(func.body) else func


def lower_blocks(func: PrimFunc, guarded: frozenset[int] = frozenset()) -> PrimFunc:
    """Apply :class:`LowerBlocks` to one function. ``guarded``: buffers that must not be written out of bounds.

    Conditions that only guard writes to padding are dropped, which requires the buffer to be allocated in the
    size that is accessed. If a buffer keeps its shape instead, the function is lowered again with that buffer guarded.
    """
    lowering = _Lower(guarded)
    body = tighten_loops(lowering(_initialise_first(func).body))
    touched = Touched()
    for buffer in reversed(lowering.allocs):
        body = place_scratch(body, buffer, lowering.alignments.get(id(buffer), ()), touched)
    whole = {id(n.buffer) for n in nodes_of(body, Allocate)}
    if whole & lowering.unguarded:
        return lower_blocks(func, guarded | (whole & lowering.unguarded))
    return replace(func, body=merge_nested_threads(body))


def _initialise_first(func: PrimFunc) -> PrimFunc:
    """Apply ``decompose_reduction`` to reductions where it is legal."""
    for realize, loops in _reductions(func):
        first = {lp.var: const(0, lp.var.dtype) for lp in loops}
        values = [v for it, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if it.kind == "R"]
        outermost = next((lp for lp in loops if any(uses(v, lp.var) for v in values)), None)
        if outermost is None or not all(is_const(simplify(substitute(v, first)), 0) for v in values):
            continue
        try:
            func, _ = decompose_reduction(func, realize.block.name, outermost.var)
        except ScheduleError:
            continue
    return func


def _reductions(func: PrimFunc) -> list[tuple[BlockRealize, list[For]]]:
    """The blocks that have an ``init`` and a unique name, each with the loops around it."""
    found = [(p[-1], loops_above(p)) for p in paths(func.body)]
    names = Counter(r.block.name for r, _ in found if isinstance(r, BlockRealize))
    return [
        (r, loops) for r, loops in found if isinstance(r, BlockRealize) and r.block.init and names[r.block.name] == 1
    ]


class _Lower(Rewriter):
    """Lowers statements; ``unguarded`` collects the buffers that are written out of bounds, to be enlarged."""

    def __init__(self, guarded: frozenset[int]):
        self.analyzer = Analyzer()
        self.allocs: list[Buffer] = []
        self.alignments: dict[int, set[Alignment]] = {}  # by ``id`` of the buffer
        self.guarded = guarded
        self.unguarded: set[int] = set()
        self.copied: dict[PrimExpr, PrimExpr] = {}  # variables of unrolled and vectorized loops -> first values

    def __call__(self, node: Any) -> Any:
        return node if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_For(self, node: For) -> Stmt:
        extent = self.analyzer.simplify(node.extent)
        if is_const(extent, 1):
            body = self(substitute(node.body, {node.var: const(0, node.var.dtype)}))
            return body if node.thread is None else replace(node, extent=extent, body=body)
        self.analyzer.bind(node.var, extent)
        if node.kind in (UNROLLED, VECTORIZED):
            self.copied[node.var] = const(0, node.var.dtype)
        return replace(node, extent=extent, body=self(node.body))

    def rewrite_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        self.allocs.extend(block.alloc_buffers)
        for index, axis, factor, offset in block.annotations.get(STORAGE_ALIGN, ()):
            self.alignments.setdefault(id(block.writes[index].buffer), set()).add((axis, factor, offset))
        binding = {it.var: v for it, v in zip(block.iter_vars, node.iter_values, strict=True)}
        simplify = Simplify(self.analyzer)
        body = substitute(block.body, binding)
        body = self(body if holds_blocks(body) else simplify(body))
        if block.init is not None:
            init = self(simplify(substitute(block.init, binding)))
            body = _after_init(body, init, node, self.analyzer)
        predicate = self._needed(node, body)
        return body if isinstance(predicate, IntImm) and predicate.value else IfThenElse(predicate, body)

    def _needed(self, node: BlockRealize, body: Stmt) -> PrimExpr:
        """The block's predicate without the conditions that only guard the computation of unused values.

        Unused values are elements of an intermediate ``local`` buffer out of bounds, such as the padding of a last
        tile. Such a condition is weakened to whether it holds in any copy of the unrolled loops, so that an empty tile
        is not computed.
        """
        terms, (loads, stores) = conjuncts(node.predicate), _corners(node.block) or accesses(body)
        private = all(s.buffer.scope == "local" and id(s.buffer) not in self.guarded for s in stores)
        if not terms or not stores or not private:
            return node.predicate
        kept = [t for t in terms if not all(self._outside(s, t) for s in stores)]
        padded = self.unguarded | {id(s.buffer) for s in stores}
        if len(kept) == len(terms) or not self._in_bounds(loads, kept, padded):
            return node.predicate
        self.unguarded = padded
        return logical_and(*kept, *(self._for_any_copy(t) for t in terms if t not in kept))

    def _for_any_copy(self, term: PrimExpr) -> PrimExpr:
        """``a < b`` with the minimum of ``a`` over all copies of unrolled loops; true when the minimum is unknown."""
        if isinstance(term, BinaryOp) and term.op == "<" and not any(uses(term.b, var) for var in self.copied):
            minimum = substitute(term.a, self.copied)
            if self.analyzer.prove(minimum <= term.a):
                return self.analyzer.simplify(minimum < term.b)
        return IntImm(1, "bool")

    def _outside(self, store: BufferLoad | BufferStore, term: PrimExpr) -> bool:
        """Whether a store for which ``term`` is false is outside of its buffer's shape."""
        pairs = zip(store.indices, store.buffer.shape, strict=True)
        return any(self._implies(index, size, term) for index, size in pairs)

    def _in_bounds(
        self, loads: Sequence[BufferLoad | BufferStore], conditions: Sequence[PrimExpr], padded: set[int]
    ) -> bool:
        """Whether all reads are in bounds where ``conditions`` hold, or in padding that is also written."""
        for load in loads:
            if id(load.buffer) in padded:
                continue
            for index, size in zip(load.indices, load.buffer.shape, strict=True):
                below = self.analyzer.prove(index < size) or any(self._bounds(c, index, size) for c in conditions)
                if not (below and self.analyzer.prove(index >= 0)):
                    return False
        return True

    def _implies(self, index: PrimExpr, size: PrimExpr, term: PrimExpr) -> bool:
        """Whether ``term``, of the form ``a < b``, follows from ``index < size``."""
        return isinstance(term, BinaryOp) and term.op == "<" and self.analyzer.prove(term.a + size <= term.b + index)

    def _bounds(self, term: PrimExpr, index: PrimExpr, size: PrimExpr) -> bool:
        """Whether ``index < size`` follows from ``term``, of the form ``a < b``."""
        return isinstance(term, BinaryOp) and term.op == "<" and self.analyzer.prove(term.b + index <= term.a + size)


def holds_blocks(body: Stmt) -> bool:
    """Whether a statement contains blocks."""
    return bool(nodes_of(body, BlockRealize))


def _corners(block: Block) -> tuple[list[BufferLoad], list[BufferLoad]] | None:
    """The first and last element of each region that an instruction reads, and of each that it writes."""
    if "tensorized" not in block.annotations:
        return None

    def ends(regions: Sequence[BufferRegion]) -> list[BufferLoad]:
        first = [BufferLoad(r.buffer, tuple(a.min for a in r.region)) for r in regions]
        last = [BufferLoad(r.buffer, tuple(a.min + a.extent - 1 for a in r.region)) for r in regions]
        return first + last

    return ends(block.reads), ends(block.writes)


def _after_init(body: Stmt, init: Stmt, node: BlockRealize, analyzer: Analyzer) -> Stmt:
    first = logical_and(
        *(
            analyzer.simplify(v == const(0, v.dtype))
            for it, v in zip(node.block.iter_vars, node.iter_values, strict=True)
            if it.kind == "R"
        )
    )
    if isinstance(first, IntImm):
        return SeqStmt((init, body)) if first.value else body
    return SeqStmt((IfThenElse(first, init), body))


class Simplify(Rewriter):
    """Simplifies every expression of a statement under the ranges of the loops around it."""

    def __init__(self, analyzer: Analyzer | None = None):
        self.analyzer = analyzer or Analyzer()

    def __call__(self, node: Any) -> Any:
        return self.analyzer.simplify(node) if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_Buffer(self, node: Buffer) -> Buffer:
        return node

    def rewrite_For(self, node: For) -> Stmt:
        extent = self(node.extent)
        self.analyzer.bind(node.var, extent)
        body = self(node.body)
        return node if extent is node.extent and body is node.body else replace(node, extent=extent, body=body)

    def rewrite_Block(self, node: Block) -> Block:
        for it in node.iter_vars:
            self.analyzer.bind(it.var, it.extent)
        return self.rewrite_children(node)

    def rewrite_LetStmt(self, node: LetStmt) -> Stmt:
        value = self(node.value)
        self.analyzer.let(node.var, value)
        return replace(node, value=value, body=self(node.body))

    def rewrite_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self(node.condition)
        if isinstance(condition, IntImm):
            chosen = node.then_case if condition.value else node.else_case
            return self(chosen) if chosen is not None else SeqStmt(())
        return replace(node, condition=condition, then_case=self(node.then_case), else_case=self(node.else_case))
