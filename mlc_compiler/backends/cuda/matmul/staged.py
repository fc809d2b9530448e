"""Activations that depend on statistics of their rows, as normalizations do, in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.expr import Call, IntImm, PrimExpr, Select, Var, binary, cast, const, minimum
from ....tir.nodes import Buffer, BufferLoad, buffer
from ..machine import WARP
from .product import Product, Statistic
from .tiles import CHUNK


@dataclass(frozen=True)
class _Numbered:
    number: int
    statistic: Statistic

    @property
    def start(self) -> PrimExpr:
        return self.statistic.start

    def combine(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return binary(self.statistic.op, a, b)


@dataclass(eq=False)
class Staged:
    """Activations in shared memory, computed by each block once, after the statistics of their rows.

    unit: consecutive positions that a lane reads; four lanes read a span. warps: of the block. chunks: of 8 positions
    of a row, beyond the depth if the last span is partial. rounds: in each of which all threads compute one chunk.
    exact_rounds: whether there is one for each thread in each round. order: of the positions of a chunk, as products
    need them. x: the activations; parts: the warps' parts of each statistic.
    """

    product: Product
    unit: int
    warps: int
    order: Callable[[PrimExpr], PrimExpr]

    def __post_init__(self) -> None:
        product, span = self.product, 4 * self.unit
        assert isinstance(product.rows, IntImm)
        self.rows = product.rows.value
        self.exact = product.depth % span == 0
        self.chunks = -(-product.depth // span) * span // CHUNK
        self.rounds = -(-self.chunks // (self.warps * WARP))
        self.exact_rounds = self.rounds * self.warps * WARP == self.chunks
        self.count = len(product.statistics)
        self.x = buffer("x_staged", (self.rows, self.chunks * CHUNK), product.dtype, "shared")
        self.parts = buffer("parts", (self.count, self.rows, self.warps), "float32", "shared")
        self.buffers = (self.x, self.parts)

    def place(self, warp: Var, lane: Var, number: PrimExpr) -> PrimExpr:
        """The place of the chunk that a thread computes in a round."""
        return (cast("int32", number) * self.warps + warp) * WARP + lane

    def chunk(self, place: PrimExpr) -> PrimExpr:
        """The chunk at a place. Chunks that four lanes read together are neighbours, and so in different banks."""
        lane_chunks = self.unit // CHUNK
        in_span = place % 4 * lane_chunks + place // 4 % lane_chunks
        return place // (4 * lane_chunks) * (4 * lane_chunks) + in_span

    def load(self, row: PrimExpr, span: PrimExpr, lane: Var, number: PrimExpr, e: PrimExpr) -> PrimExpr:
        """An activation of the chunk with this number among those of a lane in a span."""
        place = (span * (self.unit // CHUNK) + cast("int32", number)) * 4 + lane % 4
        return self.x[row, place * CHUNK + cast("int32", e)]

    # -- statistics

    @property
    def first(self) -> _Numbered:
        return _Numbered(0, self.product.statistics[0])

    @property
    def second(self) -> _Numbered:
        return _Numbered(1, self.product.statistics[1])

    def with_term(
        self, which: _Numbered, value: PrimExpr, known: Buffer, row: PrimExpr, chunk: PrimExpr, e: PrimExpr
    ) -> PrimExpr:
        """A statistic of a row with the term of a position; beyond the depth, as it was."""
        k = cast("int64", chunk) * CHUNK + e
        term = which.statistic.term(self._values(known, row), row, self._inside(k))
        result = which.combine(value, term)
        return result if self.exact else Select(k < self.product.depth, result, value)

    def activation(self, known: Buffer, row: PrimExpr, chunk: PrimExpr, e: PrimExpr) -> PrimExpr:
        k = cast("int64", chunk) * CHUNK + e
        value = self.product.activation_given(self._values(known, row), row, self._inside(k))
        return value if self.exact else Select(k < self.product.depth, value, const(0, value.dtype))

    def _inside(self, k: PrimExpr) -> PrimExpr:
        return k if self.exact else minimum(k, self.product.depth - 1)

    def _values(self, known: Buffer, row: PrimExpr) -> dict[int, PrimExpr]:
        return {id(s.buffer): known[i, row] for i, s in enumerate(self.product.statistics)}

    def shuffle(self, out: BufferLoad, value: BufferLoad, distance: PrimExpr) -> Call:
        places = (Call("address_of", (o,), "handle") for o in (out, value))
        return Call("intrinsic.cuda.shfl.xor.f32", (*places, distance), "handle")
