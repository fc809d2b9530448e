"""The kernel of a matmul whose operands are both copied by the TMA unit and multiplied by ``wgmma``."""

from __future__ import annotations

from ....ir.expr import PrimExpr, Var
from ....script import expand
from ....tir.nodes import Buffer, Stmt
from .boxes import Boxes, Matrix
from .fused_matmul import FusedMatmul
from .kernel import Kernel
from .pipeline_loops import multiply_tile
from .tiles import WARPGROUPS


class Pipeline(Kernel):
    """One thread of the block fills the stages; two warpgroups multiply, starting a step while the previous one ends.

    A stage is filled again as soon as all warps have multiplied it. The columns of a gated matmul are not interleaved:
    a tile has those of one half after those of the other, so that the sums of a result are in the same thread.
    """

    def __init__(self, matmul: FusedMatmul, x: Matrix, w: Matrix):
        super().__init__(matmul, WARPGROUPS)
        self.boxes = Boxes(self.t, self.xs, self.ws, x, w)
        self.filled = min(self.steps, self.t.stages)

    def body(self, row_block: Var, column_block: Var, thread: Var) -> Stmt:
        return expand(multiply_tile, self, row_block, column_block, thread)

    @property
    def shared(self) -> tuple[Buffer, ...]:
        assert self.boxes is not None
        return (self.boxes.free, *super().shared)

    def sum_place(self, j: PrimExpr, number: PrimExpr) -> PrimExpr:
        return j + number * self.result_tiles
