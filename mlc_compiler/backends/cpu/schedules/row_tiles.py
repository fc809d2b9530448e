"""Register tiles of matmuls: the rows in tiles of decreasing height, the tiles of columns in parallel."""

from __future__ import annotations

from collections.abc import Callable

from ....ir.expr import Var
from ....ir.visitor import walk
from ....tir.nodes import BufferLoad
from ....tir.schedule import Schedule
from ..machine import Cpu
from .register_tiles import static_heights

ROW_TILES_WIDE = ((12, 4, 1), (8, 4, 1), (6, 2, 1), (4, 1), (16, 4, 1), (24, 4, 1))  # 12 rows x 2 vectors of sums
ROW_TILES_NARROW = ((4, 1), (6, 2, 1), (3, 1), (2, 1), (8, 4, 1), (12, 4, 1))  # 4 rows x 2 vectors in 16 registers

Part = Callable[[str, str, Var, int], Var]
"""``part(matmul, last, row, height)`` schedules one part; returns its loop over tiles of columns, the outermost."""


def row_tiles(cpu: Cpu) -> tuple[tuple[int, ...], ...]:
    """Alternatives of tile heights, the default first: each a tall tile, then shorter ones for the remaining rows."""
    return ROW_TILES_WIDE if cpu.vector_registers >= 32 else ROW_TILES_NARROW


def tile_rows(s: Schedule, matmul: str, last: str, heights: tuple[int, ...], part: Part) -> None:
    """Partition the rows of a matmul and of the block after it into tiles of these heights, so that none is guarded.

    ``part`` schedules the tiles of one height; tiles of columns are then one loop around all of them.
    """
    _in_order_of_matmul(s, matmul, last)
    rows = _row_loop(s, matmul, inner=2)
    last_rows = _row_loop(s, last, inner=1)
    extent = s.extent(rows)
    if isinstance(extent, int):
        heights, points = static_heights(extent, heights)
    else:
        points = [extent // h * h for h in heights[:-1]]
    parts, suffixes = s.partition([rows, last_rows], points) if len(heights) > 1 else ([[rows, last_rows]], [""])
    outer = [
        part(matmul + suffix, last + suffix, row, height)
        for (row, _), suffix, height in zip(parts, suffixes, heights, strict=True)
    ]
    if len(outer) > 1:
        s.merge(*outer)


def _in_order_of_matmul(s: Schedule, matmul: str, last: str) -> None:
    """Reorder the loops of the last block to the axes of the matmul that it reads; other loops are outermost."""
    accumulated = s.block(matmul).writes[0].buffer
    load = next(n for n in walk(s.block(last).body) if isinstance(n, BufferLoad) and n.buffer is accumulated)
    axes = {id(index): axis for axis, index in enumerate(load.indices)}
    loops, variables = s.get_loops(last), s.block(last).iter_vars
    if len(loops) != len(variables):
        return
    pairs = zip(loops, variables, strict=True)
    wide = [(axes.get(id(it.var), -1), loop) for loop, it in pairs if s.extent(loop) != 1]
    if wide:
        s.reorder(*(loop for _, loop in sorted(wide, key=lambda pair: pair[0])))


def _row_loop(s: Schedule, block: str, inner: int) -> Var:
    """The loop over rows to tile: the last one of extent other than 1, fused with the row loops inside it.

    inner: number of innermost loops that are not over rows. A vector has one row.
    """
    loops = s.get_loops(block)
    rows = loops[:-inner]
    if not rows:
        return s.split(loops[0], [1, None])[0]
    wide = [i for i, loop in enumerate(rows) if s.extent(loop) != 1]
    return s.fuse(*rows[wide[-1] if len(wide) > 1 else 0 :])
