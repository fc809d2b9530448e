"""decompose_padding: fill a padded buffer with the constant first, then copy what lies inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.expr import BinaryOp, Call, FloatImm, IntImm, PrimExpr, Var, conjuncts, const, logical_and
from ...ir.simplify import Analyzer
from ...ir.visitor import substitute, uses
from ..nodes import Block, BlockRealize, BufferStore, For, IterVar, PrimFunc, Stmt, open_nest, seq
from .access import accesses_in
from .affine import Bounds
from .blocks import block_nest, rebuilt
from .dependence import is_self_contained
from .legality import all_accesses, check_complete, check_first_use, check_only_writer
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    find_loop,
    loops_above,
    parent_of,
    replace_stmts,
    single_store,
    unique_block_name,
)

STEP = "decompose_padding"


@dataclass(frozen=True)
class _Padding:
    """A block that stores ``if_then_else(condition, value, fill)``; ``inside``: ranges of variables."""

    realize: BlockRealize
    store: BufferStore
    value: PrimExpr
    fill: PrimExpr
    inside: Mapping[Var, Bounds]

    @property
    def block(self) -> Block:
        return self.realize.block

    def range_of(self, it: IterVar) -> Bounds:
        """The least and the greatest value of a variable inside."""
        return self.inside.get(it.var, (const(0, it.var.dtype), it.extent - 1))


def decompose_padding(func: PrimFunc, name: str, var: Var) -> tuple[PrimFunc, str]:
    """Fill what a padding block writes with the constant before loop ``var``; the block writes what is inside only.

    The block stores ``if_then_else(condition, value, constant)``, where the condition is a conjunction of bounds of its
    variables. Its variables that are bounded run over the inside, and so do its loops that are their values. Returns
    the name of the block that fills, ``{name}_pad_const``.
    """
    realize, loops = find_block(func, name), loops_above(block_path(func, name))
    position = next((i for i, lp in enumerate(loops) if lp.var is var), None)
    if position is None:
        raise ScheduleError(f"{STEP}: loop {var.name!r} does not enclose block {name!r}")
    _check_uses(func, realize, find_loop(func, var))
    padding = _padding(realize, analyzer_at(block_path(func, name)))
    fill_name = unique_block_name(func, f"{name}_pad_const")
    fill = _fill_nest(padding, loops[position:], fill_name)
    nest = _own_nest(func, name, loops[position])
    func = replace_stmts(func, {nest: _inside_nest(padding, nest, analyzer_at(block_path(func, name)[:-1]))})
    around = find_loop(func, var)
    return replace_stmts(func, {around: seq(fill, around)}), fill_name


def _check_uses(func: PrimFunc, realize: BlockRealize, loop: For) -> None:
    """Raise ScheduleError unless nothing inside the loop sees the buffer as it was before the block wrote it."""
    found, inside = all_accesses(func), accesses_in(loop)
    buffer = single_store(realize.block).buffer
    check_complete(STEP, found, realize)
    check_only_writer(STEP, found, realize, buffer)
    uses_inside = [a for a in inside if a.buffer is buffer]
    if not is_self_contained(uses_inside, parent_of(func, loop)):
        check_first_use(STEP, inside, realize)


# -- the pattern --------------------------------------------------------------------------------------------------


def _padding(realize: BlockRealize, analyzer: Analyzer) -> _Padding:
    block = realize.block
    store = single_store(block)
    value = store.value
    if not (isinstance(value, Call) and value.op == "if_then_else"):
        raise ScheduleError(f"{STEP}: block {block.name!r} does not store an if_then_else")
    condition, inside, fill = value.args
    if not isinstance(fill, IntImm | FloatImm):
        raise ScheduleError(f"{STEP}: block {block.name!r} pads with a value that is no constant")
    ranges: dict[Var, Bounds] = {}
    for term in conjuncts(analyzer.simplify(condition)):
        it, low, high = _bound(block, term, analyzer)
        before = ranges.get(it.var, (const(0, it.var.dtype), it.extent - 1))
        ranges[it.var] = _larger(before[0], low, analyzer), _smaller(before[1], high, analyzer)
    for v, (low, high) in ranges.items():
        if not analyzer.prove(low <= high):
            raise ScheduleError(f"{STEP}: no value of {v.name!r} of block {block.name!r} is known to be inside")
    if not ranges:
        raise ScheduleError(f"{STEP}: block {block.name!r} pads nothing")
    simple = {v: (analyzer.simplify(low), analyzer.simplify(high)) for v, (low, high) in ranges.items()}
    return _Padding(realize, store, inside, fill, simple)


def _bound(block: Block, term: PrimExpr, analyzer: Analyzer) -> tuple[IterVar, PrimExpr | None, PrimExpr | None]:
    """The variable of ``variable < bound`` and its like, with the least or the greatest value inside."""
    own = {id(it.var): it for it in block.iter_vars}
    if isinstance(term, BinaryOp) and term.op in ("<", "<=", ">", ">="):
        smaller, greater = (term.a, term.b) if term.op in ("<", "<=") else (term.b, term.a)
        strict = int(term.op in ("<", ">"))
        form = analyzer.linear(greater - smaller - strict)  # inside where it is 0 or more
        mentioned = [(k, a, c) for k, (a, c) in form.terms.items() if any(uses(a, it.var) for it in block.iter_vars)]
        if len(mentioned) == 1 and id(mentioned[0][1]) in own and abs(mentioned[0][2]) == 1:
            k, atom, coefficient = mentioned[0]
            rest = analyzer.build(form.without(k), atom.dtype)
            it = own[id(atom)]
            return (it, -1 * rest, None) if coefficient == 1 else (it, None, rest)
    raise ScheduleError(f"{STEP}: the condition of block {block.name!r} is more than bounds of its variables")


def _larger(known: PrimExpr, other: PrimExpr | None, analyzer: Analyzer) -> PrimExpr:
    if other is None or analyzer.prove(known >= other):
        return known
    if analyzer.prove(other >= known):
        return other
    raise ScheduleError(f"{STEP}: which bound of the condition is the greater one is not known")


def _smaller(known: PrimExpr, other: PrimExpr | None, analyzer: Analyzer) -> PrimExpr:
    if other is None or analyzer.prove(known <= other):
        return known
    if analyzer.prove(other <= known):
        return other
    raise ScheduleError(f"{STEP}: which bound of the condition is the smaller one is not known")


# -- the blocks ---------------------------------------------------------------------------------------------------


def _fill_nest(p: _Padding, loops: Sequence[For], name: str) -> Stmt:
    """Copies of the loops around a block that stores the constant wherever the padding block stores."""
    renamed = {lp.var: Var(lp.var.name, lp.var.dtype) for lp in loops}
    fresh = {it.var: Var(it.var.name, it.var.dtype) for it in p.block.iter_vars}
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it in p.block.iter_vars)
    store = BufferStore(p.store.buffer, p.fill, substitute(p.store.indices, fresh))
    block = rebuilt(Block(name, iters, (), (), store), store)
    values, predicate = substitute((p.realize.iter_values, p.realize.predicate), renamed)
    stmt: Stmt = BlockRealize(values, predicate, block)
    for lp in reversed(loops):
        stmt = For(renamed[lp.var], substitute(lp.extent, renamed), stmt, lp.kind, lp.thread, lp.annotations)
    return stmt


def _own_nest(func: PrimFunc, name: str, limit: For) -> Stmt:
    """The largest nest that contains only the block, from loop ``limit`` inwards."""
    nest: Stmt = block_nest(func, name)
    loops, _ = open_nest(nest)
    return limit if any(lp is limit for lp in loops) else nest


def _inside_nest(p: _Padding, nest: Stmt, analyzer: Analyzer) -> Stmt:
    """The padding block for what is inside: loops that are values of bounded variables shrink, others are guarded."""
    loops, _ = open_nest(nest)
    shrunk = {loop.var: p.inside[it.var] for it, loop in _bound_directly(p, loops)}
    shift = {loop: loop + low for loop, (low, _) in shrunk.items()}
    values: list[PrimExpr] = []
    guards: list[PrimExpr] = [substitute(p.realize.predicate, shift)]
    for it, value in zip(p.block.iter_vars, p.realize.iter_values, strict=True):
        low, high = p.range_of(it)
        moved = value if value in shrunk else analyzer.simplify(value - low)
        values.append(moved)
        if value not in shrunk:
            guards += [g for g in (moved >= 0, moved <= high - low) if it.var in p.inside and not analyzer.prove(g)]
    stmt: Stmt = BlockRealize(tuple(values), logical_and(*guards), _inside_block(p, analyzer))
    for loop in reversed(loops):
        low, high = shrunk.get(loop.var, (const(0, loop.var.dtype), loop.extent - 1))
        stmt = replace(loop, extent=analyzer.simplify(high - low + 1), body=stmt)
    return stmt


def _inside_block(p: _Padding, analyzer: Analyzer) -> Block:
    """The block without its condition, its bounded variables counted from the first value inside."""
    iters: list[IterVar] = []
    old: dict[Var, PrimExpr] = {}
    for it in p.block.iter_vars:
        low, high = p.range_of(it)
        fresh = Var(it.var.name, it.var.dtype)
        iters.append(IterVar(fresh, analyzer.simplify(high - low + 1), "S"))
        old[it.var] = fresh + low
        analyzer.bind(fresh, iters[-1].extent)
    indices = tuple(analyzer.simplify(i) for i in substitute(p.store.indices, old))
    store = BufferStore(p.store.buffer, analyzer.simplify(substitute(p.value, old)), indices)
    return rebuilt(replace(p.block, iter_vars=tuple(iters)), store)


def _bound_directly(p: _Padding, loops: Sequence[For]) -> list[tuple[IterVar, For]]:
    """The bounded variables whose value is a loop of the nest that nothing else mentions."""
    pairs = []
    for it, value in zip(p.block.iter_vars, p.realize.iter_values, strict=True):
        loop = next((lp for lp in loops if lp.var is value), None)
        if loop is None or it.var not in p.inside:
            continue
        others = [v for v in p.realize.iter_values if v is not value]
        if not uses((others, p.realize.predicate, [lp.extent for lp in loops]), loop.var):
            pairs.append((it, loop))
    return pairs
