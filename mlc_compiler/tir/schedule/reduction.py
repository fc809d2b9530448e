"""decompose_reduction: split a reduction into an init block and an update block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import PrimExpr, Var, conjuncts, const, logical_and
from ...ir.simplify import Analyzer
from ...ir.visitor import free_vars, substitute, uses
from ..nodes import Block, BlockRealize, For, IterVar, PrimFunc, Stmt, seq
from ..regions import infer_regions
from .access import accesses_in
from .affine import Equation, equal_variables, is_one, mentions
from .blocks import with_accumulator_read
from .dependence import common_loops, conflicts
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    find_loop,
    loops_above,
    replace_stmts,
    true,
    unique_block_name,
)

STEP = "decompose_reduction"


def decompose_reduction(func: PrimFunc, name: str, var: Var) -> tuple[PrimFunc, tuple[str, str]]:
    """Move a reduction's ``init`` to a separate block directly before the loop ``var``.

    Returns the names of that block, ``{name}_init``, and of the remaining update block, ``{name}_update``.
    """
    path = block_path(func, name)
    realize, loops = find_block(func, name), loops_above(path)
    if realize.block.init is None:
        raise ScheduleError(f"{STEP}: block {name!r} has no initialisation")
    position = next((i for i, lp in enumerate(loops) if lp.var is var), None)
    if position is None:
        raise ScheduleError(f"{STEP}: loop {var.name!r} does not enclose block {name!r}")
    _check_reduction_inside(realize, loops[:position])
    _check_runs_once(path, realize, loops[position:])
    _check_others(realize, loops[position], path)
    init_name = unique_block_name(func, f"{name}_init")
    init = _init_nest(realize, loops[position:], init_name)
    block = replace(realize.block, name=unique_block_name(func, f"{name}_update"), init=None)
    func = replace_stmts(func, {realize: replace(realize, block=with_accumulator_read(block))})
    target = find_loop(func, var)
    return replace_stmts(func, {target: seq(init, target)}), (init_name, block.name)


def _check_reduction_inside(realize: BlockRealize, outer: Sequence[For]) -> None:
    for it, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        for loop in outer:
            if it.kind == "R" and uses(value, loop.var):
                raise ScheduleError(
                    f"{STEP}: reduction loop {loop.var.name!r} lies outside; choose it or a loop above it"
                )


def _check_runs_once(path: Sequence[Stmt], realize: BlockRealize, inner: Sequence[For]) -> None:
    """Raise ScheduleError when a loop inside the target repeats the reduction: each update runs once per ``init``."""
    varying = [lp.var for lp in inner if not is_one(lp.extent)]
    equations = [Equation(v, v) for v in realize.iter_values]
    equal = equal_variables(equations, varying, analyzer_at(tuple(path[:-1]))) or set()
    for v in varying:
        if id(v) not in equal:
            name = realize.block.name
            raise ScheduleError(f"{STEP}: loop {v.name!r} repeats the reduction {name!r}; choose a loop inside it")


def _check_others(realize: BlockRealize, loop: For, path: Sequence[Stmt]) -> None:
    """Raise ScheduleError when other statements in the loop access the result before its ``init``."""
    found = accesses_in(loop)
    outer = path[: next(i for i, s in enumerate(path) if s is loop)]
    own = [a for a in found if a.is_init and a.blocks[-1] is realize]
    others = [a for a in found if all(b is not realize for b in a.blocks)]
    for conflict in conflicts(own, others, outer):
        first, second = conflict.first, conflict.second
        shared = {id(lp.var) for lp in first.loops[: common_loops(first, second)]}
        if not (shared <= conflict.equal and first.place < second.place):
            does = "writes" if second.is_write else "reads"
            raise ScheduleError(
                f"{STEP}: inside loop {loop.var.name!r}, {second.block_name!r} {does} {first.buffer.name!r} "
                f"before block {realize.block.name!r} initialises it"
            )


def _init_nest(realize: BlockRealize, loops: Sequence[For], name: str) -> Stmt:
    block = realize.block
    assert block.init is not None
    spatial = [(it, v) for it, v in zip(block.iter_vars, realize.iter_values, strict=True) if it.kind == "S"]
    kept = [lp for lp in loops if any(uses(v, lp.var) for _, v in spatial)]
    dropped = {id(lp.var) for lp in loops} - {id(lp.var) for lp in kept}
    renamed = {lp.var: Var(f"{lp.var.name}_init", lp.var.dtype) for lp in kept}
    fresh = {it.var: Var(it.var.name, it.var.dtype) for it, _ in spatial}
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it, _ in spatial)
    body = substitute(block.init, fresh)
    reads, writes = infer_regions(body, iters)
    values = tuple(substitute(v, renamed) for _, v in spatial)
    predicate = substitute(_spatial_guards(realize, dropped), renamed)
    stmt: Stmt = BlockRealize(values, predicate, Block(name, iters, reads, writes, body))
    for lp in reversed(kept):
        stmt = For(renamed[lp.var], substitute(lp.extent, renamed), stmt, lp.kind, lp.thread, lp.annotations)
    return stmt


def _spatial_guards(realize: BlockRealize, dropped: set[int]) -> PrimExpr:
    """The guards that the init block needs; guards on reduction loops must hold in the first iteration."""
    kept: list[PrimExpr] = []
    for guard in conjuncts(realize.predicate):
        if not mentions(guard, dropped):
            kept.append(guard)
        elif not _holds_at_start(guard, dropped):
            name = realize.block.name
            raise ScheduleError(f"{STEP}: a guard of block {name!r} is not known to let the reduction start")
    return logical_and(true(), *kept)


def _holds_at_start(guard: PrimExpr, dropped: set[int]) -> bool:
    """Whether a guard holds where the reduction loops are zero, for all values of other loops."""
    start = {v: const(0, v.dtype) for v in free_vars(guard) if id(v) in dropped}
    return Analyzer(least=1).prove(substitute(guard, start))
