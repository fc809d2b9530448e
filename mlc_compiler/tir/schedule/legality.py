"""Legality checks of schedule steps; they raise ScheduleError with the block, the loop and the violated dependence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.expr import Var, const, is_const
from ...ir.visitor import substitute, uses
from ..nodes import PARALLEL, SERIAL, UNROLLED, VECTORIZED, BlockRealize, Buffer, For, PrimFunc, Stmt
from ..threads import SHARING_AXES, THREAD_AXES
from .access import Access, accesses_in, is_commutative_update
from .affine import Equation, equal, equal_variables, is_one, mentions
from .dependence import Conflict, carried_conflicts, common_loops, conflicts, is_private, own_conflicts
from .tree import ScheduleError, analyzer_at, is_output, loop_path

STEP_OF_KIND = {PARALLEL: "parallel", VECTORIZED: "vectorize"}


def is_concurrent(loop: For) -> bool:
    return loop.kind not in (SERIAL, UNROLLED)


def check_runs(step: str, loop: For) -> None:
    """Reject zero-trip loops, for which every proof holds vacuously."""
    if is_const(loop.extent, 0):
        raise ScheduleError(f"{step}: loop {loop.var.name!r} has no iterations")


REDUCES = "thread_reduction"
"""Annotation of a loop whose threads reduce together (a cross-thread reduction)."""


def check_independent(func: PrimFunc, var: Var, kind: str, thread: str | None = None) -> bool:
    """Reject dependences between iterations of the loop, except through private buffers.

    Threads of a GPU thread block share each ``shared`` buffer: a thread may write an element only if all threads write
    the same value. Iterations may form a reduction into a ``local`` buffer; returns whether they do.
    """
    path = loop_path(func, var)
    loop, step = path[-1], STEP_OF_KIND.get(kind, "bind")
    assert isinstance(loop, For)
    reduces = False
    if is_one(loop.extent):
        return reduces
    of_buffer: dict[int, list[Access]] = {}
    for access in accesses_in(loop):
        of_buffer.setdefault(id(access.buffer), []).append(access)
    for found in of_buffer.values():
        carried = carried_conflicts(found, path[:-1], var)
        if not carried:
            continue
        buffer = carried[0].first.buffer
        if kind != VECTORIZED and is_private(func, loop, path[:-1], buffer):
            if buffer.scope == "shared" and thread in SHARING_AXES and not _same(buffer, of_buffer, var):
                raise ScheduleError(
                    f"{step}: each iteration of loop {var.name!r} writes its own part of the shared buffer "
                    f"{buffer.name!r}",
                    hint="bind the loop first, then use compute_at: it computes what all threads of the block read",
                )
            continue
        if thread not in THREAD_AXES or not all(map(_is_local_reduction, carried)):
            raise _dependent(step, var, carried[0])
        reduces = True
    return reduces


def _is_local_reduction(conflict: Conflict) -> bool:
    """Whether both accesses belong to one commutative reduction into a buffer of scope ``local``."""
    a, b = conflict.first, conflict.second
    if not (a.blocks and b.blocks and a.blocks[-1] is b.blocks[-1]):
        return False
    block = a.blocks[-1].block
    return a.buffer.scope == "local" and all(x.update or x.is_init for x in (a, b)) and is_commutative_update(block)


def _same(buffer: Buffer, of_buffer: Mapping[int, Sequence[Access]], var: Var) -> bool:
    """Whether all iterations of a loop write the same elements with the same values."""
    accesses = [a for found in of_buffer.values() for a in found]
    for write in (a for a in of_buffer[id(buffer)] if a.is_write):
        inputs = [a.buffer for a in accesses if a.blocks == write.blocks and a.buffer is not buffer]
        computed = [b for b in inputs if any(a.is_write for a in of_buffer[id(b)])]
        own = [write.values[it.var] for realize in write.blocks for it in realize.block.iter_vars]
        if uses((own, write.box, write.guards), var) or not all(_same(b, of_buffer, var) for b in computed):
            return False
    return True


def _dependent(step: str, var: Var, conflict: Conflict) -> ScheduleError:
    access = conflict.second
    for realize in access.blocks:
        for it in realize.block.iter_vars:
            if it.kind == "R" and uses(access.values[it.var], var):
                what = f"the reduction {it.var.name!r} of block {realize.block.name!r}"
                hint = "use rfactor, or choose a spatial loop"
                return ScheduleError(f"{step}: loop {var.name!r} carries {what}", hint=hint)
    return ScheduleError(f"{step}: iterations of loop {var.name!r} depend on each other: {conflict} ({conflict.kind})")


# -- order of loops -----------------------------------------------------------------------------------------------


def check_order(func: PrimFunc, path: Sequence[Stmt], chain: Sequence[For], order: Sequence[For]) -> None:
    """Reject an order of a perfect nest's loops that reverses a dependence; ``path`` leads to the outermost loop."""
    for conflict in own_conflicts(accesses_in(chain[0]), path):
        free = [lp for lp in chain if id(lp.var) not in conflict.equal]
        if _same_order(free, order) or _is_free_reduction(conflict, free, path):
            continue
        if is_private(func, chain[-1], [*path, *chain[:-1]], conflict.first.buffer):
            continue
        names = ", ".join(repr(lp.var.name) for lp in free)
        raise ScheduleError(f"reorder: the order of {names} matters: {conflict} ({conflict.kind})")


