"""Paged attention on a CPU: tiles of queries against blocks of keys and values (FlashAttention, Dao et al. 2022).

A tile holds the query heads that share a key/value head, for some tokens. For each block of positions, row tile by row
tile: scores, online softmax, weighted sums of values; all sums are in registers, float32. Decoding splits long contexts
into pieces that threads compute independently, and merges their partial results (Flash-Decoding, Dao et al. 2023).
Blocks and pieces begin at fixed positions, so a row's result is bitwise the same for any number of threads and batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import Call, PrimExpr, Var, cast, ceildiv, logical_or, maximum, minimum
from ....relax.ops.attention import as_index
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.intrinsics import TensorIntrin
from ....tir.math.exponential import coarse_exp
from ....tir.nodes import PARALLEL, PRIVATE, BufferLoad, For, Stmt, buffer, seq
from ....tir.schedule.prefetch import LINE
from ...paged_attention import PagedAttention
from ..instructions.bfloat16 import DOT2, JOIN, LANES, ROUND
from ..instructions.cache import PREFETCH
from ..machine import Cpu
from .attention_buffers import TileBuffers, allocated
from .attention_loops import attend_piece, attend_tile, count_pieces, merge_pieces
from .attention_tiles import Sizes, Tiles

TILES_PER_THREAD = 4  # at least, when a prompt is long enough
MAX_PIECES = 32  # of one context; longer contexts get longer pieces


def paged_attention(
    q: te.Tensor,
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    optional: tuple[te.Tensor, ...],
    *,
    target: Target,
    narrow: bool = False,
    **attrs: Any,
) -> te.Tensor:
    """Kernel of the operator ``nn.paged_attention``, with its operands and attributes; narrow: see ``_Kernel``."""
    inputs = [q, k_pages, v_pages, page_table, token_seq, token_pos, *optional]
    more = dict(zip(attrs["names"], (t.buffer for t in optional), strict=True))
    places = (page_table.buffer, token_seq.buffer, token_pos.buffer)
    kernel = _Kernel(q.buffer, k_pages.buffer, v_pages.buffer, *places, layer, more, attrs, target, narrow)
    return te.extern([kernel.out], inputs, kernel.body())[0]


@dataclass(eq=False)
class _Kernel(TileBuffers, PagedAttention):
    """Tiles and buffers that the macros of ``attention_loops.py`` use; see ``Tiles`` for the terms.

    A run is a range of tokens of one sequence. stop: end of the current run. low, high: range of positions that its
    tokens attend to. ends: for each row, the end of its positions; 0 for rows of other runs. narrow: operands may be
    rounded to bfloat16 where the CPU multiplies pairs of them; sums are float32.
    """

    target: Target
    narrow: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = Sizes(self.kv_heads, self.group, self.key, self.value, self.page, dt.nbytes(self.k_pages.dtype))
        readable = not self.inline and not self.latent
        cpu = Cpu.of(self.target)
        self.tiles = Tiles.of(sizes, cpu, self.single_query, readable)
        self.narrow = self.narrow and self._in_pairs(cpu)
        if self.narrow:
            self.tiles = Tiles.of(sizes, cpu, self.single_query, readable, dt.nbytes("bfloat16"))
        self.piece = self.tiles.piece
        self._make_scratch()

    def _in_pairs(self, cpu: Cpu) -> bool:
        """Whether to multiply pairs of bfloat16 numbers: the CPU can, and the cache stores keys and values rounded."""
        rounded = dt.nbytes(self.k_pages.dtype) < dt.nbytes("float32")
        fits = self.tiles.lanes == LANES and not any(size % LANES for size in (self.key, self.value, self.page))
        return cpu.has(DOT2.requires) and rounded and fits and self.tiles.staged and not self.inline

    def _make_scratch(self) -> None:
        t, local = self.tiles, self.local
        self.make_tile(t, self.key)
        self.ends, self.positions = local("ends", t.rows, dtype="int32"), local("positions", t.rows, dtype="int32")
        self.keys = self.values = None
        staged = (2, "uint32") if self.narrow else (1, "float32")
        if t.staged:
            self.keys = local("keys", self.key // staged[0], t.block, dtype=staged[1])
            self.values = local("values", t.block // staged[0], self.padded_value, dtype=staged[1])
        if self.narrow:
            self.query_pairs = local("query_pairs", t.rows, self.key, dtype="bfloat16")
            self.weight_pairs = local("weight_pairs", t.row_tile, t.block, dtype="bfloat16")
            self.low_half, self.high_half = local("low_half", LANES), local("high_half", LANES)
        self.key_scales = local("key_scales", t.block) if self.scaled else None
        self.value_scales = local("value_scales", t.block) if self.scaled else None
        self.ahead = 0 if t.staged else t.block // self.page  # the next block, in other pages
        self.line = LINE // dt.nbytes(self.k_pages.dtype)
        self.key_run = min(self.page, self.line)  # keys whose elements are in one line
        self.pages = local("pages", t.block // self.page + self.ahead, dtype="int64")
        self.last, self.low, self.high = (local(x, 1, dtype="int32") for x in ("last", "low", "high"))
        self.stop = local("stop", 1, dtype="int64")

    # -- work items

    def body(self) -> Stmt:
        """The kernel's statements: tiles of queries, or the pieces of each token and their merge."""
        item = Var("item")
        if not self.single_query:
            self.step = self._tokens_of_a_tile()
            self.count = ceildiv(self.n, self.step)
            return self.parallel(item, self.count * self.kv_heads, expand(attend_tile, self, item))
        shape = (self.n, self.heads, MAX_PIECES)
        self.partial = buffer("partial", (*shape, self.value))
        self.partial_max, self.partial_sum = buffer("partial_max", shape), buffer("partial_sum", shape)
        self.max_pieces, merged = buffer("max_pieces", (1,), "int64", PRIVATE), Var("merged")
        extent = self.n * self.kv_heads * self.max_pieces[0]
        pieces = self.parallel(item, extent, expand(attend_piece, self, item))
        merge = For(merged, self.n * self.heads, expand(merge_pieces, self, merged), PARALLEL)
        body = seq(expand(count_pieces, self), pieces, merge)
        return allocated([self.partial, self.partial_max, self.partial_sum, self.max_pieces], body)

    def _tokens_of_a_tile(self) -> PrimExpr:
        """Tokens per tile: as many as fit, fewer when that leaves threads without tiles."""
        threads = Cpu.of(self.target).cores
        share = ceildiv(self.n * self.kv_heads, TILES_PER_THREAD * threads)
        return maximum(minimum(share, self.tiles.tokens), 1)

    # -- expressions

    def weight(self, x: PrimExpr) -> PrimExpr:
        """exp(x) of a score minus the row maximum; a coarser approximation when ``narrow``."""
        return coarse_exp(x) if self.narrow else Call("exp", (x,), "float32")

    def piece_length(self, token: PrimExpr) -> PrimExpr:
        return maximum(ceildiv(as_index(self.end(token)), MAX_PIECES * self.piece), 1) * self.piece

    def pieces(self, token: PrimExpr) -> PrimExpr:
        return ceildiv(as_index(self.end(token)), self.piece_length(token))

    def in_window(self, position: PrimExpr) -> PrimExpr:
        """Whether the page that begins at ``position`` is in the window; pages before it may have been freed."""
        seen = position + self.page > as_index(self.low[0])
        return logical_or(seen, position < self.sink_size) if self.sink_size else seen

    def key_at(self, g: PrimExpr, d: PrimExpr, start: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """Element d of the block's key ``start + lane``; ``start`` is a multiple of the lanes."""
        if self.keys is not None:
            return self.keys[d, start + lane]
        place = (self.layer, self.pages[start // self.page], g, d, start % self.page + lane)
        return cast("float32", self.k_pages[place])

    def value_place(self, page: PrimExpr, g: PrimExpr, slot: PrimExpr, e: PrimExpr) -> BufferLoad:
        """Element e of a value as it is stored."""
        if self.latent:
            return self.k_pages[self.layer, page, g, e, slot]
        return self.v_pages[self.layer, page, g, slot, e]

    def stored_value(self, page: PrimExpr, g: PrimExpr, slot: PrimExpr, e: PrimExpr) -> PrimExpr:
        return cast("float32", self.value_place(page, g, slot, e))

    def prefetch(self, place: BufferLoad) -> Call:
        """Prefetch the cache line of an element."""
        return _instruction(PREFETCH, place)

    def join(self, words: BufferLoad) -> Call:
        """Round the 16 numbers of ``low_half`` and ``high_half`` to bfloat16 and make words of their pairs."""
        return _instruction(JOIN, words, self.low_half[0], self.high_half[0])

    def add_products(self, sums: BufferLoad, words: BufferLoad, two: BufferLoad) -> Call:
        """Add the dot products of the 16 bfloat16 pairs in ``words`` with the pair ``two`` to 16 float32 sums."""
        return _instruction(DOT2, sums, words, two)

    def round(self, rounded: BufferLoad, values: BufferLoad) -> Call:
        """Round 16 numbers to bfloat16."""
        return _instruction(ROUND, rounded, values)

    def scored(self, product: PrimExpr, row: PrimExpr, head: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row at position ``j`` (int32), the i-th of the block; ``product``: of scaled query and key."""
        if self.key_scales is not None:
            product = product * self.key_scales[i]
        return self.masked_score(product, head, j, self.positions[row], self.ends[row])


def _instruction(row: TensorIntrin, *places: BufferLoad) -> Call:
    """Call an instruction on the addresses of ``places``."""
    return Call(f"intrinsic.{row.name}", tuple(Call("address_of", (p,), "handle") for p in places), "handle")
