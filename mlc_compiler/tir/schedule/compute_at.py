"""compute_at: move a producer under a loop of its consumers."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import PrimExpr, Var, maximum, minimum
from ...ir.simplify import Analyzer
from ...ir.visitor import nodes_of
from ..nodes import Buffer, BufferLoad, IterVar, PrimFunc, SeqStmt, Stmt, seq
from ..threads import SHARING_AXES, is_bound
from .access import Access, accesses_in
from .affine import Bounds, interval
from .legality import check_complete, check_inputs_final, check_intermediate, check_only_writer, split_by_block
from .move import Domain, Move


def compute_at(func: PrimFunc, name: str, var: Var) -> PrimFunc:
    """Move a producer block under a loop, before its consumers, to compute the region that one iteration reads.

    Elements that several iterations read are recomputed in each. A block that writes shared memory computes the region
    that all threads of the thread block read.
    """
    move = Move.of("compute_at", func, name, var)
    outputs = check_complete(move.step, move.found, move.realize)
    for buffer in outputs:
        check_intermediate(move.step, func, buffer)
        check_only_writer(move.step, move.found, move.realize, buffer)
        _check_readers(move, buffer)
    check_inputs_final(move.step, move.found, move.realize)
    analyzer = move.analyzer()
    old = _old_domain(move, analyzer)
    domain = _needed_domain(move, outputs, old, analyzer)
    moved = move.new_nest(domain, old, analyzer)
    return move.place(_before_readers(move.loop.body, moved, outputs))


def _check_readers(move: Move, buffer: Buffer) -> None:
    own, others = split_by_block(move.found, move.realize)
    reads = [a for a in others if a.buffer is buffer]
    outside = [a for a in reads if all(lp.var is not move.loop.var for lp in a.loops)]
    if outside:
        names = ", ".join(dict.fromkeys(repr(a.block_name) for a in outside))
        raise move.error(f"{names} outside loop {move.loop.var.name!r} also reads {buffer.name!r}")
    if not reads:
        raise move.error(f"loop {move.loop.var.name!r} reads nothing of what block {move.name!r} computes")
    if any(a.place < own[0].place for a in reads):
        raise move.error(f"{buffer.name!r} is read before block {move.name!r} runs")


def _old_domain(move: Move, analyzer: Analyzer) -> Domain:
    """The hull of the block variables' values before the move, within one iteration of the shared loops."""
    inner = {lp.var: lp.extent for lp in move.own}
    domain: Domain = {}
    for it, value in zip(move.realize.block.iter_vars, move.realize.iter_values, strict=True):
        bounds = interval(value, inner, analyzer)
        if bounds is None:
            raise move.error(f"variable {it.var.name!r} of block {move.name!r} is bound to no simple expression")
        domain[it.var] = move.clipped(bounds, it, analyzer)
    return domain


def _needed_domain(move: Move, outputs: Sequence[Buffer], old: Domain, analyzer: Analyzer) -> Domain:
    """The ranges of the block variables for the elements that one iteration of the loop reads.

    Shared memory is computed for all threads: for all iterations of the loops around, and including, the target loop
    that
    are bound to threads.
    """
    needed: Domain = {}
    threads = _sharing_threads(move, outputs)
    stores = [a for a in move.block_accesses() if a.is_write]
    for buffer in outputs:
        box = hull([a for a in move.target_accesses() if a.buffer is buffer], analyzer)
        for store in (s for s in stores if s.buffer is buffer):
            for r, bounds in zip(store.box, box, strict=False):
                it = move.iter_var(r.min)
                bounds = _over(bounds, threads, analyzer)
                if it is not None and it.kind == "S" and bounds is not None:
                    needed[it.var] = _union(needed.get(it.var, bounds), bounds, analyzer)
    iter_vars = move.realize.block.iter_vars
    return {it.var: _limited(move, it, needed.get(it.var), old[it.var], analyzer) for it in iter_vars}


def _sharing_threads(move: Move, outputs: Sequence[Buffer]) -> dict[Var, PrimExpr]:
    """The loops around, and including, the target loop that are bound to threads which share the outputs."""
    if any(b.scope != "shared" for b in outputs):
        return {}
    return {lp.var: lp.extent for lp in move.path if is_bound(lp, SHARING_AXES)}


def _over(bounds: Bounds | None, loops: dict[Var, PrimExpr], analyzer: Analyzer) -> Bounds | None:
    """The hull of an interval over all iterations of ``loops``."""
    if bounds is None or not loops:
        return bounds
    low, high = (interval(b, loops, analyzer) for b in bounds)
    return None if low is None or high is None else (low[0], high[1])


def _limited(move: Move, it: IterVar, bounds: Bounds | None, limits: Bounds, analyzer: Analyzer) -> Bounds:
    """The range of a block variable that one iteration needs; ``limits`` when it is not provably smaller."""
    if bounds is None or analyzer.prove(bounds[1] - bounds[0] >= limits[1] - limits[0]):
        return limits
    bounds = analyzer.simplify(bounds[0]), analyzer.simplify(bounds[1])
    if move.shared:
        around = move.over_chain(bounds, analyzer)
        if around is None or not (analyzer.prove(limits[0] <= around[0]) and analyzer.prove(around[1] <= limits[1])):
            names = ", ".join(repr(lp.var.name) for lp in move.shared)
            raise move.error(f"what is read may stem from block {move.name!r} in another iteration of {names}")
    return bounds


def hull(reads: Sequence[Access], analyzer: Analyzer) -> list[Bounds | None]:
    """The bounding box of accesses of one buffer; None for an axis without simple bounds, or indexed by data."""
    boxes = [_bounds(a, analyzer) for a in reads]
    result: list[Bounds | None] = []
    for axis in zip(*boxes, strict=True):
        around = axis[0]
        for other in axis[1:]:
            around = None if around is None or other is None else _union(around, other, analyzer)
        result.append(around)
    return result


def _union(a: Bounds, b: Bounds, analyzer: Analyzer) -> Bounds:
    return _minimum(a[0], b[0], analyzer), _maximum(a[1], b[1], analyzer)


def _minimum(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    if analyzer.prove(a <= b):
        return a
    return b if analyzer.prove(b <= a) else minimum(a, b)


def _maximum(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    if analyzer.prove(a >= b):
        return a
    return b if analyzer.prove(b >= a) else maximum(a, b)


def _bounds(access: Access, analyzer: Analyzer) -> list[Bounds | None]:
    inner = {lp.var: lp.extent for lp in access.loops}
    for loop in access.loops:
        analyzer.bind(loop.var, loop.extent)
    result: list[Bounds | None] = []
    for r in access.box:
        by_data = bool(nodes_of(r.min, BufferLoad))
        bounds = None if by_data else interval(r.min, inner, analyzer)
        result.append(None if bounds is None else (bounds[0], analyzer.simplify(bounds[1] + r.extent - 1)))
    return result


def _before_readers(body: Stmt, moved: Stmt, outputs: Sequence[Buffer]) -> Stmt:
    stmts = body.stmts if isinstance(body, SeqStmt) else (body,)
    produced = {id(b) for b in outputs}
    first = next(i for i, s in enumerate(stmts) if any(id(a.buffer) in produced for a in accesses_in(s)))
    return seq(*stmts[:first], moved, *stmts[first:])