def check_any_order(step: str, path: Sequence[Stmt], chain: Sequence[For]) -> None:
    """Reject a perfect nest whose iterations must run in their order. ``path`` leads to the nest."""
    for conflict in own_conflicts(accesses_in(chain[0]), path) if chain else ():
        free = [lp for lp in chain if id(lp.var) not in conflict.equal]
        if free and not _is_free_reduction(conflict, free, path):
            names = ", ".join(repr(lp.var.name) for lp in free)
            raise ScheduleError(f"{step}: the order of {names} matters: {conflict} ({conflict.kind})")


def _same_order(loops: Sequence[For], order: Sequence[For]) -> bool:
    ids = {id(lp.var) for lp in loops}
    return [id(lp.var) for lp in order if id(lp.var) in ids] == [id(lp.var) for lp in loops]


def _is_free_reduction(conflict: Conflict, free: Sequence[For], path: Sequence[Stmt]) -> bool:
    """Whether both accesses belong to one commutative reduction whose first iteration comes first in any loop order."""
    a, b = conflict.first, conflict.second
    if not (a.blocks and b.blocks and a.blocks[-1] is b.blocks[-1]):
        return False
    realize = a.blocks[-1]
    if not all(x.update or x.is_init for x in (a, b)) or not is_commutative_update(realize.block):
        return False
    return realize.block.init is None or _starts_together(a, free, path)


def _starts_together(access: Access, loops: Sequence[For], path: Sequence[Stmt]) -> bool:
    """Whether a reduction's variables are all 0 exactly where ``loops`` are, and its result is independent of them."""
    realize = access.blocks[-1]
    reduced = [access.values[it.var] for it in realize.block.iter_vars if it.kind == "R"]
    spatial = [access.values[it.var] for it in realize.block.iter_vars if it.kind == "S"]
    ids = {id(lp.var) for lp in loops}
    if mentions((spatial, [r.min for r in access.box]), ids):
        return False
    analyzer = analyzer_at((*path, *access.loops))
    start = {lp.var: const(0, lp.var.dtype) for lp in loops}
    if any(not equal(substitute(v, start), const(0, v.dtype), analyzer) for v in reduced):
        return False
    same = equal_variables([Equation(v, v) for v in reduced], [lp.var for lp in loops], analyzer)
    return same is not None and ids <= same


# -- order of blocks ----------------------------------------------------------------------------------------------


def all_accesses(func: PrimFunc) -> list[Access]:
    return accesses_in(func.body)


def split_by_block(found: Sequence[Access], realize: BlockRealize) -> tuple[list[Access], list[Access]]:
    """The accesses inside a block and those outside."""
    inside = [a for a in found if any(b is realize for b in a.blocks)]
    return inside, [a for a in found if all(b is not realize for b in a.blocks)]


def is_before(a: Access, b: Access, conflict: Conflict) -> bool:
    """Whether ``a`` precedes ``b`` for every common element: in program order, in one iteration of all shared loops."""
    shared = {id(lp.var) for lp in a.loops[: common_loops(a, b)]}
    return shared <= conflict.equal and a.place < b.place


def check_inputs_final(step: str, found: Sequence[Access], realize: BlockRealize) -> None:
    """Raise ScheduleError when a block's inputs are written after the block, so that it cannot run later."""
    own, others = split_by_block(found, realize)
    reads = [a for a in own if not a.is_write]
    for conflict in conflicts([o for o in others if o.is_write], reads, ()):
        if not is_before(conflict.first, conflict.second, conflict):
            block, buffer = conflict.first.block_name, conflict.first.buffer.name
            raise ScheduleError(
                f"{step}: {block!r} writes {buffer!r}, which {realize.block.name!r} reads, after or around it"
            )


def check_first_use(step: str, found: Sequence[Access], realize: BlockRealize) -> None:
    """Raise ScheduleError when a block's outputs are accessed before the block, so that it cannot run earlier."""
    own, others = split_by_block(found, realize)
    written = {id(a.buffer) for a in own if a.is_write}
    touching = [o for o in others if id(o.buffer) in written]
    for conflict in conflicts([a for a in own if a.is_write], touching, ()):
        if not is_before(conflict.first, conflict.second, conflict):
            other, buffer = conflict.second, conflict.first.buffer.name
            does = "writes" if other.is_write else "reads"
            raise ScheduleError(
                f"{step}: {other.block_name!r} {does} {buffer!r} before {realize.block.name!r} writes it"
            )


def check_only_writer(step: str, found: Sequence[Access], realize: BlockRealize, buffer: Buffer) -> None:
    others = [a for a in split_by_block(found, realize)[1] if a.is_write and a.buffer is buffer]
    if others:
        names = ", ".join(dict.fromkeys([realize.block.name, *(a.block_name for a in others)]))
        raise ScheduleError(f"{step}: {buffer.name!r} is written by several blocks: {names}")


def check_complete(step: str, found: Sequence[Access], realize: BlockRealize) -> list[Buffer]:
    """Return a block's outputs. Raises ScheduleError when its result depends on their earlier values."""
    block = realize.block
    own, _ = split_by_block(found, realize)
    outputs = list({id(a.buffer): a.buffer for a in own if a.is_write}.values())
    if not outputs:
        raise ScheduleError(f"{step}: block {block.name!r} writes nothing")
    for buffer in outputs:
        if block.init is None and any(a.buffer is buffer and not a.is_write for a in own):
            raise ScheduleError(f"{step}: block {block.name!r} reads {buffer.name!r}, which it writes")
    if block.init is None and block.is_reduction:
        raise ScheduleError(f"{step}: block {block.name!r} reduces without an initialisation of its own")
    return outputs


def check_intermediate(step: str, func: PrimFunc, buffer: Buffer) -> None:
    if is_output(func, buffer):
        raise ScheduleError(f"{step}: {buffer.name!r} is a parameter of the function")
