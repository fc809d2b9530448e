"""Turn a loop nest around one block into a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import PrimExpr, Var, ceildiv, conjuncts, const
from ...ir.simplify import Analyzer
from ...ir.visitor import substitute
from ..nodes import Block, BlockRealize, For, IterVar, PrimFunc, Stmt, open_nest
from ..regions import infer_regions
from .affine import equal, is_one, mentions
from .blocks import with_accumulator_read
from .dependence import one_to_one
from .tree import ScheduleError, analyzer_at, find_loop, loop_path, loops_above, replace_stmts, true, unique_block_name


@dataclass(frozen=True)
class _Split:
    """A block variable ``v = outer * size + inner``; ``count``: the extent of ``outer``."""

    it: IterVar
    outer: PrimExpr
    inner: PrimExpr
    size: PrimExpr
    count: PrimExpr

    @property
    def is_whole(self) -> bool:
        """Whether the variable is constant within the new block: ``size`` is 1."""
        return is_one(self.size)


@dataclass(frozen=True)
class _Tiling:
    """A block, the loops that move into the new block, and the splits of the block's variables."""

    realize: BlockRealize
    loops: tuple[For, ...]
    splits: tuple[_Split, ...]
    outer_vars: dict[Var, Var]

    @property
    def block(self) -> Block:
        return self.realize.block


def blockize(func: PrimFunc, var: Var) -> tuple[PrimFunc, str]:
    """Wrap the loop nest rooted at loop ``var``, and the block ``name`` in it, in a new block ``{name}_o``.

    The variables of the new block index tiles, those of the inner block elements of a tile. The reduction's ``init``
    moves to the new block. Returns the new block's name.
    """
    loop, path = find_loop(func, var), loop_path(func, var)
    loops, realize = open_nest(loop)
    if not isinstance(realize, BlockRealize):
        raise ScheduleError(f"blockize: loop {var.name!r} holds more than one nest around one block")
    name = realize.block.name
    _check_extents(path, loops)
    if mentions(conjuncts(realize.predicate), {id(lp.var) for lp in loops}):
        raise ScheduleError(f"blockize: a guard of block {name!r} depends on loops inside {var.name!r}")
    bindings = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    outside = {id(lp.var) for lp in loops_above(path)}
    splits = tuple(_split(name, it, v, loops, analyzer_at((*path, *loops))) for it, v in bindings)
    if mentions([s.inner for s in splits], outside):
        raise ScheduleError(f"blockize: where block {name!r} runs inside {var.name!r} depends on the loops around")
    if not one_to_one([s.inner for s in splits], {lp.var: lp.extent for lp in loops}, set(), analyzer_at(tuple(loops))):
        raise ScheduleError(f"blockize: loops inside {var.name!r} run block {name!r} for the same values again")
    outer_vars = {s.it.var: Var(f"{s.it.var.name}_o", s.it.var.dtype) for s in splits}
    tiling = _Tiling(realize, tuple(loops), splits, outer_vars)
    block = _outer_block(tiling, unique_block_name(func, f"{name}_o"))
    values = tuple(s.outer for s in splits)
    return replace_stmts(func, {loop: BlockRealize(values, realize.predicate, block)}), block.name


def _check_extents(path: Sequence[Stmt], loops: Sequence[For]) -> None:
    """Raise ScheduleError unless the loops form a box: no extent may depend on another loop."""
    ids = {id(lp.var) for lp in (*loops_above(tuple(path)), *loops)}
    for lp in loops:
        if mentions(lp.extent, ids):
            raise ScheduleError(f"blockize: the extent of {lp.var.name!r} depends on other loops")


def _split(name: str, it: IterVar, value: PrimExpr, loops: Sequence[For], analyzer: Analyzer) -> _Split:
    start = {lp.var: const(0, lp.var.dtype) for lp in loops}
    base = analyzer.simplify(substitute(value, start))
    inside = analyzer.simplify(value - base)
    size: PrimExpr = const(1, it.var.dtype)
    for lp in loops:
        if mentions(inside, {id(lp.var)}):
            size = size * lp.extent
    size = analyzer.simplify(size)
    outer, count = analyzer.simplify(base // size), analyzer.simplify(ceildiv(it.extent, size))
    if equal(base, const(0, it.var.dtype), analyzer) and equal(size, it.extent, analyzer):
        outer, count = const(0, it.var.dtype), const(1, it.var.dtype)
    fits = analyzer.prove(inside >= 0) and analyzer.prove(inside < size)
    if not (fits and equal(outer * size, base, analyzer)):
        raise ScheduleError(f"blockize: {it.var.name!r} of block {name!r} does not divide into tiles of that nest")
    return _Split(it, outer, inside, size, count)


def _outer_block(t: _Tiling, name: str) -> Block:
    body = _inner_nest(t)
    init = _inner_init(t) if t.block.init is not None else None
    iters = tuple(IterVar(t.outer_vars[s.it.var], s.count, s.it.kind) for s in t.splits)
    updates = t.block.is_reduction and t.block.init is None
    reads, writes = infer_regions((init, body), iters, reads_back=updates)
    return Block(name, iters, reads, writes, body, init)


def _inner_block(t: _Tiling, splits: Sequence[_Split], body: Stmt) -> Block:
    kept = [s for s in splits if not s.is_whole]
    fresh = {s.it.var: Var(f"{s.it.var.name}_i", s.it.var.dtype) for s in kept}
    mapping: dict[Var, PrimExpr] = {}
    for s in splits:
        outer: PrimExpr = t.outer_vars[s.it.var]
        mapping[s.it.var] = outer if s.is_whole else outer * s.size + fresh[s.it.var]
    iters = tuple(IterVar(fresh[s.it.var], s.size, s.it.kind) for s in kept)
    new = substitute(body, mapping)
    reads, writes = infer_regions(new, iters, allocated=t.block.alloc_buffers)
    return replace(t.block, iter_vars=iters, reads=reads, writes=writes, body=new, init=None)


def _inner_nest(t: _Tiling) -> Stmt:
    block = _inner_block(t, t.splits, t.block.body)
    block = with_accumulator_read(block) if t.block.is_reduction else block
    stmt: Stmt = BlockRealize(tuple(s.inner for s in t.splits if not s.is_whole), true(), block)
    for lp in reversed(t.loops):
        stmt = replace(lp, body=stmt)
    return stmt


def _inner_init(t: _Tiling) -> Stmt:
    assert t.block.init is not None
    spatial = [s for s in t.splits if s.it.kind == "S"]
    loops = [lp for lp in t.loops if any(mentions(s.inner, {id(lp.var)}) for s in spatial)]
    renamed = {lp.var: Var(f"{lp.var.name}_init", lp.var.dtype) for lp in loops}
    block = _inner_block(t, spatial, t.block.init)
    block = replace(block, name=f"{block.name}_init", annotations={})
    values = tuple(substitute(s.inner, renamed) for s in spatial if not s.is_whole)
    stmt: Stmt = BlockRealize(values, true(), block)
    for lp in reversed(loops):
        stmt = For(renamed[lp.var], lp.extent, stmt, lp.kind, lp.thread)
    return stmt
