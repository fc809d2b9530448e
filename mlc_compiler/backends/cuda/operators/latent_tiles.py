"""Absorbed latent attention (MLA) of tiles of queries on tensor cores: values are prefixes of keys (DeepSeek-V2, 2.1).

All warps of a block have the same 16 rows, which are query heads of one key head. Each warp computes the scores of its
share of the slots; all warps read all scores through shared memory. Each warp sums the values for its
share of the elements, so that the sums fit into registers. A block of keys is read once, for both matmuls.

The context of a single query is divided into pieces, whose results a second kernel merges in order. The division
depends on the context alone, so that a token's result is bitwise the same in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, as_expr, ceildiv, maximum, minimum
from ....script import expand
from ....target import Target
from ....tir.nodes import Stmt, buffer, seq
from ...paged_attention import PagedAttention
from ..machine import WARP, Gpu
from .latent_loops import MERGING, WARP_SLOTS, attend_tile, merge_pieces
from .mma_loops import STEP
from .mma_tiles import COPY_BYTES, WARP_ROWS, WARPS, MmaTiles
from .nests import allocated, nest

ELEMENT_BYTES = 2
BLOCK = WARPS * WARP_SLOTS
MAX_VALUE = 512
MAX_PIECES = 64  # of one context; their partial results are stored
PIECE_BLOCKS = 4
"""Minimum blocks of a piece, so that its keys have several times the bytes of its partial results."""


def attend_latent(problem: PagedAttention, target: Target) -> Stmt | None:
    """The kernel; None for a call that it does not cover."""
    if not _covers(problem) or not target.has("sm_80"):
        return None
    gpu = Gpu.of(target)
    k = LatentTiles(problem, WARP_ROWS, BLOCK, WARPS, target, _pieces(problem, gpu))
    blocks = gpu.shared_bytes // k.shared_bytes
    if not blocks:
        return None
    tile, piece, thread = Var("tile"), Var("piece"), Var("thread")
    last_first = k.grid - 1 - tile  # the last tokens attend to most positions
    body = expand(attend_tile, k, last_first, piece, thread)
    kernel = nest(((tile, k.grid), (piece, k.parts)), ((thread, k.threads),), k.scratch, body, blocks)
    return kernel if k.pieces == 1 else allocated((k.partial, k.partial_max, k.partial_sum), seq(kernel, _merge(k)))


def _pieces(p: PagedAttention, gpu: Gpu) -> int:
    """The maximum number of pieces of a context: a single token has one block per multiprocessor."""
    tiles = -(-p.group // WARP_ROWS)
    return max(min(gpu.multiprocessors // tiles, MAX_PIECES), 1) if p.single_query else 1


def _merge(k: LatentTiles) -> Stmt:
    token, head, thread = Var("token"), Var("head"), Var("thread")
    body = expand(merge_pieces, k, token, head, thread)
    return nest(((head, k.p.heads), (token, k.p.n)), ((thread, MERGING),), (k.weight, k.merged), body)


def _covers(p: PagedAttention) -> bool:
    is_plain = p.latent and p.kv_heads == 1 and not (p.inline or p.window)
    has_dtype = p.q.dtype == p.k_pages.dtype and p.q.dtype in ("float16", "bfloat16")
    fits = p.key % WARP == 0 and p.value % (WARPS * STEP) == 0 and p.value <= MAX_VALUE
    return is_plain and has_dtype and fits and p.page % (COPY_BYTES // ELEMENT_BYTES) == 0


@dataclass(eq=False)
class LatentTiles(MmaTiles):
    """Like ``MmaTiles``, without values. Shared: scores [rows, slots]. part [4]: accumulators of a warp's scores.

    pieces: maximum pieces of a context, one block each. parts: pieces of the longest context. partial, partial_max,
    partial_sum: results of the pieces. weight, merged: registers of the kernel that merges these.
    """

    pieces: int

    def __post_init__(self) -> None:
        super().__post_init__()
        p = self.p
        longest = ceildiv(p.max_pages * p.page, self.block * PIECE_BLOCKS)
        self.parts = maximum(minimum(longest, self.pieces), 1)
        shape = (p.n, p.heads, self.parts)
        self.partial = buffer("partial", (*shape, p.value))
        self.partial_max, self.partial_sum = buffer("partial_max", shape), buffer("partial_sum", shape)
        self.merged_elements = p.value // MERGING
        self.weight = buffer("weight", (3,), scope="local")
        self.merged = buffer("merged", (self.merged_elements,), scope="local")
        self.scores = self.buffer("scores", "shared", self.rows, self.block + WARP_SLOTS)
        self.part = self.buffer("part", "local", 4)

    def share(self, count: PrimExpr) -> PrimExpr:
        """The blocks of each piece of a run that sees ``count`` blocks."""
        return count if self.pieces == 1 else maximum(ceildiv(count, self.pieces), PIECE_BLOCKS)

    def make_values(self) -> None:
        self.value_tiles = self.p.value // 8 // self.warps

    def row(self, thread: PrimExpr, x: PrimExpr | int) -> PrimExpr:
        return thread % WARP // 4 + as_expr(x) // 2 * 8

    def first_element(self, thread: PrimExpr) -> PrimExpr:
        """The first of the elements of a value that the thread's warp computes."""
        return thread // WARP * (self.value_tiles * 8)

    def value_row(self, thread: PrimExpr) -> PrimExpr:
        """The row, in 16 elements x 16 slots, whose address the lane passes to ldmatrix.x4, for a right operand."""
        return thread % 8 + thread % WARP // 16 * 8

    def value_column(self, thread: PrimExpr) -> PrimExpr:
        """The column that belongs to ``value_row``."""
        return thread // 8 % 2 * 8
