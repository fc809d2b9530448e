"""Shorten the dependent operations of SIMD reductions: independent chains, and a tree over the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ....ir import dtype as dt
from ....ir.expr import BinaryOp, IntImm, PrimExpr, Var, const
from ....ir.simplify import key
from ....ir.visitor import Rewriter, substitute, uses, walk
from ....passes.base import FunctionPass
from ....target import Target
from ....tir.nodes import (
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    open_nest,
)
from ....tir.te import reduction_identity
from ..machine import Cpu

CHAINS = 4  # latency of an addition in cycles, with one full-width addition issued per cycle
SHORTEST = 4  # minimum iterations of a part
FOLDED = (4, 8, 16, 32, 64)  # numbers of lanes
KINDS = {"+": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class InterleaveReductions(FunctionPass):
    """Split reductions over SIMD lanes into interleaved partial reductions that are combined at the end.

    A reduction is a serial loop around stores ``acc[i] = acc[i] + x`` to scratch memory, where ``i`` does not depend on
    the loop; it may be reassociated. It is split when it has fewer accumulators than additions in flight, unless its
    loop is partly unrolled already. A serial loop that combines the lanes of scratch memory becomes a tree of vector
    operations, each on half the lanes of the one before. Needs: lowered tensor functions. LLVM does this for scalar
    sums only.
    """

    name = "interleave-reductions"
    target: Target

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return _Interleave(self.target)(func)


@dataclass(frozen=True)
class _Reduction:
    """``loop`` around ``nest`` around ``store``, which combines ``operand`` with an element of its buffer."""

    loop: For
    nest: tuple[For, ...]
    store: BufferStore
    op: str
    operand: PrimExpr


@dataclass
class _Interleave(Rewriter):
    target: Target
    scratch: set[int] = field(default_factory=set)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        self.scratch.add(id(node.buffer))
        return self.rewrite_children(node)

    def rewrite_For(self, node: For) -> Stmt:
        folded = self._fold(node)
        if folded is not None:
            return folded
        reduction = self._match(node)
        parts = 1 if reduction is None else self._parts(reduction)
        return self.rewrite_children(node) if reduction is None or parts == 1 else _split(reduction, parts)

    def _match(self, loop: For) -> _Reduction | None:
        nest, store = open_nest(loop.body)
        if loop.kind != SERIAL or not isinstance(store, BufferStore) or id(store.buffer) not in self.scratch:
            return None
        combined = _accumulation(store)
        if combined is None or uses(store.indices, loop.var) or not isinstance(loop.extent, IntImm):
            return None
        in_registers = all(_is_unrolled(lp) and uses(store.indices, lp.var) for lp in nest)
        has_lanes = any(lp.kind == VECTORIZED for lp in nest)
        return _Reduction(loop, tuple(nest), store, *combined) if in_registers and has_lanes else None

    def _fold(self, loop: For) -> Stmt | None:
        """The tree of a loop ``acc = acc op lanes[i]``; None for any other loop."""
        store = loop.body
        if loop.kind != SERIAL or not isinstance(store, BufferStore) or not isinstance(loop.extent, IntImm):
            return None
        combined = _accumulation(store)
        if combined is None or uses(store.indices, loop.var) or loop.extent.value not in FOLDED:
            return None
        op, lanes = combined
        if not isinstance(lanes, BufferLoad) or id(lanes.buffer) not in self.scratch:
            return None
        *row, lane = lanes.indices or (None,)
        return None if lane is not loop.var or uses(row, loop.var) else _tree(loop, store, op, lanes)

    def _parts(self, reduction: _Reduction) -> int:
        """Number of parts to split a reduction into; 1: leave it."""
        register = Cpu.of(self.target).lanes(dt.bits(reduction.store.buffer.dtype))
        extents = [(_constant(lp), register if lp.kind == VECTORIZED else 1) for lp in reduction.nest]
        chains, extent = prod(-(-count // lanes) for count, lanes in extents), _constant(reduction.loop)
        parts = CHAINS
        while parts > 1 and (parts * chains > CHAINS or extent < SHORTEST * parts):
            parts //= 2
        return parts


def _is_unrolled(loop: For) -> bool:
    return loop.kind in (UNROLLED, VECTORIZED) and isinstance(loop.extent, IntImm)


def _constant(loop: For) -> int:
    assert isinstance(loop.extent, IntImm)
    return loop.extent.value


def _accumulation(store: BufferStore) -> tuple[str, PrimExpr] | None:
    """The operation and the other operand of ``acc[i] = acc[i] op x``."""
    value = store.value
    if not isinstance(value, BinaryOp) or value.op not in KINDS:
        return None
    for own, operand in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, BufferLoad) and own.buffer is store.buffer and key(own.indices) == key(store.indices):
            others = (n for n in walk(operand) if isinstance(n, BufferLoad))
            return None if any(n.buffer is store.buffer for n in others) else (value.op, operand)
    return None


def _tree(loop: For, store: BufferStore, op: str, lanes: BufferLoad) -> Stmt:
    """Combine the two halves of the lanes in a new buffer, then its halves in place, down to one element."""
    half, dtype = _constant(loop) // 2, lanes.buffer.dtype
    folded = Buffer(f"{lanes.buffer.name}_folded", (const(half, "int64"),), dtype)
    steps: list[Stmt] = []
    first = [replace(lanes, indices=(*lanes.indices[:-1], loop.var + at)) for at in (0, half)]
    pair: tuple[PrimExpr, PrimExpr] = (first[0], first[1])
    while half > 1:
        steps.append(_lanes(loop, half, BufferStore(folded, BinaryOp(op, *pair), (loop.var,))))
        half //= 2
        pair = (BufferLoad(folded, (loop.var,)), BufferLoad(folded, (loop.var + half,)))
    last = BinaryOp(op, *(BufferLoad(folded, (const(at, loop.var.dtype),)) for at in (0, 1)))
    steps.append(replace(store, value=BinaryOp(op, BufferLoad(store.buffer, store.indices), last)))
    return Allocate(folded, SeqStmt(tuple(steps)))


def _lanes(loop: For, count: int, body: Stmt) -> For:
    lane = Var("lane", loop.var.dtype)
    return replace(
        loop, var=lane, extent=const(count, lane.dtype), kind=VECTORIZED, body=substitute(body, {loop.var: lane})
    )


def _split(reduction: _Reduction, parts: int) -> Stmt:
    """Part ``p`` reduces the iterations ``p, p + parts, …``; the parts and the last iterations are added to ``acc``."""
    loop, store, op = reduction.loop, reduction.store, reduction.op
    acc, dtype = store.buffer, store.buffer.dtype
    part = Var("part", loop.var.dtype)
    turns = For(part, const(parts, part.dtype), store, UNROLLED)
    partial = Buffer(f"{acc.name}_parts", (const(parts, "int64"), *acc.shape), dtype)
    place = (part, *store.indices)
    own = BufferLoad(partial, place)

    operand = substitute(reduction.operand, {loop.var: loop.var * parts + part})
    loops = (turns, *reduction.nest)
    start = _around(loops, BufferStore(partial, reduction_identity(KINDS[op], dtype), place))
    step = _around(loops, BufferStore(partial, BinaryOp(op, own, operand), place))
    end = _around(loops, replace(store, value=BinaryOp(op, BufferLoad(acc, store.indices), own)))
    rounds, rest = divmod(_constant(loop), parts)
    main = replace(loop, extent=const(rounds, loop.extent.dtype), body=step)
    last = [_last(reduction, rounds * parts, rest)] if rest else []
    return Allocate(partial, SeqStmt((start, main, end, *last)))


def _last(reduction: _Reduction, begin: int, count: int) -> Stmt:
    """The last ``count`` iterations, from ``begin`` on."""
    loop = reduction.loop
    var = Var(loop.var.name, loop.var.dtype)
    store = substitute(reduction.store, {loop.var: var + begin})
    return replace(loop, var=var, extent=const(count, var.dtype), body=_around(reduction.nest, store))


def _around(loops: Sequence[For], body: Stmt) -> Stmt:
    """Copies of the loops, with fresh variables, around another body."""
    for loop in reversed(loops):
        var = Var(loop.var.name, loop.var.dtype)
        body = replace(loop, var=var, body=substitute(body, {loop.var: var}))
    return body
