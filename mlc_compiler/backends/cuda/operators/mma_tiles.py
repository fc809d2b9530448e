"""Attention of tiles of queries on tensor cores, in float16 and bfloat16 (FlashAttention-2, Dao 2023).

Each warp has 16 rows of the tile: their scores and sums of values are accumulators of ``mma.m16n8k16``, and the weights
go from accumulators to the left operand of the second matmul without leaving the lane. The keys of the next block are
copied during the softmax of this one, its values during the first matmul. Weights are computed as powers of two of
scores in units of ln 2. Pages of bytes are copied unconverted; each thread then converts what it has copied, exactly.
Scales of keys multiply the scores, scales of values multiply the converted values.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var, as_expr, binary, cast, const
from ....relax.ops.quantized_cache import SCALE_DTYPE
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Stmt
from ...paged_attention import PagedAttention
from ..instructions.operands import SHORT
from ..machine import WARP, Gpu
from .mma_loops import LOG2_E, STEP, VECTOR, attend_tile
from .nests import nest
from .tiles import Tiles
from .warps import widening

WARPS = 4
WARP_ROWS = 16  # of mma.m16n8k16
WIDE = 128  # elements of a key or value above which a block has half as many keys, to save registers
MAX_VALUE = 256
BLOCK = 64
COPY_BYTES = 16  # of an asynchronous copy
BYTE_DTYPES = ("int8", "float8_e4m3fn")


def attend_by_mma(problem: PagedAttention, target: Target) -> Stmt | None:
    """The kernel; None for a call that it does not cover."""
    if not _covers(problem) or not target.has("sm_80"):
        return None
    block = BLOCK if max(problem.key, problem.value) <= WIDE else BLOCK // 2
    k = MmaTiles(problem, WARPS * WARP_ROWS, block, WARPS, target)
    if k.shared_bytes > Gpu.of(target).shared_bytes:
        return None
    tile, g, thread = Var("tile"), Var("g"), Var("thread")
    last_first = k.grid - 1 - tile  # the last tokens attend to most positions
    body = expand(attend_tile, k, last_first, g, thread)
    return nest(((tile, k.grid), (g, problem.kv_heads)), ((thread, k.threads),), k.scratch, body)


def _covers(p: PagedAttention) -> bool:
    is_stored = p.k_pages.dtype == p.v_pages.dtype and p.k_pages.dtype in (p.q.dtype, *BYTE_DTYPES)
    if not is_stored or p.q.dtype not in ("float16", "bfloat16") or p.latent or p.inline:
        return False
    copied = COPY_BYTES // dt.nbytes(p.k_pages.dtype)
    return p.key % STEP == 0 and p.value % STEP == 0 and p.page % copied == 0 and p.value <= MAX_VALUE


@dataclass(eq=False)
class MmaTiles(Tiles):
    """Buffers of a tile on tensor cores.

    Shared: query [rows, elements], keys [elements, slots], values [slots, elements], all padded against bank
    conflicts; pages [2, vectors of slots] of this block and the next. In registers: vectors, cosines, sines: queries
    while they are rotated; left [8], right [8]: mma operands; score [tiles of 8 keys, 4], acc [tiles of 8 elements, 4]:
    accumulators; row_max, row_sum, new_max [2] of the lane's rows. rest: elements of a query that are not rotated.
    copied: elements of a copy of 16 bytes. For pages of bytes (is_packed): packed_keys and packed_values, not padded;
    scales [2, slots] of keys and values; in registers codes, wide, halves: the elements of one copy.
    """

    target: Target

    def __post_init__(self) -> None:
        super().__post_init__()
        p, dtype = self.p, self.p.q.dtype
        short = SHORT[dtype]
        self.convert, self.mma = f"cvt.{short}x2.f32x2", f"mma.m16n8k16.f32.{short}"
        self.copy, self.copied = f"cp_async.16.{SHORT[p.k_pages.dtype]}", COPY_BYTES // dt.nbytes(p.k_pages.dtype)
        self.is_packed = p.k_pages.dtype in BYTE_DTYPES
        self.load_left, self.load_right = f"ldmatrix.x4.{short}", f"ldmatrix.x4.trans.{short}"
        self.rest = p.key - 2 * p.pairs
        self.score_tiles = self.block // 8
        self.query = self.buffer("query", "shared", self.rows, p.key + VECTOR, dtype=dtype)
        self.keys = self.buffer("keys", "shared", p.key, self.block + VECTOR, dtype=dtype)
        self.make_values()
        self.vectors = self.buffer("vectors", "local", 2, VECTOR, dtype=dtype)
        self.cosines, self.sines = (self.buffer(x, "local", 2, VECTOR // 2) for x in ("cosines", "sines"))
        self.pages = self.buffer("pages", "shared", 2, self.block // self.copied, dtype="int64")
        self.left, self.right = (self.buffer(x, "local", 8, dtype=dtype) for x in ("left", "right"))
        self.score = self.buffer("score", "local", self.score_tiles, 4)
        self.acc = self.buffer("acc", "local", self.value_tiles, 4)
        self.row_max, self.row_sum = self.buffer("row_max", "local", 2), self.buffer("row_sum", "local", 2)
        self.new_max, self.other = self.buffer("new_max", "local", 2), self.buffer("other", "local", 1)
        if self.is_packed:
            self._make_packed(p.k_pages.dtype)

    def make_values(self) -> None:
        """Set ``value_tiles``, and ``values`` unless these are read from ``keys``."""
        self.value_tiles = self.p.value // 8
        self.values = self.buffer("values", "shared", self.block, self.p.value + VECTOR, dtype=self.p.q.dtype)

    def _make_packed(self, stored: str) -> None:
        self.widen = widening(stored, self.copied, self.target)
        self.packed_keys = self.buffer("packed_keys", "shared", self.p.key, self.block, dtype=stored)
        self.packed_values = self.buffer("packed_values", "shared", self.block, self.p.value, dtype=stored)
        if self.p.scaled:
            self.scales = self.buffer("scales", "shared", 2, self.block, dtype=SCALE_DTYPE)
        self.codes = self.buffer("codes", "local", 1, self.copied, dtype=stored)
        self.wide = self.buffer("wide", "local", self.copied)
        self.halves = self.buffer("halves", "local", self.copied, dtype=self.p.q.dtype)

    # -- scales, float32

    def key_scale(self, slot: PrimExpr) -> PrimExpr:
        """The scale of the key in a slot of the block."""
        return te.f32(self.scales[0, slot])

    def value_scale(self, slot: PrimExpr, start: PrimExpr) -> PrimExpr:
        """The scale of the value in a slot of the block from ``start`` on; 0 where the run does not see it."""
        j = cast("int32", start + slot)
        return te.select(binary("==", self.readable(j), j), te.f32(self.scales[1, slot]), const(0.0, "float32"))

    # -- places of a lane; ``x``: element of an accumulator (PTX ISA, "Matrix Fragments for mma.m16n8k16")

    def row(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        """The row of the tile of an accumulator's element."""
        return thread // WARP * WARP_ROWS + thread % WARP // 4 + as_expr(x) // 2 * 8

    def column(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        """The column of an accumulator's element."""
        return thread % 4 * 2 + as_expr(x) % 2

    def matrix_row(self, thread: PrimExpr) -> PrimExpr:
        """The row of a 16 x 16 tile whose address the lane passes to ldmatrix.x4."""
        return thread % 16

    def matrix_column(self, thread: PrimExpr) -> PrimExpr:
        """The column of a 16 x 16 tile whose address the lane passes to ldmatrix.x4."""
        return thread % WARP // 16 * 8

    # -- scores, in units of ln 2

    def plain_score(self, product: PrimExpr) -> PrimExpr:
        return product * (self.p.scale * LOG2_E)

    @property
    def is_plain(self) -> bool:
        """Whether visible scores are just scaled products, without soft cap, slopes or biases."""
        return not (self.p.soft_cap or self.p.has_slopes or self.p.has_biases)

    def any_score(self, product: PrimExpr, row: PrimExpr, run: PrimExpr, head: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row of the tile at position ``j``, masked."""
        if self.is_plain:
            return self.score_of(self.plain_score(product), row, run, head, j)
        return self.score_of(product * self.p.scale, row, run, head, j) * LOG2_E
