"""Two-level reductions: sum groups first, and take factors that are constant within a group out of the inner sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import BinaryOp, IntImm, PrimExpr, Var, const, is_const
from ...ir.simplify import Analyzer
from ...ir.visitor import substitute, uses
from ..nodes import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, IterVar, PrimFunc, Stmt, seq
from ..regions import infer_regions
from .blocks import block_nest
from .tree import ScheduleError, block_path, find_block, loops_above, replace_stmts, single_store, true, with_allocs


def factor_reduction(func: PrimFunc, name: str, group: int) -> tuple[PrimFunc, str]:
    """``acc += a(k) * b(k // group)`` becomes ``partial = sum(a)`` over each group and ``acc += partial * b``.

    The block reduces one axis, of an extent that ``group`` divides, in the innermost of the loops that hold nothing
    else. Sums are reassociated. Returns the name of the new inner block; the outer one keeps ``name``.
    """
    realize, loops = find_block(func, name), loops_above(block_path(func, name))
    reduced = [v for it, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if it.kind == "R"]
    if not loops or len(reduced) != 1 or reduced[0] is not loops[-1].var or not is_const(realize.predicate, 1):
        raise ScheduleError(f"factor_reduction: block {name!r} must reduce its innermost loop; use it before split")
    parts = _Parts.of(realize, loops[:-1], group)
    partial = Buffer(f"{parts.store.buffer.name}_partial", parts.partial_shape, parts.store.buffer.dtype, "local")
    inner_name = f"{name}_partial"
    nests = seq(_inner(parts, partial, inner_name), _outer(parts, partial, name))
    func = replace_stmts(func, {block_nest(func, name): nests})
    return with_allocs(func, (partial,)), inner_name


@dataclass(frozen=True)
class _Parts:
    """A block taken apart: its store, the reduction variable cut into group and position, the two kinds of factors."""

    block: Block
    store: BufferStore
    spatial: tuple[IterVar, ...]
    values: tuple[PrimExpr, ...]
    loops: tuple[For, ...]
    group: Var
    position: Var
    groups: PrimExpr
    size: int
    inner: PrimExpr
    outer: tuple[PrimExpr, ...]

    @property
    def partial_shape(self) -> tuple[PrimExpr, ...]:
        return (*(it.extent for it in self.spatial), self.groups)

    @classmethod
    def of(cls, realize: BlockRealize, loops: Sequence[For], size: int) -> _Parts:
        block = realize.block
        reduction = [it for it in block.iter_vars if it.kind == "R"]
        spatial = tuple(it for it in block.iter_vars if it.kind == "S")
        store = single_store(block)
        if len(reduction) != 1 or not isinstance(reduction[0].extent, IntImm) or reduction[0].extent.value % size:
            raise ScheduleError(f"factor_reduction: block {block.name!r} has no single reduction that {size} divides")
        value = store.value
        adds = isinstance(value, BinaryOp) and value.op == "+" and isinstance(value.a, BufferLoad)
        if not adds or value.a.buffer is not store.buffer:  # type: ignore[attr-defined]
            raise ScheduleError(f"factor_reduction: block {block.name!r} is not a sum")
        group, position = Var("g"), Var("j")
        groups = IntImm(reduction[0].extent.value // size)
        analyzer = Analyzer({position: IntImm(size), group: groups})
        term = substitute(value.b, {reduction[0].var: group * size + position})  # type: ignore[attr-defined]
        factors = [analyzer.simplify(f) for f in _factors(term)]
        inner = [f for f in factors if uses(f, position)]
        outer = tuple(f for f in factors if not uses(f, position))
        if not inner:
            raise ScheduleError(f"factor_reduction: block {block.name!r} has no factor that varies within a group")
        product = inner[0]
        for f in inner[1:]:
            product = product * f
        bound = zip(block.iter_vars, realize.iter_values, strict=True)
        values = tuple(v for it, v in bound if it.kind == "S")
        return cls(block, store, spatial, values, tuple(loops), group, position, groups, size, product, outer)


def _factors(expr: PrimExpr) -> list[PrimExpr]:
    if isinstance(expr, BinaryOp) and expr.op == "*":
        return [*_factors(expr.a), *_factors(expr.b)]
    return [expr]


def _inner(p: _Parts, partial: Buffer, name: str) -> Stmt:
    fresh = {it.var: Var(it.var.name) for it in p.spatial}
    group, position = Var("v_g"), Var("v_j")
    indices = (*fresh.values(), group)
    term = substitute(p.inner, {**fresh, p.group: group, p.position: position})
    body = BufferStore(partial, partial[indices] + term, indices)
    init = BufferStore(partial, const(0, partial.dtype), indices)
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it in p.spatial)
    iters += (IterVar(group, p.groups, "S"), IterVar(position, IntImm(p.size), "R"))
    copies = {loop.var: Var(loop.var.name) for loop in p.loops}
    loops = [(copies[loop.var], loop.extent) for loop in p.loops]
    g, j = Var("g"), Var("j")
    values = (*substitute(p.values, copies), g, j)
    return _nest(name, iters, values, [*loops, (g, p.groups), (j, IntImm(p.size))], body, init)


def _outer(p: _Parts, partial: Buffer, name: str) -> Stmt:
    group = Var("v_g")
    term: PrimExpr = partial[(*(it.var for it in p.spatial), group)]
    for factor in p.outer:
        term = term * substitute(factor, {p.group: group})
    body = replace(p.store, value=p.store.buffer[p.store.indices] + term)
    iters = (*p.spatial, IterVar(group, p.groups, "R"))
    g = Var("g")
    loops = [*((loop.var, loop.extent) for loop in p.loops), (g, p.groups)]
    return _nest(name, iters, (*p.values, g), loops, body, p.block.init)


def _nest(
    name: str,
    iters: tuple[IterVar, ...],
    values: tuple[PrimExpr, ...],
    loops: Sequence[tuple[Var, PrimExpr]],
    body: BufferStore,
    init: Stmt | None,
) -> Stmt:
    reads, writes = infer_regions(body, iters)
    stmt: Stmt = BlockRealize(values, true(), Block(name, iters, reads, writes, body, init))
    for var, extent in reversed(loops):
        stmt = For(var, extent, stmt)
    return stmt
