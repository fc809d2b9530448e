"""Two-level reductions: sum over groups first, with factors that are constant in a group hoisted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ...ir.expr import BinaryOp, IntImm, PrimExpr, Var, const, is_const
from ...ir.simplify import Analyzer
from ...ir.visitor import substitute, uses
from ..nodes import Block, BlockRealize, Buffer, BufferStore, For, IterVar, PrimFunc, Stmt, loop_nest, open_nest, seq
from ..regions import infer_regions
from .access import update_operand
from .affine import equal
from .blocks import block_nest, with_intermediate
from .tree import (
    ScheduleError,
    find_block,
    replace_stmts,
    single_store,
    true,
    unique_block_name,
    unique_buffer_name,
)

STEP = "factor_reduction"


def factor_reduction(func: PrimFunc, name: str, group: int) -> tuple[PrimFunc, str]:
    """Rewrite ``acc += a(k) * b(k // group)`` to ``partial = sum(a)`` over each group and ``acc += partial * b``.

    The block must reduce one axis, whose extent ``group`` divides, in the innermost loop of its nest. Sums are
    reassociated. Returns the name of the new inner block; the outer one keeps ``name``.
    """
    realize = find_block(func, name)
    loops, _ = open_nest(block_nest(func, name))
    _check_loops(realize, loops)
    parts = _Parts.of(realize, loops[:-1], group)
    partial_name = unique_buffer_name(func, f"{parts.store.buffer.name}_partial")
    partial = Buffer(partial_name, parts.partial_shape, parts.store.buffer.dtype, "local")
    inner_name = unique_block_name(func, f"{name}_partial")
    nests = seq(_inner(parts, partial, inner_name), _outer(parts, partial, name))
    func = replace_stmts(func, {block_nest(func, name): nests})
    return with_intermediate(func, partial, inner_name), inner_name


def _check_loops(realize: BlockRealize, loops: Sequence[For]) -> None:
    """Raise ScheduleError unless the innermost loop is exactly the block's reduction."""
    name, bindings = realize.block.name, list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    reduced = [(it, v) for it, v in bindings if it.kind == "R"]
    innermost = bool(loops) and len(reduced) == 1 and reduced[0][1] is loops[-1].var
    if not innermost or not is_const(realize.predicate, 1):
        raise ScheduleError(f"{STEP}: block {name!r} must reduce its innermost loop; use it before split")
    if not equal(loops[-1].extent, reduced[0][0].extent, Analyzer()):
        raise ScheduleError(f"{STEP}: loop {loops[-1].var.name!r} runs only part of the reduction of block {name!r}")
    if any(uses(v, loops[-1].var) for it, v in bindings if it.kind == "S"):
        raise ScheduleError(f"{STEP}: loop {loops[-1].var.name!r} is a spatial loop of block {name!r}, too")


@dataclass(frozen=True)
class _Parts:
    """A block, its reduction variable split into group and position, and the factors inside and outside of groups."""

    block: Block
    store: BufferStore
    spatial: tuple[IterVar, ...]
    values: tuple[PrimExpr, ...]
    loops: tuple[For, ...]
    group: Var
    position: Var
    groups: PrimExpr
    size: PrimExpr
    inner: PrimExpr
    outer: tuple[PrimExpr, ...]

    @property
    def partial_shape(self) -> tuple[PrimExpr, ...]:
        return (*(it.extent for it in self.spatial), self.groups)

    @classmethod
    def of(cls, realize: BlockRealize, loops: Sequence[For], size: int) -> _Parts:
        block, store = realize.block, single_store(realize.block)
        spatial = tuple(it for it in block.iter_vars if it.kind == "S")
        (reduction,) = (it for it in block.iter_vars if it.kind == "R")
        if size < 1 or not isinstance(reduction.extent, IntImm) or reduction.extent.value % size:
            raise ScheduleError(f"{STEP}: block {block.name!r} has no reduction that {size} divides")
        dtype = reduction.var.dtype
        group, position = Var("g", dtype), Var("j", dtype)
        groups, extent = IntImm(reduction.extent.value // size, dtype), IntImm(size, dtype)
        analyzer = Analyzer({position: extent, group: groups})
        term = substitute(_summand(block, store), {reduction.var: group * size + position})
        factors = [analyzer.simplify(f) for f in _factors(term)]
        inner = [f for f in factors if uses(f, position)]
        outer = tuple(f for f in factors if not uses(f, position))
        if not inner:
            raise ScheduleError(f"{STEP}: block {block.name!r} has no factor that varies within a group")
        bound = zip(block.iter_vars, realize.iter_values, strict=True)
        values = tuple(v for it, v in bound if it.kind == "S")
        product = reduce(lambda a, b: a * b, inner)
        return cls(block, store, spatial, values, tuple(loops), group, position, groups, extent, product, outer)


def _summand(block: Block, store: BufferStore) -> PrimExpr:
    operand = update_operand(store)
    if operand is None or not isinstance(store.value, BinaryOp) or store.value.op != "+":
        raise ScheduleError(f"{STEP}: block {block.name!r} is not a sum")
    return operand


def _factors(expr: PrimExpr) -> list[PrimExpr]:
    if isinstance(expr, BinaryOp) and expr.op == "*":
        return [*_factors(expr.a), *_factors(expr.b)]
    return [expr]


def _inner(p: _Parts, partial: Buffer, name: str) -> Stmt:
    fresh = {it.var: Var(it.var.name, it.var.dtype) for it in p.spatial}
    group, position = Var("v_g", p.group.dtype), Var("v_j", p.group.dtype)
    indices = (*fresh.values(), group)
    term = substitute(p.inner, {**fresh, p.group: group, p.position: position})
    body = BufferStore(partial, partial[indices] + term, indices)
    init = BufferStore(partial, const(0, partial.dtype), indices)
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it in p.spatial)
    iters += (IterVar(group, p.groups, "S"), IterVar(position, p.size, "R"))
    copies = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in p.loops}
    loops = [(copies[loop.var], substitute(loop.extent, copies)) for loop in p.loops]
    g, j = Var("g", p.group.dtype), Var("j", p.group.dtype)
    values = (*substitute(p.values, copies), g, j)
    return _nest(name, iters, values, [*loops, (g, p.groups), (j, p.size)], body, init)


def _outer(p: _Parts, partial: Buffer, name: str) -> Stmt:
    group = Var("v_g", p.group.dtype)
    term: PrimExpr = partial[(*(it.var for it in p.spatial), group)]
    for factor in p.outer:
        term = term * substitute(factor, {p.group: group})
    body = replace(p.store, value=p.store.buffer[p.store.indices] + term)
    iters = (*p.spatial, IterVar(group, p.groups, "R"))
    g = Var("g", p.group.dtype)
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
    reads, writes = infer_regions((init, body), iters)
    return loop_nest(loops, BlockRealize(values, true(), Block(name, iters, reads, writes, body, init)))
