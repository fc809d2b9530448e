"""Tile sizes of matmuls on tensor cores."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ..machine import WARP

CHUNK = 8
"""Elements of 16 bits in 16 bytes: the unit of cp.async copies, and a row of a matrix that ldmatrix loads."""
MMA_ROWS, MMA_COLUMNS, MMA_DEPTH = 16, 8, 16


@dataclass(frozen=True)
class Tile:
    """The part of a matmul that a thread block computes: ``rows`` x ``columns``, ``depth`` positions at a time.

    warps_down, warps_across: the warps of the block divide the tile. stages: tiles of the operands in shared memory;
    all but one are being loaded while one is multiplied. blocks: minimum per multiprocessor, which limits registers.
    """

    rows: int
    columns: int
    depth: int
    warps_down: int
    warps_across: int
    stages: int
    blocks: int

    @property
    def threads(self) -> int:
        return WARP * self.warps_down * self.warps_across

    @property
    def warp_rows(self) -> int:
        return self.rows // self.warps_down

    @property
    def warp_columns(self) -> int:
        return self.columns // self.warps_across

    @property
    def row_tiles(self) -> int:
        """Fragments of 16 rows of a warp."""
        return self.warp_rows // MMA_ROWS

    @property
    def column_tiles(self) -> int:
        """Fragments of 8 columns of a warp."""
        return self.warp_columns // MMA_COLUMNS

    @property
    def chunks(self) -> int:
        """Chunks of a row of an operand's tile."""
        return self.depth // CHUNK

    def shared_bytes(self, dtype: str) -> int:
        """Bytes of shared memory for both operands."""
        return self.stages * (self.rows + self.columns) * self.depth * dt.nbytes(dtype)


FEW_ROWS = 32
SMALL = Tile(32, 64, 64, 1, 4, 4, 4)
"""For ``FEW_ROWS`` rows or fewer: one tile has all rows, so that each weight is read once."""
LARGE = Tile(128, 128, 32, 2, 2, 4, 2)
"""For matmuls with enough of these tiles for all multiprocessors: the most multiplications per loaded element."""
LARGE_UNPACKED = Tile(128, 128, 32, 2, 2, 3, 2)
"""As ``LARGE``, for weights that are unpacked: the steps of all stages are unrolled, and addresses take registers."""
WARPGROUPS = Tile(128, 128, 64, 8, 1, 3, 2)
"""As ``LARGE``, for wgmma: rows of 128 bytes, and 64 rows for each group of four warps."""
MEDIUM = Tile(64, 64, 64, 2, 2, 4, 3)
"""For other matmuls."""
