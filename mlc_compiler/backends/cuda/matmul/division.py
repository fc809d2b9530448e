"""How a product with few rows is divided over the blocks and warps of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import Gpu
from .tiles import MMA_ROWS

LOAD_BYTES = 16
SPAN_LANES = 4
"""Lanes of a warp that read neighbouring weights of a column."""
MAX_WARPS = 8
MANY_TILES = (4, 2)
BLOCKS_PER_MULTIPROCESSOR = 2
MERGE_BYTES = 32 << 10
"""What a multiprocessor reads at its share of the memory's rate (20 to 30 GB/s) in the microsecond that it takes to add
partial sums: a fence, an atomic operation and a load, each about as long as an access to the second-level cache."""


@dataclass(frozen=True)
class Division:
    """The blocks and warps of a product whose weights are read in spans: 16 bytes for each of four lanes.

    tiles: of 16 columns of a block. parts: blocks that divide the depth of the same columns. warps: of a block, which
    take the spans of its part in turns. steps: spans of a warp; in the last part, some may lie beyond the depth.
    """

    tiles: int
    parts: int
    warps: int
    steps: int

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.tiles * MMA_ROWS

    @staticmethod
    def of(columns: int, spans: int, gpu: Gpu, *, prologue: bool, divides: bool = True) -> Division:
        """The division of ``columns`` columns of ``spans`` spans each.

        Blocks have several tiles, which share activations, where there are enough columns for it. With ``divides``, the
        depth is divided where columns alone do not give each multiprocessor a block, or, with ``prologue``, so that
        fewer blocks compute the same activations; but no block reads less than ``MERGE_BYTES``.
        """
        warps = next(w for w in (MAX_WARPS, 4, 2, 1) if w <= spans or w == 1)
        enough = BLOCKS_PER_MULTIPROCESSOR * gpu.multiprocessors
        *wide, narrow = (Division(tiles, 1, warps, -(-spans // warps)) for tiles in (*MANY_TILES, 1))
        for division in wide:
            if columns // division.columns >= enough:
                return division
        if prologue and divides:
            for division in (d._divided(columns, enough) for d in wide):
                if division._blocks(columns) >= enough:
                    return division
        fills = narrow._blocks(columns) >= gpu.multiprocessors
        return narrow if fills or not divides else narrow._divided(columns, enough)

    def _blocks(self, columns: int) -> int:
        return -(-columns // self.columns) * self.parts

    def _divided(self, columns: int, enough: int) -> Division:
        """With the depth in parts, for at least ``enough`` blocks if they are not too small."""
        wanted = -(-enough // self._blocks(columns))
        most = max(self.steps * self.warps * self.columns * SPAN_LANES * LOAD_BYTES // MERGE_BYTES, 1)
        steps = max(self.steps // wanted, -(-self.steps // most))
        return Division(self.tiles, -(-self.steps // steps), self.warps, steps)
