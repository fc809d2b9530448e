"""Staging of activations that depend on statistics of their rows, such as normalizations, in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.expr import Call, IntImm, PrimExpr, Select, Var, binary, cast, const, minimum
from ....tir.nodes import Buffer, BufferLoad, buffer
from ..machine import WARP
from .division import SPAN_LANES, Division
from .fused_matmul import FusedMatmul, Statistic
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


@dataclass(frozen=True)
class Chunks:
    """Chunks of 8 positions, one for each thread of a block in each round.

    inside: whether no chunk reaches beyond the depth. exact: whether each thread has a chunk in each round.
    """

    count: int
    threads: int
    inside: bool

    @property
    def rounds(self) -> int:
        return -(-self.count // self.threads)

    @property
    def exact(self) -> bool:
        return self.rounds * self.threads == self.count

    def number(self, warp: Var, lane: Var, turn: PrimExpr) -> PrimExpr:
        """The index of a thread's chunk in a round."""
        return cast("int32", turn) * self.threads + warp * WARP + lane


@dataclass(eq=False)
class Staged:
    """Activations in shared memory, computed once per block, after the statistics of their rows.

    unit: consecutive positions that a lane reads; four lanes read a span. d: the blocks, each of which stages its part
    of the depth. order: order of the positions of a chunk for the mma operands. row_chunks: chunks of a row.
    part_chunks: chunks of a part, which may lie beyond the depth. x: the activations. parts: the warps' partial results
    of each statistic.
    """

    matmul: FusedMatmul
    unit: int
    d: Division
    order: Callable[[PrimExpr], PrimExpr]

    def __post_init__(self) -> None:
        matmul, d = self.matmul, self.d
        assert isinstance(matmul.rows, IntImm)
        self.rows, self.warps = matmul.rows.value, d.warps
        threads = d.warps * WARP
        self.row_chunks = Chunks(-(-matmul.depth // CHUNK), threads, matmul.depth % CHUNK == 0)
        count = d.steps * d.warps * SPAN_LANES * self.unit // CHUNK
        self.part_chunks = Chunks(count, threads, d.parts * count * CHUNK == matmul.depth)
        self.count = len(matmul.statistics)
        self.x = buffer("x_staged", (self.rows, self.part_chunks.count * CHUNK), matmul.dtype, "shared")
        self.parts = buffer("parts", (self.count, self.rows, self.warps), "float32", "shared")
        self.buffers = (self.x, self.parts)

    def chunk_at(self, part: PrimExpr, place: PrimExpr) -> PrimExpr:
        """The chunk of a row at ``place``. Chunks that four lanes read together are adjacent, in different banks."""
        lane_chunks = self.unit // CHUNK
        span_chunks = SPAN_LANES * lane_chunks
        in_span = place % SPAN_LANES * lane_chunks + place // SPAN_LANES % lane_chunks
        return part * self.part_chunks.count + place // span_chunks * span_chunks + in_span

    def load(self, row: PrimExpr, span: PrimExpr, lane: Var, number: PrimExpr, e: PrimExpr) -> PrimExpr:
        """Activation ``e`` of a lane's chunk ``number`` in a span of its part."""
        place = (span * (self.unit // CHUNK) + cast("int32", number)) * SPAN_LANES + lane % SPAN_LANES
        return self.x[row, place * CHUNK + cast("int32", e)]

    # -- statistics

    @property
    def first(self) -> _Numbered:
        return _Numbered(0, self.matmul.statistics[0])

    @property
    def second(self) -> _Numbered:
        return _Numbered(1, self.matmul.statistics[1])

    def with_term(
        self, which: _Numbered, value: PrimExpr, known: Buffer, row: PrimExpr, chunk: PrimExpr, e: PrimExpr
    ) -> PrimExpr:
        """A statistic of a row combined with the term of a position; unchanged beyond the depth."""
        k, inside = self._position(chunk, e, self.row_chunks.inside)
        result = which.combine(value, which.statistic.term(self._values(known, row), row, k))
        return result if inside is None else Select(inside, result, value)

    def activation(self, known: Buffer, row: PrimExpr, chunk: PrimExpr, e: PrimExpr) -> PrimExpr:
        k, inside = self._position(chunk, e, self.part_chunks.inside)
        value = self.matmul.activation_given(self._values(known, row), row, k)
        return value if inside is None else Select(inside, value, const(0, value.dtype))

    def _position(self, chunk: PrimExpr, e: PrimExpr, inside: bool) -> tuple[PrimExpr, PrimExpr | None]:
        """Position ``e`` of a chunk, clamped to the depth, and whether it was inside; None if that is known."""
        first, depth = cast("int64", chunk) * CHUNK, self.matmul.depth
        if inside:
            return first + e, None
        if depth % CHUNK:
            return minimum(first + e, depth - 1), first + e < depth
        return minimum(cast("int64", chunk), depth // CHUNK - 1) * CHUNK + e, first < depth

    def _values(self, known: Buffer, row: PrimExpr) -> dict[int, PrimExpr]:
        return {id(s.buffer): known[i, row] for i, s in enumerate(self.matmul.statistics)}

    def shuffle(self, out: BufferLoad, value: BufferLoad, distance: PrimExpr) -> Call:
        places = (Call("address_of", (o,), "handle") for o in (out, value))
        return Call("intrinsic.cuda.shfl.xor.f32", (*places, distance), "handle")
