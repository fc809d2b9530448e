"""Schedule of reductions over leading or all axes, and of few long rows: in parts if there are few results."""

from __future__ import annotations

from math import isqrt, prod

from ....ir.simplify import Analyzer
from ....ir.visitor import walk
from ....schedules.rule import TunableRule, analyse, choose, constant_extent, inline_intermediates, round_up
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import Block, BufferLoad
from ....tir.schedule import Schedule
from ....tir.schedule.access import is_commutative_update
from ..machine import Gpu
from .elementwise import parallel, spread_vectors
from .rows import MAX_THREADS, VALUES_OF_A_THREAD, reduce_rows

LONG = MAX_THREADS * VALUES_OF_A_THREAD
"""Elements of a row that keep all threads of a block busy."""
MANY = 16
"""Multiple of ``LONG`` from which on a row is divided into parts: below, one block is as fast as a second launch."""
SECTOR = 32
"""Parts of rows are multiples of this number of elements, so that parts of aligned rows begin at a 32-byte sector."""
UNROLLED = 8  # loads of a thread that are under way
UNROLLINGS = (1, 2, 4, UNROLLED, 16)


class Reduction(TunableRule):
    """Functions with reductions for which ``RowReduction`` has no good kernel, block by block.

    Columns: elements are adjacent along an axis that the reduction keeps, as in a sum over the first axis. A
    thread reduces one column; adjacent threads read adjacent elements. Rows: a reduction over all axes, or of
    fewer rows than the GPU has multiprocessors; the threads of a block reduce a row.

    If there are too few results to fill the GPU, the reduced axes are divided into parts. One kernel reduces the parts,
    the next one their results. The order depends on the sizes alone, so results are reproducible.

    Choices: the parts, the threads of a block, the adjacent elements that a thread accesses together, unrolled steps.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks, gpu = analyse(s.func), Gpu.of(target)
        if blocks is None or not any(_column_axis(b) is not None or _is_long(b, gpu) for b in blocks.reductions):
            return None
        inline_intermediates(s, [b.name for b in blocks.in_order[:-1] if not b.is_reduction])
        for name in s.get_blocks():
            if not s.block(name).is_reduction:
                if s.get_loops(name):
                    spread_vectors(s, [name])
                continue
            for part in _in_parts(s, name, gpu):
                _schedule(s, part)
        return s


def _column_axis(block: Block) -> int | None:
    """The axis that a reduction keeps and along which all its loads are contiguous; None if there is none."""
    written = {id(w.buffer) for w in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and id(n.buffer) not in written]
    if _sizes(block)[1] == 1:
        return None
    for axis, it in enumerate(block.iter_vars):
        steps = {step_along(load, it.var, Analyzer()) for load in loads}
        if it.kind == "S" and steps == {1} and constant_extent(it.extent) != 1:
            return axis
    return None


def _is_long(block: Block, gpu: Gpu) -> bool:
    """Whether a reduction keeps no axis, or has fewer rows than multiprocessors and these are long."""
    results, length = _sizes(block)
    few = results is not None and results < gpu.multiprocessors
    return few and (length is None or not _keeps(block) or length >= MANY * LONG)


def _sizes(block: Block) -> tuple[int | None, int | None]:
    """The number of results and the number of elements per result; None if not constant."""
    return _size(block, "S"), _size(block, "R")


def _size(block: Block, kind: str) -> int | None:
    extents = [constant_extent(it.extent) for it in block.iter_vars if it.kind == kind]
    return None if None in extents else prod(e for e in extents if e is not None)


def _in_parts(s: Schedule, name: str, gpu: Gpu) -> list[str]:
    """Divide a reduction into parts to fill the GPU; returns the names of the blocks to schedule.

    A reduction over all axes is always divided, since its parts are rows.
    """
    block = s.block(name)
    is_column, (results, length) = _column_axis(block) is not None, _sizes(block)
    loops = [loop for loop, it in zip(s.get_loops(name), block.iter_vars, strict=True) if it.kind == "R"]
    if results is None or not loops or not is_commutative_update(block):
        return [name]
    parts = gpu.multiprocessors * gpu.threads // max(results * (1 if is_column else MAX_THREADS), 1)
    if length is None:
        parts = min(parts, gpu.multiprocessors)
    else:
        parts = min(parts, isqrt(length) if is_column else length // LONG)
    parts = max(parts, 1)
    parts = choose(s, sorted({max(parts * quarters // 4, 1) for quarters in (1, 2, 4, 8, 16)}), parts)
    if parts == 1 and _keeps(block):
        return [name]
    size = None if is_column or length is None else round_up(-(-length // parts), SECTOR)
    part, _ = s.split(s.fuse(*loops), [parts if size is None else None, size])
    return [s.rfactor(part, 0 if is_column else -1), name]


def _keeps(block: Block) -> bool:
    return any(it.kind == "S" for it in block.iter_vars)


def _schedule(s: Schedule, name: str) -> None:
    """Schedule a reduction: a thread block per row, a thread per column, or one thread for a single result."""
    block, loops = s.block(name), s.get_loops(name)
    column = _column_axis(block)
    if column is not None:
        kept = [loop for loop, it in zip(loops, block.iter_vars, strict=True) if it.kind == "S"]
        kept.append(kept.pop(column))
        s.reorder(*kept)
        parallel(s, s.fuse(*kept))
    elif _keeps(block):
        reduce_rows(s, name)
        return
    extent = s.extent(loops[-1])
    if not isinstance(extent, int):
        return
    divisors = [n for n in UNROLLINGS if extent % n == 0]
    unrolled = choose(s, divisors, UNROLLED if UNROLLED in divisors else 1)
    if unrolled > 1:
        s.unroll(s.split(loops[-1], [None, unrolled])[1])
