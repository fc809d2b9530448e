"""The weights that a lane of a matmul with few rows reads: 16 bytes at a time, as 16-bit floats in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, PrimExpr, Var, cast, minimum
from ....tir.nodes import BufferLoad
from .division import LOAD_BYTES, SPAN_LANES
from .fused_matmul import FusedMatmul
from .tiles import CHUNK
from .weight_layouts import lane_positions


@dataclass(eq=False)
class LaneWeights:
    """Sizes and expressions for the macros of ``lane_weights_loops.py``.

    unit: consecutive positions whose weights are 16 bytes. elements: elements of ``dtype`` in 16 bytes. packed: the
    codes that instructions unpack, ``codes`` from ``taken`` elements each. whole: whether no 16 bytes reach beyond the
    stored elements of a column. exact: whether no span reaches beyond the depth. in_memory: whether no span reaches
    beyond the stored positions.
    """

    matmul: FusedMatmul

    def __post_init__(self) -> None:
        self.packed = packed = self.matmul.packed
        self.dtype = packed.unpacking.dtype if packed else self.matmul.dtype
        self.elements = LOAD_BYTES // dt.nbytes(self.dtype)
        self.unit = lane_positions(packed.unpacking) if packed else self.elements
        if packed is not None:
            self.codes, self.taken = packed.unpacking.codes, packed.unpacking.elements
        self.width = packed.width if packed else self.matmul.depth
        self.whole = self.width % self.elements == 0
        self.exact = self.matmul.depth % (SPAN_LANES * self.unit) == 0
        self.has_layouts = packed is not None and bool(packed.layouts)
        self.in_memory = self.exact or self.has_layouts

    def sources(self) -> list[Callable[[PrimExpr, PrimExpr], PrimExpr]]:
        """The loads of a weight, as functions of column and position: stored element and scale."""
        packed = self.packed
        if packed is None:
            return [self.matmul.weight.element]
        stored = lambda n, k: packed.stored(n, k // packed.unpacking.positions)  # noqa: E731
        return [stored, packed.scale] if packed.unpacking.scaled else [stored]

    @property
    def orders_chunks(self) -> bool:
        """Whether ``order`` permutes positions within chunks only."""
        return self.packed is None or not self.packed.unpacking.paired or CHUNK % self.codes == 0

    def order(self, place: PrimExpr) -> PrimExpr:
        """The position, counted from the lane's first, of the weight at ``place`` in its registers."""
        if self.packed is None or not self.packed.unpacking.paired:
            return place
        return place // self.codes * self.codes + self.packed.unpacking.order(place % self.codes)

    def load(self, span: PrimExpr, lane: Var) -> PrimExpr:
        """The index, in its column, of a lane's 16 bytes of a span."""
        return cast("int64", span) * SPAN_LANES + cast("int64", lane) % SPAN_LANES

    def element(self, column: PrimExpr, load: PrimExpr, e: PrimExpr) -> PrimExpr:
        """Stored element ``e`` of a load; any element beyond the depth."""
        number = self._inside(load) * self.elements + e
        if not (self.in_memory or self.whole):
            number = minimum(number, self.width - 1)
        return self.matmul.weight.element(column, number) if self.packed is None else self.packed.stored(column, number)

    def scale(self, column: PrimExpr, load: PrimExpr, number: PrimExpr) -> PrimExpr:
        """The scale of the codes that instruction ``number`` unpacks."""
        assert self.packed is not None
        k = self._inside(load) * self.unit
        if self.packed.group % self.unit:
            k = k + cast("int64", number) * self.codes
        elif self.whole:
            return self.packed.scale(column, k)
        return self.packed.scale(column, k if self.in_memory else minimum(k, self.matmul.depth - 1))

    def _inside(self, load: PrimExpr) -> PrimExpr:
        """The index of a load, clamped to the stored elements if loads are ``whole``."""
        return load if self.in_memory or not self.whole else minimum(load, (self.matmul.depth - 1) // self.unit)

    def unpack(self, out: BufferLoad, element: BufferLoad, scale: BufferLoad, book: BufferLoad) -> Call:
        assert self.packed is not None
        return self.packed.unpack(self.packed.unpacking.paired, out, element, scale, book)
