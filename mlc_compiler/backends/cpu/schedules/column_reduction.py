"""Schedule of reductions over axes before the last one: pooling, means over spatial axes, sums over rows."""

from __future__ import annotations

from ....ir.simplify import Analyzer
from ....ir.visitor import walk
from ....schedules.rule import Blocks, TunableRule, accumulate_locally, analyse, choose, constant_extent
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import Block, BufferLoad
from ....tir.schedule import Schedule
from ..machine import Cpu
from .register_tiles import check_elementwise, sum_in_registers, unroll_around_lanes

VECTORS = (1, 2, 4, 8)  # of independent sums per step


class ColumnReduction(TunableRule):
    """A reduction whose adjacent results read adjacent elements, with element-wise blocks around it.

    The last axis has SIMD lanes, with the sums of several vectors in registers; the other axes run in parallel.
    Choice: the number of vectors.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or not _fits(blocks):
            return None
        names = [b.name for b in blocks.in_order]
        vectors = choose(s, VECTORS, 4)
        product = blocks.reductions[0].name
        at = names.index(product)
        for name in names[:at]:
            s.compute_inline(name)
        last = accumulate_locally(s, product, names[at + 1 :])
        check_elementwise(s.block(product), s.block(last))
        count = len(s.get_loops(last))
        loops = s.get_loops(product)
        outer, column, reduced = loops[: count - 1], loops[count - 1], loops[count:]
        column_tile, lane = s.split(column, [None, _width(s.extent(column), Cpu.of(target).lanes(32), vectors)])
        s.reorder(*outer, column_tile, *reduced, lane)
        s.reverse_compute_at(last, column_tile)
        sum_in_registers(s, product, reduced[0])
        unroll_around_lanes(s, last, skip=len(outer) + 1)
        s.parallel(s.fuse(*outer, column_tile))
        return s


def _fits(blocks: Blocks) -> bool:
    if len(blocks.reductions) != 1:
        return False
    (block,) = blocks.reductions
    kinds = "".join(it.kind for it in block.iter_vars)
    columns = [it for it in block.iter_vars if it.kind == "S"][-1:]
    if not columns or "RS" in kinds or (constant_extent(columns[0].extent) or 0) < 2:
        return False
    return _reads_columns(block, len(kinds.rstrip("R")) - 1)


def _reads_columns(block: Block, column: int) -> bool:
    """Whether the only other buffer that is read has stride 1 along the column."""
    written = {id(w.buffer) for w in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and id(n.buffer) not in written]
    return len(loads) == 1 and step_along(loads[0], block.iter_vars[column].var, Analyzer()) == 1


def _width(extent: int, lanes: int, vectors: int) -> int:
    """Columns of a step: up to ``vectors`` vectors, rounded up to whole vectors if there is at least one."""
    return min(vectors * lanes, -(-extent // lanes) * lanes) if extent >= lanes else extent
