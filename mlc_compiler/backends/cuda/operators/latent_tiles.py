"""Latent attention of tiles of queries on tensor cores, absorbed: values are the beginnings of keys (DeepSeek-V2, 2.1).

All warps of a block have the same 16 rows, which are query heads of one key head. Of the scores, each warp computes
those of its share of the slots; through shared memory every warp gets all of them. Of the values, each warp computes
its share of the elements, so that the sums fit into registers. A block of keys is read once, for both products.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, as_expr
from ....script import expand
from ....target import Target
from ....tir.nodes import Stmt
from ...paged_attention import PagedAttention
from ..machine import WARP, Gpu
from .latent_loops import WARP_SLOTS, attend_tile
from .mma_loops import STEP
from .mma_tiles import COPY_BYTES, WARP_ROWS, WARPS, MmaTiles
from .nests import nest

ELEMENT_BYTES = 2
BLOCK = WARPS * WARP_SLOTS
MAX_VALUE = 512


def attend_latent(problem: PagedAttention, target: Target) -> Stmt | None:
    """The kernel; None for a call that it does not cover."""
    if not _covers(problem) or not target.has("sm_80"):
        return None
    k = LatentTiles(problem, WARP_ROWS, BLOCK, WARPS, target)
    blocks = Gpu.of(target).shared_bytes // k.shared_bytes
    if not blocks:
        return None
    tile, thread = Var("tile"), Var("thread")
    last_first = k.grid - 1 - tile  # the last tokens attend to most positions
    body = expand(attend_tile, k, last_first, thread)
    return nest(((tile, k.grid),), ((thread, k.threads),), k.scratch, body, blocks)


def _covers(p: PagedAttention) -> bool:
    is_plain = p.latent and p.kv_heads == 1 and not (p.inline or p.window)
    has_dtype = p.q.dtype == p.k_pages.dtype and p.q.dtype in ("float16", "bfloat16")
    fits = p.key % WARP == 0 and p.value % (WARPS * STEP) == 0 and p.value <= MAX_VALUE
    return is_plain and has_dtype and fits and p.page % (COPY_BYTES // ELEMENT_BYTES) == 0


@dataclass(eq=False)
class LatentTiles(MmaTiles):
    """As ``MmaTiles``, without values. Shared: scores [rows, slots]. part [4]: a warp's scores, accumulators."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scores = self.buffer("scores", "shared", self.rows, self.block + WARP_SLOTS)
        self.part = self.buffer("part", "local", 4)

    def make_values(self) -> None:
        self.value_tiles = self.p.value // 8 // self.warps

    def row(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        return thread % WARP // 4 + as_expr(x) // 2 * 8

    def first_element(self, thread: PrimExpr) -> PrimExpr:
        """The first of the elements of a value that the thread's warp computes."""
        return thread // WARP * (self.value_tiles * 8)

    def value_row(self, thread: PrimExpr) -> PrimExpr:
        """The row of 16 elements x 16 slots whose address the lane gives to ldmatrix.x4, for a right operand."""
        return thread % 8 + thread % WARP // 16 * 8

    def value_column(self, thread: PrimExpr) -> PrimExpr:
        """The column that belongs to ``value_row``."""
        return thread // 8 % 2 * 8
