"""Paged attention on a CPU: tiles of queries against blocks of keys and values (FlashAttention, Dao et al. 2022).

A tile holds the query heads that share a key/value head, for some tokens. For each block of positions, row tile by row
tile: scores, online softmax, weighted sums of values; all sums are in registers, float32. Decoding splits long contexts
into pieces that threads compute independently, and merges their partial results (Flash-Decoding, Dao et al. 2023).
Blocks and pieces begin at fixed positions, so a row's result is bitwise the same for any number of threads and batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var, cast, ceildiv, const, logical_and, logical_or, maximum, minimum
from ....relax.info import static_size
from ....relax.ops.attention import NO_MAXIMUM, Pages, as_index, clamped
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import PARALLEL, Allocate, Buffer, For, Stmt, buffer, seq
from ..machine import Cpu
from .attention_loops import FARTHEST, attend_piece, attend_tile, count_pieces, merge_pieces
from .attention_tiles import Sizes, Tiles

MASKED = -3e38  # the score of a masked position: exp(MASKED - max) is 0 for any maximum
TILES_PER_THREAD = 4  # at least, when a prompt is long enough
MAX_PIECES = 32  # of one context; longer contexts get longer pieces
DYNAMIC = {"schedule": "dynamic"}


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
    **attrs: Any,
) -> te.Tensor:
    """Kernel of the operator ``nn.paged_attention``, with its operands and attributes."""
    inputs = [q, k_pages, v_pages, page_table, token_seq, token_pos, *optional]
    more = dict(zip(attrs["names"], (t.buffer for t in optional), strict=True))
    places = (page_table.buffer, token_seq.buffer, token_pos.buffer)
    kernel = _Kernel(q.buffer, k_pages.buffer, v_pages.buffer, *places, layer, more, attrs, target)
    return te.extern([kernel.out], inputs, kernel.body())[0]


@dataclass(eq=False)
class _Kernel:
    """Sizes, tiles and buffers that the macros of ``attention_loops.py`` use; see ``Tiles`` for the terms.

    A run is a range of tokens of one sequence. stop: end of the current run. low, high: range of positions that its
    tokens attend to. ends: for each row, the end of its positions; 0 for rows of other runs.
    """

    q: Buffer
    k_pages: Buffer
    v_pages: Buffer
    page_table: Buffer
    token_seq: Buffer
    token_pos: Buffer
    layer: PrimExpr
    more: dict[str, Buffer]
    attrs: dict[str, Any]
    target: Target

    out: Buffer = field(init=False)

    def __post_init__(self) -> None:
        a, cpu = self.attrs, Cpu.of(self.target)
        self.heads, self.first, self.scale, self.window = a["heads"], a["first"], a["scale"], a["window"]
        self.sink_size, self.soft_cap, self.factor = a["sink_size"], a["soft_cap"], a["rotation_factor"]
        self.single_query, self.interleaved, self.latent = a["single_query"], a["interleaved"], bool(a["value_size"])
        self.rotated, self.inline, self.cross = "cos" in self.more, "inv_freq" in self.more, "lengths" in self.more
        self.has_sinks, self.has_slopes = "sinks" in self.more, "slopes" in self.more
        angles = self.more.get("cos" if self.rotated else "inv_freq")
        self.pairs = 0 if angles is None else _size(angles.shape[-1])
        self.kv_heads, self.key, self.page = (_size(s) for s in self.k_pages.shape[2:])
        self.value = a["value_size"] or _size(self.v_pages.shape[4])
        self.group = self.heads // self.kv_heads
        sizes = Sizes(self.kv_heads, self.group, self.key, self.value, self.page, dt.nbytes(self.k_pages.dtype))
        self.tiles = t = Tiles.of(sizes, cpu, self.single_query, not self.inline and not self.latent)
        self.lanes, self.row_tile, self.block, self.piece = t.lanes, t.row_tile, t.block, t.piece
        self.padded_value = t.value_tiles * t.value_vectors * t.lanes
        self.n, self.max_pages, self.num_pages = self.q.shape[0], self.page_table.shape[1], self.k_pages.shape[1]
        self.table = Pages(self.page_table, self.num_pages, self.page)
        self.limit = self.table.limit
        self.out = buffer("attention", (self.n, self.heads, self.value), self.q.dtype)
        self._make_scratch()

    def _make_scratch(self) -> None:
        def local(name: str, *shape: int, dtype: str = "float32") -> Buffer:
            self.scratch.append(buffer(name, shape, dtype, scope="local"))
            return self.scratch[-1]

        t, self.scratch = self.tiles, list[Buffer]()
        self.query, self.acc = local("query", t.rows, self.key), local("acc", t.rows, self.padded_value)
        self.row_max, self.row_sum = local("row_max", t.rows), local("row_sum", t.rows)
        self.ends, self.positions = local("ends", t.rows, dtype="int32"), local("positions", t.rows, dtype="int32")
        self.keys = local("keys", self.key, t.block) if t.staged else None
        self.values = local("values", t.block, self.padded_value) if t.staged else None
        self.score, self.fold = local("score", t.row_tile, t.block), local("fold", t.lanes)
        self.new_max, self.correction = local("new_max", t.row_tile), local("correction", t.row_tile)
        self.key_sums = local("key_sums", t.row_tile, t.key_vectors, t.lanes)
        self.value_sums = local("value_sums", t.value_rows, t.value_vectors, t.lanes)
        self.pages = local("pages", t.block // self.page, dtype="int64")
        self.last, self.low, self.high = (local(x, 1, dtype="int32") for x in ("last", "low", "high"))
        self.stop = local("stop", 1, dtype="int64")

    # -- work items

    def body(self) -> Stmt:
        """The kernel's statements: tiles of queries, or the pieces of each token and their merge."""
        item = Var("item")
        if not self.single_query:
            self.step = self._tokens_of_a_tile()
            self.count = ceildiv(self.n, self.step)
            return self._parallel(item, self.count * self.kv_heads, expand(attend_tile, self, item))
        shape = (self.n, self.heads, MAX_PIECES)
        self.partial = buffer("partial", (*shape, self.value))
        self.partial_max, self.partial_sum = buffer("partial_max", shape), buffer("partial_sum", shape)
        self.max_pieces, merged = buffer("max_pieces", (1,), "int64"), Var("merged")
        extent = self.n * self.kv_heads * self.max_pieces[0]
        pieces = self._parallel(item, extent, expand(attend_piece, self, item))
        merge = For(merged, self.n * self.heads, expand(merge_pieces, self, merged), PARALLEL)
        body = seq(expand(count_pieces, self), pieces, merge)
        return _allocated([self.partial, self.partial_max, self.partial_sum, self.max_pieces], body)

    def _tokens_of_a_tile(self) -> PrimExpr:
        """Tokens per tile: as many as fit, fewer when that leaves threads without tiles."""
        threads = int(str(self.target.attrs.get("num-cores", 1)))
        share = ceildiv(self.n * self.kv_heads, TILES_PER_THREAD * threads)
        return maximum(minimum(share, self.tiles.tokens), 1)

    def _parallel(self, item: Var, extent: PrimExpr, body: Stmt) -> Stmt:
        return For(item, extent, _allocated(self.scratch, body), PARALLEL, None, DYNAMIC)

    # -- expressions

    def sequence(self, token: PrimExpr) -> PrimExpr:
        return self.table.sequence(self.token_seq[token])

    def position(self, token: PrimExpr) -> PrimExpr:
        """Position of a token, int32, clamped so that sums of positions do not overflow."""
        return minimum(maximum(self.token_pos[token], const(-1, "int32")), const(FARTHEST, "int32"))

    def end(self, token: PrimExpr) -> PrimExpr:
        """End of the positions that a token attends to, int32."""
        given = self.position(token) + 1
        if self.cross:
            given = te.if_then_else(self.limit > 0, self.more["lengths"][self.sequence(token)], const(0, "int32"))
        return minimum(maximum(given, const(0, "int32")), cast("int32", self.limit))

    def piece_length(self, token: PrimExpr) -> PrimExpr:
        return maximum(ceildiv(as_index(self.end(token)), MAX_PIECES * self.piece), 1) * self.piece

    def pieces(self, token: PrimExpr) -> PrimExpr:
        return ceildiv(as_index(self.end(token)), self.piece_length(token))

    def first_seen(self, token: PrimExpr) -> PrimExpr:
        return maximum(self.position(token) - (self.window - 1), const(0, "int32"))

    def page_of(self, sequence: PrimExpr, position: PrimExpr) -> PrimExpr:
        row = minimum(position // self.page, self.max_pages - 1)
        return clamped(as_index(self.page_table[sequence, row]), self.num_pages)

    def in_window(self, position: PrimExpr) -> PrimExpr:
        """Whether the page that begins at ``position`` is in the window; pages before it may have been freed."""
        seen = position + self.page > as_index(self.low[0])
        return logical_or(seen, position < self.sink_size) if self.sink_size else seen

    def pair(self, i: PrimExpr) -> PrimExpr:
        """Index of the first element of rotated pair ``i``."""
        return i * 2 if self.interleaved else i

    def partner(self, i: PrimExpr) -> PrimExpr:
        return i * 2 + 1 if self.interleaved else i + self.pairs

    def angle(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        return cast("float32", position) * self.more["inv_freq"][i]

    def query_cos(self, i: PrimExpr, token: PrimExpr) -> PrimExpr:
        return self.more["cos"][token, i] if self.rotated else self.cos(i, self.position(token))

    def query_sin(self, i: PrimExpr, token: PrimExpr) -> PrimExpr:
        return self.more["sin"][token, i] if self.rotated else self.sin(i, self.position(token))

    def cos(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        return te.cos(self.angle(i, position)) * self.factor

    def sin(self, i: PrimExpr, position: PrimExpr) -> PrimExpr:
        return te.sin(self.angle(i, position)) * self.factor

    def key_at(self, g: PrimExpr, d: PrimExpr, start: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """Element d of the block's key ``start + lane``; ``start`` is a multiple of the lanes."""
        if self.keys is not None:
            return self.keys[d, start + lane]
        place = (self.layer, self.pages[start // self.page], g, d, start % self.page + lane)
        return cast("float32", self.k_pages[place])

    def stored_value(self, page: PrimExpr, g: PrimExpr, slot: PrimExpr, e: PrimExpr) -> PrimExpr:
        if self.latent:
            return cast("float32", self.k_pages[self.layer, page, g, e, slot])
        return cast("float32", self.v_pages[self.layer, page, g, slot, e])

    def scored(self, product: PrimExpr, row: PrimExpr, head: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row at position ``j`` (int32); ``product``: the scaled product of query and key."""
        score = product
        if self.soft_cap:
            score = te.tanh(score / self.soft_cap) * self.soft_cap
        if self.has_slopes:
            distance = cast("float32", j - self.positions[row])
            score = score + self.more["slopes"][head] * distance
        visible = j < self.ends[row]
        if self.window:
            near = j > self.positions[row] - self.window
            if self.cross:
                near = logical_and(near, j < self.positions[row] + self.window)
            if self.sink_size:
                near = logical_or(near, j < self.sink_size)
            visible = logical_and(visible, near)
        return te.select(visible, score, const(MASKED, "float32"))

    def start_max(self, head: PrimExpr, begin: PrimExpr) -> PrimExpr:
        """Initial running maximum of a row; the learned sink counts in the first piece."""
        none = const(NO_MAXIMUM, "float32")
        return te.if_then_else(begin < 1, self.more["sinks"][head], none) if self.has_sinks else none

    def start_sum(self, begin: PrimExpr) -> PrimExpr:
        zero = const(0.0, "float32")
        return te.if_then_else(begin < 1, const(1.0, "float32"), zero) if self.has_sinks else zero


def _allocated(buffers: list[Buffer], body: Stmt) -> Stmt:
    for scratch in reversed(buffers):
        body = Allocate(scratch, body)
    return body


def _size(size: PrimExpr) -> int:
    static = static_size(size)
    if static is None:
        raise NoKernel
    return static
