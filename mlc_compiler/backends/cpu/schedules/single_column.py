"""Schedule of matmuls with one column, such as the gate of a shared expert: dot products of rows and a vector."""

from __future__ import annotations

from ....schedules.rule import Rule, accumulate_locally, analyse, constant_extent, single_matmul
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes
from .matmul import inline_around
from .register_tiles import check_elementwise


class SingleColumn(Rule):
    """``x[m, k] * w[1, k]`` or ``x[m, k] * w[k, 1]`` with element-wise blocks around it.

    Rows in parallel, SIMD lanes along a row. ``Matmul`` would fill one lane, and LLVM would order its scalar sum by the
    number of rows in a tile. The depth has to be constant, and at least two vectors.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks, lanes = analyse(func), Cpu.of(target).lanes(32)
        matched = single_matmul(blocks) if blocks else None
        if blocks is None or matched is None:
            return None
        columns, depth = (constant_extent(it.extent) for it in matched.block.iter_vars[-2:])
        if columns != 1 or depth is None or depth < 2 * lanes:
            return None
        s, matmul = Schedule(func), matched.block.name
        last = accumulate_locally(s, matmul, inline_around(s, blocks, matched))
        check_elementwise(s.block(matmul), s.block(last))
        row = s.fuse(*s.get_loops(last)) if len(s.get_loops(last)) > 1 else s.get_loops(last)[0]
        s.compute_at(matmul, row)
        *inside, reduction = s.get_loops(matmul)
        for block in reduce_in_lanes(s, reduction, lanes, axis=len(inside)):
            s.vectorize(s.get_loops(block)[-1])
        s.parallel(row)
        return s
