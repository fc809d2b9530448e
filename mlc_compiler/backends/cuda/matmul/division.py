"""Division of a matmul with few rows over the blocks and warps of a GPU (split-K)."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import Gpu
from .tiles import MMA_ROWS

LOAD_BYTES = 16
SPAN_LANES = 4
"""Lanes of a warp that read adjacent weights of a column."""
MAX_WARPS = 8
MANY_TILES = (4, 2)
BLOCKS_PER_MULTIPROCESSOR = 2
MERGE_BYTES = 32 << 10
"""Bytes that a multiprocessor reads at its share of the memory bandwidth (20 to 30 GB/s) in the microsecond that adding
partial sums takes: a fence, an atomic operation and a load, each with about the latency of the L2 cache."""


@dataclass(frozen=True)
class Division:
    """The blocks and warps of a matmul whose weights are read in spans: 16 bytes for each of four lanes.

    tiles: tiles of 16 columns per block. parts: blocks that divide the depth (K) of the same columns. warps: per block;
    they take the spans of its part in turns. steps: spans per warp; in the last part, some may lie beyond the depth.
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

        Blocks have several tiles, which share activations, if there are enough columns. With ``divides``, the depth is
        divided if columns alone do not give each multiprocessor a block, or, with ``prologue``, so that
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
        """Divide the depth into parts, for at least ``enough`` blocks unless these would become too small."""
        wanted = -(-enough // self._blocks(columns))
        most = max(self.steps * self.warps * self.columns * SPAN_LANES * LOAD_BYTES // MERGE_BYTES, 1)
        steps = max(self.steps // wanted, -(-self.steps // most))
        return Division(self.tiles, -(-self.steps // steps), self.warps, steps)
