"""rfactor: factor a reduction into partial results along one of its loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import BinaryOp, Call, PrimExpr, Var, binary, conjuncts, const, logical_and
from ...ir.visitor import free_vars, substitute, uses
from ..nodes import Block, BlockRealize, Buffer, BufferStore, For, IterVar, PrimFunc, Stmt, open_nest, seq
from ..regions import infer_regions
from .access import accesses_in, is_commutative_update, update_operand
from .affine import mentions
from .blocks import block_nest, with_intermediate
from .legality import check_complete
from .tree import (
    ScheduleError,
    block_path,
    depends_on_loops,
    find_block,
    find_loop,
    loops_above,
    replace_stmts,
    single_store,
    true,
    unique_block_name,
    unique_buffer_name,
)

STEP = "rfactor"


@dataclass(frozen=True)
class _Reduction:
    """A block ``x[i] = x[i] op value``. loop: the loop to factor; inside: the loops of the block's nest."""

    realize: BlockRealize
    loop: For
    inside: tuple[For, ...]
    store: BufferStore
    init: BufferStore

    @property
    def block(self) -> Block:
        return self.realize.block

    @property
    def reduced(self) -> list[For]:
        return [lp for lp in self.inside if self.binds("R", lp.var)]

    @property
    def spatial(self) -> list[tuple[IterVar, PrimExpr]]:
        return [(it, v) for it, v in self.bindings if it.kind == "S"]

    @property
    def bindings(self) -> list[tuple[IterVar, PrimExpr]]:
        return list(zip(self.block.iter_vars, self.realize.iter_values, strict=True))

    def binds(self, kind: str, var: Var) -> bool:
        return any(it.kind == kind and uses(v, var) for it, v in self.bindings)

    def guards(self, on_reduction: bool) -> list[PrimExpr]:
        """The conjuncts of the predicate that mention reduction loops (``on_reduction``), or the others."""
        ids = {id(lp.var) for lp in self.reduced}
        return [g for g in conjuncts(self.realize.predicate) if mentions(g, ids) == on_reduction]

    @property
    def op(self) -> str:
        assert isinstance(self.store.value, BinaryOp)
        return self.store.value.op

    @property
    def start(self) -> PrimExpr:
        """The initial value of partial results: the reduction's own ``init`` for min and max, else the identity."""
        if self.op in ("min", "max"):
            return self.init.value
        return const(1 if self.op == "*" else 0, self.init.value.dtype)

    def combine(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return binary(self.op, a, b)


def rfactor(func: PrimFunc, var: Var, axis: int) -> tuple[PrimFunc, str]:
    """Compute a partial result for each iteration of a reduction loop, then reduce the partial results.

    The partial results are stored in a new buffer, indexed by the loop on its axis ``axis``. A new block, whose name is
    returned, computes them in the old nest; the old block reduces them in a nest after it.
    """
    r = _reduction(func, var)
    target = r.store.buffer
    rank = len(target.shape)
    if not -rank - 1 <= axis <= rank:
        raise ScheduleError(f"{STEP}: got axis {axis}; expected one of 0 to {rank} for the new axis")
    axis = axis if axis >= 0 else rank + 1 + axis
    shape = _insert(target.shape, axis, r.loop.extent)
    partial = Buffer(unique_buffer_name(func, f"{target.name}_rf"), shape, target.dtype, target.scope)
    name = unique_block_name(func, f"{r.block.name}_rf")
    func = replace_stmts(func, {r.realize: _partial_block(r, partial, axis, name)})
    nest = block_nest(func, name)
    func = replace_stmts(func, {nest: seq(nest, _final_nest(r, partial, axis))})
    return with_intermediate(func, partial, name), name


def _insert(items: Sequence[PrimExpr], axis: int, item: PrimExpr) -> tuple[PrimExpr, ...]:
    return (*items[:axis], item, *items[axis:])


# -- preconditions ------------------------------------------------------------------------------------------------


def _reduction(func: PrimFunc, var: Var) -> _Reduction:
    _, stmt = open_nest(find_loop(func, var))
    if not isinstance(stmt, BlockRealize):
        raise ScheduleError(f"{STEP}: loop {var.name!r} holds more than one nest around one block")
    block, path = stmt.block, block_path(func, stmt.block.name)
    realize = find_block(func, block.name)
    check_complete(STEP, accesses_in(block_nest(func, block.name)), realize)
    store = single_store(block)
    if not isinstance(block.init, BufferStore) or not is_commutative_update(block):
        raise ScheduleError(f"{STEP}: block {block.name!r} is no sum, product, minimum or maximum")
    nest = block_nest(func, block.name)
    inside = tuple(lp for lp in loops_above(path) if _holds(nest, lp))
    r = _Reduction(realize, find_loop(func, var), inside, store, block.init)
    _check_loops(r, [lp for lp in loops_above(path) if not _holds(nest, lp)])
    _check_extents(func, r)
    _check_guards(r, path)
    _check_indices(r)
    return r


def _holds(nest: Stmt, loop: For) -> bool:
    return any(lp is loop for lp in open_nest(nest)[0])


def _check_loops(r: _Reduction, outer: Sequence[For]) -> None:
    if all(lp is not r.loop for lp in r.inside):
        raise ScheduleError(f"{STEP}: loop {r.loop.var.name!r} holds other blocks than {r.block.name!r}")
    reduced = r.reduced
    if all(lp is not r.loop for lp in reduced):
        raise ScheduleError(f"{STEP}: loop {r.loop.var.name!r} is no reduction loop of block {r.block.name!r}")
    for lp in reduced:
        if r.binds("S", lp.var):
            raise ScheduleError(f"{STEP}: loop {lp.var.name!r} is a spatial loop of block {r.block.name!r}, too")
    for lp in outer:
        if r.binds("R", lp.var):
            raise ScheduleError(f"{STEP}: reduction loop {lp.var.name!r} holds other blocks than {r.block.name!r}")


def _check_extents(func: PrimFunc, r: _Reduction) -> None:
    for lp in r.reduced:
        if depends_on_loops(lp.extent, func):
            raise ScheduleError(f"{STEP}: the extent of reduction loop {lp.var.name!r} depends on other loops")


def _check_guards(r: _Reduction, path: Sequence[Stmt]) -> None:
    loops = {id(s.var) for s in path if isinstance(s, For)} - {id(lp.var) for lp in r.reduced}
    for guard in r.guards(on_reduction=True):
        if any(id(v) in loops for v in free_vars(guard)):
            raise ScheduleError(f"{STEP}: a guard of block {r.block.name!r} ties spatial loops to reduction loops")


def _check_indices(r: _Reduction) -> None:
    spatial = [it.var for it, _ in r.spatial]
    plain = [i for i in r.store.indices if isinstance(i, Var)]
    name, buffer = r.block.name, r.store.buffer.name
    if len(plain) != len(r.store.indices) or len({id(v) for v in plain}) != len(plain):
        raise ScheduleError(f"{STEP}: block {name!r} writes {buffer!r} at computed indices")
    if {id(v) for v in spatial} != {id(v) for v in plain}:
        raise ScheduleError(f"{STEP}: block {name!r} has variables that are no index of {buffer!r}")


# -- the two blocks -----------------------------------------------------------------------------------------------


def _partial_block(r: _Reduction, partial: Buffer, axis: int, name: str) -> BlockRealize:
    """The block of the partial results: the factored loop becomes spatial, the other reduction loops stay reductions.

    Guards on reduction loops become part of the value, so that every partial result is initialized.
    """
    fresh = {it.var: Var(it.var.name, it.var.dtype) for it, _ in r.spatial}
    variables = {lp.var: Var(f"v{lp.var.name}", lp.var.dtype) for lp in r.reduced}
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it, _ in r.spatial)
    iters += tuple(IterVar(variables[lp.var], lp.extent, "S" if lp is r.loop else "R") for lp in r.reduced)
    values = (*(v for _, v in r.spatial), *(lp.var for lp in r.reduced))
    renamed: dict[Var, PrimExpr] = {**fresh}
    renamed |= {it.var: substitute(v, variables) for it, v in r.bindings if it.kind == "R"}
    operand, start = update_operand(r.store), substitute(r.start, renamed)
    assert operand is not None
    value = substitute(operand, renamed)
    guards = [substitute(g, variables) for g in r.guards(on_reduction=True)]
    if guards:
        value = Call("if_then_else", (logical_and(*guards), value, start), value.dtype)
    indices = _insert(substitute(r.store.indices, renamed), axis, variables[r.loop.var])
    body = BufferStore(partial, r.combine(partial[indices], value), indices)
    reads, writes = infer_regions(body, iters)
    block = Block(name, iters, reads, writes, body, BufferStore(partial, start, indices), (), r.block.annotations)
    return BlockRealize(values, logical_and(true(), *r.guards(on_reduction=False)), block)


def _final_nest(r: _Reduction, partial: Buffer, axis: int) -> Stmt:
    """The old block, now reducing the partial results over copies of its spatial loops and of the factored loop."""
    spatial = [lp for lp in r.inside if not r.binds("R", lp.var)]
    copies = {lp.var: Var(lp.var.name, lp.var.dtype) for lp in (*spatial, r.loop)}
    reduction = Var(f"v{r.loop.var.name}", r.loop.var.dtype)
    iters = (*(it for it, _ in r.spatial), IterVar(reduction, r.loop.extent, "R"))
    indices = r.store.indices
    value = r.combine(r.store.buffer[indices], partial[_insert(indices, axis, reduction)])
    body = replace(r.store, value=value)
    reads, writes = infer_regions((r.block.init, body), iters)
    values = (*(substitute(v, copies) for _, v in r.spatial), copies[r.loop.var])
    block = replace(r.block, iter_vars=iters, reads=reads, writes=writes, body=body)
    guards = substitute(r.guards(on_reduction=False), copies)
    stmt: Stmt = BlockRealize(values, logical_and(true(), *guards), block)
    for lp in (r.loop, *reversed(spatial)):
        stmt = For(copies[lp.var], substitute(lp.extent, copies), stmt)
    return stmt
