"""Prefetching of weights that are stored in tiles of columns."""

from __future__ import annotations

from math import prod

from ....ir import dtype as dt
from ....ir.expr import Var
from ....schedules.rule import constant_extent
from ....tir.schedule import Schedule
from ....tir.schedule.prefetch import LINE
from ..machine import Cpu

VECTORS_AHEAD = 48  # the vectors of a weight that are read while a cache line arrives from memory
L1_MISSES = 24  # that an L1 cache has in flight


def bytes_ahead(cpu: Cpu) -> int:
    """The distance, in bytes, at which the weight that a loop reads is prefetched."""
    return VECTORS_AHEAD * cpu.vector_bits // 8


def cache_level(cpu: Cpu) -> int:
    """The level of cache to prefetch to: 2 where the L1 cache cannot have as many lines in flight."""
    return 1 if bytes_ahead(cpu) <= L1_MISSES * LINE else 2


def prefetch_weight(s: Schedule, block: str, index: int, loop: Var, cpu: Cpu, stream: Var | None = None) -> None:
    """Prefetch the ``index``-th buffer that a block reads. loop: its iterations together read one tile.

    stream: a loop inside of it over tiles that are read together, which share the cache lines in flight.
    """
    weight = s.block(block).reads[index].buffer
    sizes = [constant_extent(size) for size in weight.shape[1:]]
    assert all(sizes)
    bytes_of_step = prod(size for size in sizes if size) * dt.nbytes(weight.dtype) // s.extent(loop)
    streams = 1 if stream is None else s.extent(stream)
    s.prefetch(block, loop, index, -(-bytes_ahead(cpu) // (streams * bytes_of_step)), stream, cache_level(cpu))
