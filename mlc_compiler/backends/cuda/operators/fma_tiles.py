"""Attention of tiles of queries on a GPU, in float32: any sizes and dtypes (FlashAttention, Dao et al. 2022).

Each lane of a warp has one key of a block for the scores, and some elements of the values for their weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Stmt
from ...paged_attention import PagedAttention
from ..machine import WARP, Gpu
from .fma_loops import attend_tile
from .nests import nest
from .tiles import Tiles

WARPS = 4
ROWS_OF_A_WARP = (4, 2, 1)


def attend_by_fma(problem: PagedAttention, target: Target) -> Stmt:
    """The kernel. Raises NoKernel if a block of keys and values does not fit into shared memory."""
    sizes = (FmaTiles(problem, rows * WARPS, WARP, WARPS) for rows in ROWS_OF_A_WARP)
    k = next((k for k in sizes if k.shared_bytes <= Gpu.of(target).shared_bytes), None)
    if k is None:
        raise NoKernel
    tile, g, thread = Var("tile"), Var("g"), Var("thread")
    body = expand(attend_tile, k, tile, g, thread)
    return nest(((tile, k.grid), (g, problem.kv_heads)), ((thread, k.threads),), k.scratch, body)


@dataclass(eq=False)
class FmaTiles(Tiles):
    """Shared: query [elements, rows], keys [elements, keys padded], values [keys, elements], weights [warps, keys, rows
    of a warp], pages and places [keys]: page and position of each. In registers, for the rows of the warp: score and
    factors of the lane's key, acc for its elements of the values.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        p = self.p
        self.warp_rows = self.rows // self.warps
        self.value_steps = -(-p.value // WARP)
        self.query = self.buffer("query", "shared", p.key, self.rows)
        self.keys = self.buffer("keys", "shared", p.key, WARP + 1)  # padded against bank conflicts
        self.values = None if p.latent else self.buffer("values", "shared", WARP, p.value)
        self.weights = self.buffer("weights", "shared", self.warps, WARP, self.warp_rows)
        self.pages = self.buffer("pages", "shared", WARP, dtype="int64")
        self.places = self.buffer("places", "shared", WARP, dtype="int32")
        self.factors, self.score = (self.buffer(x, "local", self.warp_rows) for x in ("factors", "score"))
        self.row_max, self.row_sum = (self.buffer(x, "local", self.warp_rows) for x in ("row_max", "row_sum"))
        self.new_max, self.other = self.buffer("new_max", "local", self.warp_rows), self.buffer("other", "local", 1)
        self.acc = self.buffer("acc", "local", self.warp_rows, self.value_steps)

    def stored_key(self, page: PrimExpr, g: PrimExpr, d: PrimExpr, j: PrimExpr) -> PrimExpr:
        """Element d of the key at position ``j``, which lies in ``page``; rotated, float32."""
        key = self.p.rotated_key(page, g, d, j % self.p.page, j)
        return key * self.p.key_scale(page, g, j % self.p.page) if self.p.scaled else key

    def stored_value(self, page: PrimExpr, g: PrimExpr, j: PrimExpr, e: PrimExpr) -> PrimExpr:
        """Element e of the value at position ``j``, which lies in ``page``; float32."""
        value = te.f32(self.p.v_pages[self.p.layer, page, g, j % self.p.page, e])
        return value * self.p.value_scale(page, g, j % self.p.page) if self.p.scaled else value
