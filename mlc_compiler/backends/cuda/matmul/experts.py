"""Matmuls in which each row uses the weight of its expert: the kernels of one matrix, for runs of rows of one expert.

A run is a number of consecutive rows of the same expert, inside of one tile of rows. If experts have few rows, a thread
block computes a run of up to 8 rows for one tile of columns; blocks at whose row no run begins exit at once. If they
have more, a block has a tile of rows, and computes one run of it after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....ir.expr import PrimExpr, Var, minimum
from ....ir.visitor import substitute
from ....schedules.experts import ExpertMatmulBlock, match_expert_matmul
from ....schedules.rule import accumulate_locally, analyse, constant_extent
from ....script import expand
from ....script.scope import Macro
from ....tir.nodes import Allocate, Buffer, PrimFunc, Stmt, buffer
from ....tir.schedule import Schedule
from ..machine import WARP, Gpu
from ..operators.nests import nest
from .experts_loops import multiply_first_run, multiply_runs
from .few_rows import MAX_ROWS, FewRows
from .fma import ACROSS, FmaKernel
from .fma import LARGE as LARGE_SIDE
from .fma import SMALL as SMALL_SIDE
from .fma_loops import multiply_tile as multiply_fma_tile
from .fused_matmul import FusedMatmul, fused_matmul_of
from .grids import either, tiled
from .kernel import Kernel
from .loops import multiply_tile
from .packed import packed_weight
from .tensor_cores import large_tile
from .tiles import MEDIUM, SMALL, Tile


@dataclass(frozen=True)
class FusedExpertMatmul:
    """matmul: the matmul of all rows with the weight of ``expert``, a variable. matched: the expert of each row."""

    matmul: FusedMatmul
    expert: Var
    experts: int
    matched: ExpertMatmulBlock

    def expert_of(self, row: PrimExpr) -> PrimExpr:
        """The expert of a row; rows beyond the last have that of the last."""
        return self.matched.expert_of(minimum(row, self.matmul.rows - 1))

    def of_run(self, run: Buffer) -> FusedMatmul:
        """The matmul of a run. run: int64 [3] in registers: first row, number of rows, expert."""
        p, first, at = self.matmul, run[0], {self.expert: run[2]}

        def of_expert(element: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
            return lambda column, k: substitute(element(column, k), at)

        return replace(
            p,
            rows=run[1],
            activation=replace(p.activation, element=lambda row, k: p.activation.element(first + row, k)),
            weight=replace(p.weight, element=of_expert(p.weight.element)),
            packed=p.packed and replace(p.packed, stored=of_expert(p.packed.stored), scale=of_expert(p.packed.scale)),
            epilogue=lambda row, column, sums: p.epilogue(first + row, column, sums),
        )


def match_fused_expert_matmul(func: PrimFunc, gpu: Gpu) -> FusedExpertMatmul | None:
    """Match a tensor function whose only reduction is an expert matmul; None for any other function."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    if blocks is None or len(blocks.reductions) != 1 or int(func.attrs.get("num_outputs", 1)) != 1:
        return None
    matched = match_expert_matmul(blocks.reductions[0])
    experts = constant_extent(matched.weight.shape[0]) if matched is not None else None
    if matched is None or experts is None:
        return None
    expert = Var("expert")
    packed = packed_weight(func, blocks, matched.weight, expert)
    s, name = Schedule(matched.of_one(func, expert)), matched.block.name
    names = [b.name for b in blocks.in_order]
    for producer in names[: names.index(name)]:
        s.compute_inline(producer)
    last = accumulate_locally(s, name, names[names.index(name) + 1 :])
    matmul = fused_matmul_of(func, s.block(name), s.block(last), packed, gpu)
    return None if matmul is None else FusedExpertMatmul(matmul, expert, experts, matched)


def expert_kernel(func: PrimFunc, found: FusedExpertMatmul, gpu: Gpu) -> PrimFunc:
    """``func`` as several kernels; the launch chooses one by the mean number of rows of an expert."""
    body = _fma(found) if found.matmul.dtype == "float32" else _tensor_cores(found, gpu)
    return PrimFunc(func.params, body, {**func.attrs, "cuda.explicit_sync": True})


def _fma(found: FusedExpertMatmul) -> Stmt:
    def kernel(side: int) -> Stmt:
        of_run = FmaKernel(found.of_run(run := run_buffer()), side)
        return Runs(found, run, of_run, multiply_fma_tile, (of_run.tile, of_run.tile), ACROSS**2).nest()

    limit = ACROSS * LARGE_SIDE * found.experts
    return either(found.matmul.rows < limit, lambda: kernel(SMALL_SIDE), lambda: kernel(LARGE_SIDE))


def _tensor_cores(found: FusedExpertMatmul, gpu: Gpu) -> Stmt:
    rows, experts = found.matmul.rows, found.experts

    def tiles(tile: Tile, *larger: Tile) -> Stmt:
        of_run = Kernel(found.of_run(run := run_buffer()), tile)
        runs = Runs(found, run, of_run, multiply_tile, (tile.rows, tile.columns), tile.threads, of_run.blocks)
        if not larger or (of_run.x_computed and tile is MEDIUM):  # in registers that larger tiles need for their sums
            return runs.nest()
        return either(rows < larger[0].rows * experts, runs.nest, lambda: tiles(*larger))

    few = FewRowsOfExperts(found, gpu)
    return either(rows <= MAX_ROWS * experts, few.nest, lambda: tiles(SMALL, MEDIUM, large_tile(found.matmul, gpu)))


def run_buffer() -> Buffer:
    """The registers that hold a run, see ``FusedExpertMatmul.of_run``."""
    return buffer("run", (3,), "int64", "local")


@dataclass(eq=False)
class FewRowsOfExperts:
    """Operands of the macro ``multiply_first_run``. A tile has ``MAX_ROWS`` rows."""

    found: FusedExpertMatmul
    gpu: Gpu
    tile_rows = MAX_ROWS

    def __post_init__(self) -> None:
        self.rows = self.found.matmul.rows
        self.run = run_buffer()
        self.of_run = FewRows(self.found.of_run(self.run), self.gpu, divides=False)

    def nest(self) -> Stmt:
        """The loops over blocks and threads, with a block for each row, at which a run may begin."""
        few, row, block = self.of_run, Var("row"), Var("block")
        warp, lane = Var("warp", "int32"), Var("lane", "int32")
        body = Allocate(self.run, expand(multiply_first_run, self, row, block, warp, lane))
        return nest([(block, few.blocks), (row, self.rows)], [(lane, WARP), (warp, few.d.warps)], [few.sums], body)


@dataclass(eq=False)
class Runs:
    """Operands of the macro ``multiply_runs``.

    of_run: the kernel of a run. multiply: the macro of its tile. copies: whether it copies asynchronously.
    """

    found: FusedExpertMatmul
    run: Buffer
    of_run: Kernel | FmaKernel
    multiply: Macro
    tile: tuple[int, int]
    threads: int
    blocks: int = 1

    def __post_init__(self) -> None:
        self.rows, self.tile_rows = self.found.matmul.rows, self.tile[0]
        self.copies = isinstance(self.of_run, Kernel)

    def nest(self) -> Stmt:
        """The loops over blocks and threads, with a block for each tile of rows and columns."""

        def body(row_block: Var, column_block: Var, thread: Var) -> Stmt:
            return Allocate(self.run, expand(multiply_runs, self, row_block, column_block, thread, self.multiply))

        shared = self.of_run.shared
        return tiled(self.rows, self.of_run.columns, self.tile, self.threads, shared, body, self.blocks)
