"""reverse_compute_at: move a consumer under a loop of its producers."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import PrimExpr, Var
from ...ir.simplify import Analyzer
from ...ir.visitor import uses
from ..nodes import Buffer, IterVar, PrimFunc, seq
from .access import Access, accesses_in
from .affine import Bounds, equal
from .dependence import bind_loops, conflicts, exact_box, own_conflicts, run_space
from .legality import check_complete, check_first_use, split_by_block
from .move import Domain, Move
from .tree import loop_path


def reverse_compute_at(func: PrimFunc, name: str, var: Var) -> PrimFunc:
    """Move a consumer block to the end of a loop's body, to process the region that one iteration produces."""
    move = Move.of("reverse_compute_at", func, name, var)
    outputs = check_complete(move.step, move.found, move.realize)
    _check_after(move)
    check_first_use(move.step, move.found, move.realize)
    analyzer = move.analyzer()
    old = _old_domain(move, analyzer)
    domain = _ready_domain(move, outputs, old, analyzer)
    return move.place(seq(move.loop.body, move.new_nest(domain, old, analyzer)))


def _check_after(move: Move) -> None:
    own, others = split_by_block(move.found, move.realize)
    inside = [a.place for a in others if any(lp.var is move.loop.var for lp in a.loops)]
    if inside and own[0].place < max(inside):
        raise move.error(f"block {move.name!r} runs before loop {move.loop.var.name!r}")


def _old_domain(move: Move, analyzer: Analyzer) -> Domain:
    """The ranges of the block variables before the move. Raises ScheduleError unless the block runs over a box."""
    boxes = run_space(move.realize, move.own, analyzer)
    if boxes is None:
        raise move.error(f"block {move.name!r} does not run once over a box of its iteration space")
    pairs = zip(move.realize.block.iter_vars, boxes, strict=True)
    return {it.var: move.clipped(b, it, analyzer) for it, b in pairs}


def _ready_domain(move: Move, outputs: Sequence[Buffer], old: Domain, analyzer: Analyzer) -> Domain:
    """The ranges of the block variables whose inputs are complete after one iteration of the loop."""
    domain: Domain = {}
    written = {id(b) for b in outputs}
    own, _ = split_by_block(move.found, move.realize)
    for buffer in {id(a.buffer): a.buffer for a in own if id(a.buffer) not in written}.values():
        box = _finished_box(move, buffer, analyzer)
        if box is not None:
            _constrain(move, buffer, box, domain, old, analyzer)
    if not domain:
        raise move.error(f"loop {move.loop.var.name!r} produces nothing that block {move.name!r} reads")
    return {**old, **domain}


# -- finished regions of the inputs -------------------------------------------------------------------------------


def _finished_box(move: Move, buffer: Buffer, analyzer: Analyzer) -> list[Bounds] | None:
    """The box of an input that one iteration of the loop completes; None when it is complete before the loop."""
    own, others = split_by_block(move.found, move.realize)
    writes = [o for o in others if o.is_write and o.buffer is buffer]
    inside = [a for a in move.target_accesses() if a.is_write and a.buffer is buffer]
    if not inside:
        _check_finished_before(move, writes, [a for a in own if a.buffer is buffer])
        return None
    outside = [w for w in writes if all(lp.var is not move.loop.var for lp in w.loops)]
    if outside:
        names = ", ".join(dict.fromkeys(repr(w.block_name) for w in outside))
        raise move.error(f"{names} outside loop {move.loop.var.name!r} also writes {buffer.name!r}")
    _check_final(move, buffer)
    _check_no_gaps(move, writes, analyzer)
    bind_loops(analyzer, *inside)
    boxes = [exact_box(w, w.loops, analyzer) for w in inside]
    for box in boxes:
        if box is not None and all(other is not None and _contains(box, other, analyzer) for other in boxes):
            return box
    raise move.error(f"what loop {move.loop.var.name!r} writes to {buffer.name!r} is not known to be a box")


def _contains(box: Sequence[Bounds], other: Sequence[Bounds], analyzer: Analyzer) -> bool:
    pairs = zip(box, other, strict=True)
    return all(analyzer.prove(a[0] <= b[0]) and analyzer.prove(a[1] >= b[1]) for a, b in pairs)


