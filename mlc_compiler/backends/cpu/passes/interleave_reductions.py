"""Split SIMD reductions into independent chains, to hide the latency of floating-point additions."""

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
KINDS = {"+": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class InterleaveReductions(FunctionPass):
    """Split reductions over SIMD lanes into interleaved partial reductions that are combined at the end.

    A reduction is a serial loop around stores ``acc[i] = acc[i] + x`` to scratch memory, where ``i`` does not depend on
    the loop; it may be reassociated. It is split when it has fewer accumulators than additions in flight, unless its
    loop is partly unrolled already. Needs: lowered tensor functions. LLVM does this for scalars only.
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
    """The operation and the other operand of ``acc[i] = acc[i] op x`` over floats."""
    value = store.value
    if not isinstance(value, BinaryOp) or value.op not in KINDS or not dt.is_float(value.dtype):
        return None
    for own, operand in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, BufferLoad) and own.buffer is store.buffer and key(own.indices) == key(store.indices):
            others = (n for n in walk(operand) if isinstance(n, BufferLoad))
            return None if any(n.buffer is store.buffer for n in others) else (value.op, operand)
    return None


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
