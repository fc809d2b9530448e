"""Attention of one query per sequence on a GPU: contexts in pieces (Flash-Decoding, Dao et al. 2023).

A warp works on strips of consecutive slots. For the scores, its lanes hold vectors of slots for different elements of
the keys; for the sum of values, vectors of elements for different slots. Query heads of a key/value head share loads.
The pieces of a token depend on the token alone, and are merged in order by the last of its thread blocks to finish, so
its result is bitwise the same in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var, cast, ceildiv, const, maximum, minimum
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import ZEROED, Buffer, Stmt, buffer
from ...paged_attention import PagedAttention
from ..machine import WARP, Gpu
from .decode_loops import attend
from .nests import allocated, nest
from .warps import widening

VECTOR_BYTES = 16  # the widest load of a lane
SECTOR_BYTES = 32  # of global memory: the smallest access
WARPS = 4
BLOCKS_PER_MULTIPROCESSOR = 3
ACCUMULATORS = 32  # registers of a lane for the sums of values
LOADS = 8  # vectors that a lane loads before it uses the first one
MAX_PIECES = 256  # of one context
PARTIAL_SHARE = 8  # minimum ratio of a piece's keys and values to its partial results, in bytes
FLOAT_BYTES = 4
STORED = 4  # floats that a lane stores to shared memory at once
BANKS = 32  # of shared memory, each one word wide
FEW_ELEMENTS = 8  # vectors of at most this size are not halved


def attend_by_pieces(problem: PagedAttention, target: Target) -> Stmt:
    """The kernel: partial results of all pieces, and their merge."""
    k = _Decode(problem, Strips.of(problem), target)
    token, tile, part, warp = (Var(name, "int32") for name in ("token", "tile", "part", "warp"))
    lane = Var("lane")
    body = expand(attend, k, token, tile, part, warp, lane)
    tiles = problem.kv_heads * k.s.tiles
    blocks, threads = ((token, problem.n), (tile, tiles), (part, k.grid)), ((lane, WARP), (warp, WARPS))
    kernel = nest(blocks, threads, k.scratch, body, 2 if problem.soft_cap or problem.latent else 3)
    return allocated((k.partial, k.partial_max, k.partial_sum, k.arrivals), kernel)


@dataclass(frozen=True)
class Strips:
    """The division of a strip among the lanes of a warp.

    rows: query heads of a thread block; a group has ``tiles`` times as many or fewer. key_vector: slots of a vector of
    keys; ``slot_lanes`` lanes hold a strip, ``key_lanes`` different elements. value_vector: elements of a vector of
    values; ``value_lanes`` lanes hold ``value_vectors`` each of a slot, ``row_lanes`` different slots.
    """

    rows: int
    tiles: int
    key_vector: int
    slot_lanes: int
    value_vector: int
    value_lanes: int
    value_vectors: int

    @property
    def key_lanes(self) -> int:
        return WARP // self.slot_lanes

    @property
    def row_lanes(self) -> int:
        return WARP // self.value_lanes

    @property
    def slots(self) -> int:
        """Slots of a strip."""
        return self.key_vector * self.slot_lanes

    @staticmethod
    def of(p: PagedAttention) -> Strips:
        key_bytes, value_bytes = dt.nbytes(p.k_pages.dtype), dt.nbytes(p.v_pages.dtype)
        key_vector = _vector(p.page, key_bytes, p.group)
        slot_lanes = gcd(p.page // key_vector, max(1, SECTOR_BYTES // (key_vector * key_bytes)))
        if p.latent:  # values are read as keys are
            value_vector, value_lanes, value_vectors = 1, WARP // slot_lanes, -(-p.value * slot_lanes // WARP)
        else:
            value_vector = _vector(p.value, value_bytes, p.group)
            vectors = p.value // value_vector
            value_lanes = min(WARP, max(_power_of_two_above(vectors), WARP // (key_vector * slot_lanes)))
            value_vectors = -(-vectors // value_lanes)
        limit = max(1, ACCUMULATORS // max(value_vector * value_vectors, key_vector))
        tiles = -(-p.group // limit)
        rows = -(-p.group // tiles)
        return Strips(rows, -(-p.group // rows), key_vector, slot_lanes, value_vector, value_lanes, value_vectors)


def _vector(size: int, nbytes: int, rows: int) -> int:
    """Elements of a lane's vector: a 16-byte load, or half of it if the rows would need too many registers."""
    elements = gcd(size, VECTOR_BYTES // nbytes)
    return elements // 2 if elements > FEW_ELEMENTS and elements * rows > ACCUMULATORS else elements


def _power_of_two_above(count: int) -> int:
    return 1 << (count - 1).bit_length()


@dataclass(eq=False)
class _Decode:
    """Sizes, buffers and expressions for the macros of ``decode_loops.py``.

    Shared by a thread block: query [elements, rows]; weights [warps, slots, rows], of the strip of each warp; parts
    [warps, rows, elements of a value] and totals [2, warps, rows]: values, maxima and sums of each warp. In registers:
    products [rows, slots of a vector]; score, new_max, row_max [rows]; row_sum [rows] of the lane; acc [rows, vectors,
    elements]: weighted values of the lane's slots; wide: a vector in float32; scales [2]: of the key and the value of
    the lane's slot. partial, partial_max, partial_sum: results of the pieces. arrivals:
    for each token and tile, how many of its thread blocks have finished, if it has several; arrived: that number as a
    block finds it.
    """

    p: PagedAttention
    s: Strips
    target: Target

    def __post_init__(self) -> None:
        p, s = self.p, self.s
        self.warps, self.stored = WARPS, gcd(s.value_vector, STORED)
        self.padded_rows = -(-s.rows // 4) * 4 if s.rows > 1 else 1  # whole vectors
        self.key_steps, self.value_steps = -(-p.key // s.key_lanes), s.slots // s.row_lanes
        self.key_loads = self._loads(self.key_steps)
        self.padded_key = -(-self.key_steps // self.key_loads) * self.key_loads * s.key_lanes
        self.width = s.value_lanes * s.value_vectors * s.value_vector  # elements of a value, padded
        self.sink_strips = -(-p.sink_size // s.slots) if p.window else 0
        blocks = BLOCKS_PER_MULTIPROCESSOR * Gpu.of(self.target).multiprocessors
        per_token = p.kv_heads * s.tiles
        self.max_pieces = max(1, min(MAX_PIECES, -(-blocks // per_token)))
        self.min_strips = self._min_strips()
        share = ceildiv(const(blocks, "int64"), maximum(p.n * per_token, 1))
        self.grid = cast("int32", maximum(minimum(share, minimum(self._longest(), self.max_pieces)), 1))
        self._make_buffers(blocks)

    def _make_buffers(self, counters: int) -> None:
        def scratch(name: str, scope: str, *shape: int, dtype: str = "float32") -> Buffer:
            self.scratch.append(buffer(name, shape, dtype, scope=scope))
            return self.scratch[-1]

        p, s, self.scratch = self.p, self.s, list[Buffer]()
        self.query = scratch("query", "shared", self.padded_key, self.padded_rows)
        self.weights = scratch("weights", "shared", self.warps, s.slots, self.padded_rows)
        self.parts = scratch("parts", "shared", self.warps, s.rows, self.width)
        self.totals = scratch("totals", "shared", 2, self.warps, s.rows)
        self.keys = scratch("keys", "local", self.key_loads, s.key_vector, dtype=p.k_pages.dtype)
        steps = (1, s.key_vector) if p.latent else (self.value_steps * s.value_vectors, s.value_vector)
        self.values = scratch("values", "local", *steps, dtype=p.v_pages.dtype)
        self.widen_keys = widening(p.k_pages.dtype, s.key_vector, self.target)
        self.widen_values = widening(p.v_pages.dtype, s.value_vector, self.target)
        self.wide = self.scales = None
        if self.widen_keys or self.widen_values:
            self.wide = scratch("wide", "local", max(s.key_vector, s.value_vector))
        if p.scaled:
            self.scales = scratch("scales", "local", 2)
        self.factors = scratch("factors", "local", self.padded_rows)
        self.products = scratch("products", "local", s.rows, s.key_vector)
        self.acc = scratch("acc", "local", s.rows, s.value_vectors, s.value_vector)
        self.score, self.new_max = scratch("score", "local", self.padded_rows), scratch("new_max", "local", s.rows)
        self.row_max, self.row_sum = scratch("row_max", "local", s.rows), scratch("row_sum", "local", s.rows)
        self.sent, self.other = scratch("sent", "local", 1), scratch("other", "local", 1)
        self.total = scratch("total", "local", 2)
        self.loaded = scratch("loaded", "local", 3, LOADS)
        self.arrived = scratch("arrived", "shared", 1, dtype="uint32")
        shape = (p.n, p.heads, self.max_pieces)
        self.partial = buffer("partial", (*shape, p.value))
        self.partial_max, self.partial_sum = buffer("partial_max", shape), buffer("partial_sum", shape)
        # A token and tile has several blocks only if there are fewer of these than ``counters``.
        self.arrivals = buffer("arrivals", (counters,), "uint32", ZEROED)

    def _loads(self, steps: int) -> int:
        """Loads in flight: at most ``LOADS``, about the same number for each chunk of the steps."""
        chunks = -(-steps // LOADS)
        return -(-steps // chunks)

    def _min_strips(self) -> int:
        """Minimum strips of a piece: a multiple of the warps, with many more bytes than its partial results."""
        p, s = self.p, self.s
        per_slot = p.key * dt.nbytes(p.k_pages.dtype) + (0 if p.latent else p.value * dt.nbytes(p.v_pages.dtype))
        partial = s.rows * (p.value + 2) * FLOAT_BYTES
        strips = -(-PARTIAL_SHARE * partial // (per_slot * s.slots))
        return -(-strips // self.warps) * self.warps

    def _longest(self) -> PrimExpr:
        """The pieces of the longest possible context."""
        return ceildiv(self.p.max_pages * self.p.page, self.min_strips * self.s.slots)

    # -- the strips that a token sees, int32: first those of the sink, then those of its window

    def first_strip(self, token: PrimExpr) -> PrimExpr:
        """The first strip of the window that is not one of the sink."""
        if not self.p.window:
            return const(0, "int32")
        return maximum(self.p.first_seen(token) // self.s.slots, self.sink_strips)

    def count(self, token: PrimExpr) -> PrimExpr:
        """The strips that a token sees."""
        strips = ceildiv(self.p.end(token), self.s.slots)
        return minimum(strips, self.sink_strips) + maximum(strips - self.first_strip(token), 0)

    def strip(self, i: PrimExpr, first: PrimExpr) -> PrimExpr:
        """The i-th strip that a token sees; ``first``: its ``first_strip``."""
        if not self.p.window:
            return i
        after = i - self.sink_strips + first
        return te.select(i < self.sink_strips, i, after) if self.sink_strips else after

    def piece_strips(self, count: PrimExpr) -> PrimExpr:
        """The strips of each piece of a token that sees ``count`` strips."""
        return maximum(ceildiv(count, self.max_pieces), self.min_strips)

    # -- lanes and blocks

    def counter(self, token: PrimExpr, tile: PrimExpr) -> PrimExpr:
        """The counter of the blocks of a token and tile."""
        return token * (self.p.kv_heads * self.s.tiles) + tile

    def slot(self, strip: PrimExpr) -> PrimExpr:
        """The first slot of a strip in its page, int64; a multiple of the slots of a strip."""
        return cast("int64", strip % (self.p.page // self.s.slots)) * self.s.slots

    def lane_slot(self, lane: PrimExpr) -> PrimExpr:
        """The slot whose score ``scatter_sums`` leaves to a lane."""
        return lane % self.s.slot_lanes * self.s.key_vector + lane // (WARP // self.s.key_vector)

    def place(self, slot: PrimExpr) -> PrimExpr:
        """The index of a slot in ``weights``: in the order of the lanes that store them.

        Sizes are powers of two: the place of a sum of slots without a common bit is the sum of their places.
        """
        return slot % self.s.key_vector * self.s.slot_lanes + slot // self.s.key_vector

    def own_place(self, lane: PrimExpr) -> PrimExpr:
        """``place(lane_slot(lane))``"""
        return lane // (WARP // self.s.key_vector) * self.s.slot_lanes + lane % self.s.slot_lanes

    def part_place(self, e: PrimExpr) -> PrimExpr:
        """The swizzled index of element e of a value in ``parts``, against bank conflicts of 16-byte stores."""
        words = self.s.value_vector
        if words <= STORED:
            return e
        vector, piece = e // words, e % words // STORED
        turned = (piece + vector // max(1, BANKS // words)) % (words // STORED)
        return vector * words + turned * STORED + e % STORED

    def key_at(self, i: PrimExpr, x: PrimExpr) -> PrimExpr:
        """Element x of the i-th vector of keys, float32; after ``widen``, if ``widen_keys`` is set."""
        return self.wide[x] if self.wide is not None and self.widen_keys else te.f32(self.keys[i, x])

    def value_at(self, i: PrimExpr, x: PrimExpr) -> PrimExpr:
        """Element x of the i-th vector of values, float32; after ``widen``, if ``widen_values`` is set."""
        return self.wide[x] if self.wide is not None and self.widen_values else te.f32(self.values[i, x])

    def score_of(self, product: PrimExpr) -> PrimExpr:
        """The scaled product of a query and the key in the lane's slot."""
        return product if self.scales is None else product * self.scales[0]

    def weight_of(self, weight: PrimExpr) -> PrimExpr:
        """The weight of the stored value in the lane's slot: softmax weight times the value's scale."""
        return weight if self.scales is None else weight * self.scales[1]

    def element(self, step: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """The element of the keys that a lane holds in a step."""
        return step * self.s.key_lanes + lane // self.s.slot_lanes

    def head(self, g: PrimExpr, tile: PrimExpr, h: PrimExpr) -> PrimExpr:
        """The query head of row h of a tile; the last one again for rows beyond the group."""
        in_group = tile * self.s.rows + h
        if self.padded_rows * self.s.tiles > self.p.group:
            in_group = minimum(in_group, self.p.group - 1)
        return g * self.p.group + in_group
