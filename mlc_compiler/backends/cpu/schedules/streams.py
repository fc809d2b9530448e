"""Streams of a weight: a row is multiplied with several tiles at once, whose columns are far from each other.

Hardware prefetches within a page, so that several streams keep more cache lines in flight than one. Vectors of 64 bytes
need only one stream for that.
"""

from __future__ import annotations

from ....ir.expr import Var
from ....schedules.rule import stored_buffer
from ....tir.index_map import IndexMap
from ....tir.schedule import Schedule
from ..machine import Cpu
from ..quantized.plan import even_divisor

STREAMS = 4  # at most
TILES_TO_DIVIDE = 16  # that are left for the threads, at least
WIDEST = 256  # bits of vectors for which several streams are faster


def even_streams(tiles: int, cpu: Cpu) -> int:
    """The number of streams of a weight of so many tiles, after which all cores get as many iterations."""
    if cpu.vector_bits > WIDEST:
        return 1
    return even_divisor(tiles, max(1, min(STREAMS, tiles // TILES_TO_DIVIDE)), cpu.cores)


def divide_columns(s: Schedule, block: str, last: str, streams: int) -> Var:
    """Divide the columns of a sum, and of the block after it, into streams.

    The sum's last loops are those over columns and over the reduction. Returns its loop over streams, before these.
    """
    sums, width = stored_buffer(s.block(block)), s.extent(s.get_loops(last)[-1]) // streams
    s.transform_block_layout(block, _divided_axis(len(s.block(block).iter_vars), -2, width))
    s.transform_block_layout(last, _divided_axis(len(s.block(last).iter_vars), -1, width))
    s.transform_layout(block, sums.name, _divided_axis(len(sums.shape), -1, width))
    return s.get_loops(block)[-3]


def _divided_axis(axes: int, axis: int, width: int) -> IndexMap:
    """The map ``(…, n, …) -> (…, n // width, n % width, …)`` of ``axes`` indices, n at ``axis``."""
    inputs = [Var(f"i{number}") for number in range(axes)]
    outputs = [(i // width, i % width) if i is inputs[axis] else (i,) for i in inputs]
    return IndexMap(inputs, [index for indices in outputs for index in indices])
