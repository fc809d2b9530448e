"""Activations that depend on statistics of their rows, as normalizations do, in shared memory."""

from __future__ import annotations

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
    x: the activations; parts: the warps' parts of each statistic.
    """

    product: Product
    unit: int
    warps: int

    def __post_init__(self) -> None:
        product, span = self.product, 4 * self.unit
        assert isinstance(product.rows, IntImm)
        self.rows = product.rows.value
        self.exact = product.depth % span == 0
        self.chunks = -(-product.depth // span) * span // CHUNK
        self.rounds = -(-self.chunks // (self.warps * WARP))
        self.count = len(product.statistics)
        self.x = buffer("x_staged", (self.rows, self.chunks * CHUNK), product.dtype, "shared")
        self.parts = buffer("parts", (self.count, self.rows, self.warps), "float32", "shared")
        self.buffers = (self.x, self.parts)

    def chunk(self, warp: Var, lane: Var, number: PrimExpr) -> PrimExpr:
        return (cast("int32", number) * self.warps + warp) * WARP + lane

    def place(self, chunk: PrimExpr) -> PrimExpr:
        """Where a chunk is: the four lanes that read chunks of a span together use different banks."""
        lane_chunks = self.unit // CHUNK
        if lane_chunks == 1:
            return chunk * CHUNK
        lane = chunk // lane_chunks % 4
        return (chunk ^ cast(chunk.dtype, lane // 2)) * CHUNK

    def load(self, row: PrimExpr, first: PrimExpr, e: PrimExpr) -> PrimExpr:
        chunk = cast("int32", first // CHUNK) + cast("int32", e // CHUNK)
        return self.x[row, self.place(chunk) + cast("int32", e % CHUNK)]

    # -- statistics

    @property
    def first(self) -> _Numbered:
        return _Numbered(0, self.product.statistics[0])

    @property
    def second(self) -> _Numbered:
        return _Numbered(1, self.product.statistics[1])

    def with_term(
        self, which: _Numbered, value: PrimExpr, known: Buffer, row: PrimExpr, chunk: Var, e: PrimExpr
    ) -> PrimExpr:
        """A statistic of a row with the term of a position; beyond the depth, as it was."""
        k = cast("int64", chunk) * CHUNK + e
        term = which.statistic.term(self._values(known, row), row, self._inside(k))
        result = which.combine(value, term)
        return result if self.exact else Select(k < self.product.depth, result, value)

    def activation(self, known: Buffer, row: PrimExpr, chunk: Var, e: PrimExpr) -> PrimExpr:
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