def _check_finished_before(move: Move, writes: Sequence[Access], reads: Sequence[Access]) -> None:
    """Raise ScheduleError unless all writes of an input precede the outermost loop of ``chain``."""
    outer = move.chain[0].var
    start = next((a.place for a in move.found if any(lp.var is outer for lp in a.loops)), ())
    shared = {id(lp.var) for lp in move.shared}
    for conflict in conflicts(writes, reads, ()):
        writer = conflict.first
        around = {id(lp.var) for lp in writer.loops}
        if id(outer) in around or not writer.place < start or not (around & shared) <= conflict.equal:
            buffer = writer.buffer.name
            message = f"{writer.block_name!r} has not written all of {buffer!r}, which {move.name!r} reads, by then"
            raise move.error(message)


def _check_final(move: Move, buffer: Buffer) -> None:
    """Raise ScheduleError when elements are written in several iterations of ``chain``."""
    path = loop_path(move.func, move.chain[0].var)[:-1]
    writes = [a for a in accesses_in(move.chain[0]) if a.is_write and a.buffer is buffer]
    for conflict in own_conflicts(writes, path):
        for loop in move.chain:
            if id(loop.var) not in conflict.equal:
                raise move.error(
                    f"one iteration of loop {loop.var.name!r} does not finish {buffer.name!r}: "
                    f"{conflict.second.block_name!r} writes the same elements in several"
                )


def _check_no_gaps(move: Move, writes: Sequence[Access], analyzer: Analyzer) -> None:
    """Raise ScheduleError unless the nest writes a box in one iteration of the shared loops."""
    for write in writes:
        below = next(i for i, lp in enumerate(write.loops) if lp.var is move.chain[0].var)
        bind_loops(analyzer, write)
        if exact_box(write, write.loops[below:], analyzer) is None:
            raise move.error(f"what {write.block_name!r} writes to {write.buffer.name!r} is not known to be a box")


# -- ranges of the block variables --------------------------------------------------------------------------------


def _constrain(
    move: Move, buffer: Buffer, box: Sequence[Bounds], domain: Domain, old: Domain, analyzer: Analyzer
) -> None:
    """Restrict the block variables to the values that read elements of ``buffer`` in ``box``."""
    for access in (a for a in move.block_accesses() if a.buffer is buffer):
        for r, available, size in zip(access.box, box, buffer.shape, strict=True):
            it = move.iter_var(r.min)
            if it is not None and it.kind == "S":
                domain[it.var] = _agreed(move, it, available, domain.get(it.var), old[it.var], analyzer)
            elif not _always_inside(move, r.min, available, size, analyzer):
                raise move.error(
                    f"{move.name!r} reads more of {buffer.name!r} than one iteration of loop "
                    f"{move.loop.var.name!r} finishes"
                )


def _agreed(
    move: Move, it: IterVar, available: Bounds, known: Bounds | None, old: Bounds, analyzer: Analyzer
) -> Bounds:
    if known is not None:
        same = equal(known[0], available[0], analyzer) and equal(known[1], available[1], analyzer)
        if not same:
            raise move.error(f"the inputs of {move.name!r} are not finished in step along {it.var.name!r}")
        return known
    around = move.over_chain(available, analyzer)
    if around is None or not (analyzer.prove(around[0] <= old[0]) and analyzer.prove(around[1] >= old[1])):
        raise move.error(f"{move.name!r} also runs for {it.var.name!r} beyond what the nest of the loop writes")
    return available


def _always_inside(move: Move, index: PrimExpr, available: Bounds, size: PrimExpr, analyzer: Analyzer) -> bool:
    if analyzer.prove(available[0] <= 0) and analyzer.prove(available[1] >= size - 1):
        return True
    inner: list[Var] = [it.var for it in move.realize.block.iter_vars]
    inner += [lp.var for a in move.block_accesses() for lp in a.loops]
    if any(uses(index, v) for v in inner):
        return False
    return analyzer.prove(available[0] <= index) and analyzer.prove(index <= available[1])
