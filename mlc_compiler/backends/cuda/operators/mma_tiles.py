"""Attention of tiles of queries on tensor cores: float16 and bfloat16 (FlashAttention-2, Dao 2023).

Each warp has 16 rows of the tile: their scores and sums of values are accumulators of ``mma.m16n8k16``, and the weights
go from accumulators to the left operand of the second product without leaving the lane. The keys of the next block are
copied during the softmax of this one, its values during the first product. Weights are powers of two of scores in units
of ln 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, as_expr
from ....script import expand
from ....target import Target
from ....tir.nodes import Stmt
from ...paged_attention import PagedAttention
from ..instructions.operands import SHORT
from ..machine import WARP, Gpu
from .mma_loops import LOG2_E, STEP, VECTOR, attend_tile
from .nests import nest
from .tiles import Tiles

WARPS = 4
WARP_ROWS = 16  # of mma.m16n8k16
WIDE = 128  # elements of a value above which a block has half as many keys, as registers are few
MAX_VALUE = 256
BLOCK = 64


def attend_by_mma(problem: PagedAttention, target: Target) -> Stmt | None:
    """The kernel; None for a call that it does not cover."""
    if not _covers(problem) or not target.has("sm_80"):
        return None
    block = BLOCK if max(problem.key, problem.value) <= WIDE else BLOCK // 2
    k = MmaTiles(problem, WARPS * WARP_ROWS, block, WARPS)
    if k.shared_bytes > Gpu.of(target).shared_bytes:
        return None
    tile, g, thread = Var("tile"), Var("g"), Var("thread")
    last_first = k.grid - 1 - tile  # the last tokens attend to most positions
    body = expand(attend_tile, k, last_first, g, thread)
    return nest(((tile, k.grid), (g, problem.kv_heads)), ((thread, k.threads),), k.scratch, body)


def _covers(p: PagedAttention) -> bool:
    dtypes = {p.q.dtype, p.k_pages.dtype, p.v_pages.dtype}
    if len(dtypes) > 1 or not dtypes <= {"float16", "bfloat16"} or p.latent or p.inline:
        return False
    return p.key % STEP == 0 and p.value % STEP == 0 and p.page % VECTOR == 0 and p.value <= MAX_VALUE


@dataclass(eq=False)
class MmaTiles(Tiles):
    """Shared: query [rows, elements], keys [elements, slots], values [slots, elements], all padded against bank
    conflicts; pages [2, vectors of slots] of this block and the next. In registers: vectors, cosines, sines: queries
    while they are rotated; left [8], right [8], operands of products; score [8 keys, 4], acc [8 elements, 4],
    accumulators; row_max, row_sum, new_max [2] of the lane's rows. rest: elements of a query that are not rotated.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        p, dtype = self.p, self.p.q.dtype
        short = SHORT[dtype]
        self.copy, self.convert, self.mma = f"cp_async.16.{short}", f"cvt.{short}x2.f32x2", f"mma.m16n8k16.f32.{short}"
        self.load_left, self.load_right = f"ldmatrix.x4.{short}", f"ldmatrix.x4.trans.{short}"
        self.rest = p.key - 2 * p.pairs
        self.score_tiles, self.value_tiles = self.block // 8, p.value // 8
        self.query = self.buffer("query", "shared", self.rows, p.key + VECTOR, dtype=dtype)
        self.keys = self.buffer("keys", "shared", p.key, self.block + VECTOR, dtype=dtype)
        self.values = self.buffer("values", "shared", self.block, p.value + VECTOR, dtype=dtype)
        self.vectors = self.buffer("vectors", "local", 2, VECTOR, dtype=dtype)
        self.cosines, self.sines = (self.buffer(x, "local", 2, VECTOR // 2) for x in ("cosines", "sines"))
        self.pages = self.buffer("pages", "shared", 2, self.block // VECTOR, dtype="int64")
        self.left, self.right = (self.buffer(x, "local", 8, dtype=dtype) for x in ("left", "right"))
        self.score = self.buffer("score", "local", self.score_tiles, 4)
        self.acc = self.buffer("acc", "local", self.value_tiles, 4)
        self.row_max, self.row_sum = self.buffer("row_max", "local", 2), self.buffer("row_sum", "local", 2)
        self.new_max, self.other = self.buffer("new_max", "local", 2), self.buffer("other", "local", 1)

    # -- places of a lane; ``x``: element of an accumulator (PTX ISA, "Matrix Fragments for mma.m16n8k16")

    def row(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        """The row of the tile of an accumulator's element."""
        return thread // WARP * WARP_ROWS + thread % WARP // 4 + as_expr(x) // 2 * 8

    def column(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        """The column of an accumulator's element."""
        return thread % 4 * 2 + as_expr(x) % 2

    def matrix_row(self, thread: PrimExpr) -> PrimExpr:
        """The row of a 16 x 16 tile whose address the lane gives to ldmatrix.x4."""
        return thread % 16

    def matrix_column(self, thread: PrimExpr) -> PrimExpr:
        """The column of a 16 x 16 tile whose address the lane gives to ldmatrix.x4."""
        return thread % WARP // 16 * 8

    # -- scores, in units of ln 2

    def plain_score(self, product: PrimExpr) -> PrimExpr:
        return product * (self.p.scale * LOG2_E)

    @property
    def is_plain(self) -> bool:
        """Whether scores are scaled products where they are visible."""
        return not (self.p.soft_cap or self.p.has_slopes)

    def any_score(self, product: PrimExpr, row: PrimExpr, run: PrimExpr, head: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row of the tile at position ``j``, masked."""
        if self.is_plain:
            return self.score_of(self.plain_score(product), row, run, head, j)
        return self.score_of(product * self.p.scale, row, run, head, j) * LOG2_E
