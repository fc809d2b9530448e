"""Search space for tensor functions with one reduction, or none, on a GPU: tiles of blocks, threads and registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..backends.cuda.machine import MAX_THREADS_PER_BLOCK, STATIC_SHARED_BYTES, WARP
from ..backends.cuda.schedules.elementwise import THREADS_OF_A_BLOCK, vector_width, vectorize_last_axis
from ..ir import dtype as dt
from ..ir.expr import Var
from ..schedules.rule import Blocks, accumulate_locally, analyse, choose, inline_intermediates
from ..tir.schedule import Schedule
from .space import Space

LARGEST_TILE, LARGEST_STEP = 8, 32  # maximum elements of a thread along an axis, and steps between two barriers
VECTORS = (1, 2, 4)  # elements that a thread copies to shared memory at a time
LARGEST_THREAD = 128  # maximum elements of a thread, which are in registers
UNROLLED = (1, 2, 4, 8, 16)  # candidates for the maximum number of unrolled steps of a reduction


@dataclass(frozen=True)
class GpuSketches(Space):
    """Schedules by the structure of the function.

    A reduction is tiled in three levels: thread blocks, threads, and the elements that a thread has in registers. The
    threads of a block copy the tiles of an operand to shared memory together, which is a choice for each operand.
    Without reductions, each thread computes a vector. Functions with several reductions or symbolic sizes have no
    schedule here.
    """

    def schedule(self, s: Schedule) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or len(blocks.reductions) > 1 or not _constant(s, blocks):
            return None
        if blocks.reductions:
            return s if _tiles(s, blocks) else None
        inline_intermediates(s, [b.name for b in blocks.in_order[:-1]])
        for name in s.get_blocks():
            _vectors(s, name, choose(s, THREADS_OF_A_BLOCK, 256))
        return s


def _constant(s: Schedule, blocks: Blocks) -> bool:
    """Whether all loops have constant extents, one for each variable of their block."""
    nests = [(s.get_loops(b.name), b) for b in blocks.in_order]
    return all(len(loops) == len(b.iter_vars) > 0 for loops, b in nests) and all(
        isinstance(s.extent(loop), int) for loops, _ in nests for loop in loops
    )


def _vectors(s: Schedule, name: str, threads: int) -> None:
    vectors = vectorize_last_axis(s, name, vector_width(s.block(name)))
    block, thread = s.split(vectors, [None, threads])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")


def _tiles(s: Schedule, blocks: Blocks) -> bool:
    """Tile a reduction; False if the threads, registers or shared memory of a block exceed what every GPU has.

    Loops over the elements of a thread are unrolled: buffers with variable indices are not kept in registers.
    """
    anchor = blocks.reductions[0].name
    names = [b.name for b in blocks.in_order]
    at = names.index(anchor)
    for name in names[:at]:
        s.compute_inline(name)
    last = accumulate_locally(s, anchor, names[at + 1 :])
    pairs = list(zip(s.get_loops(anchor), (it.kind for it in s.block(anchor).iter_vars), strict=True))
    axes, reductions = ([loop for loop, kind in pairs if kind == wanted] for wanted in ("S", "R"))
    parts = [s.split(axis, s.sample_perfect_tile(axis, 3, LARGEST_TILE)) for axis in axes]
    steps = [s.split(loop, s.sample_perfect_tile(loop, 2, LARGEST_STEP)) for loop in reductions]
    outer, middle, inner = (list(level) for level in zip(*parts, strict=True))
    first, second = (list(level) for level in zip(*steps, strict=True))
    threads, elements = (prod(_size(s, loop) for loop in level) for level in (middle, inner))
    if threads > MAX_THREADS_PER_BLOCK or elements > LARGEST_THREAD:
        return False
    s.reorder(*outer, *middle, *first, *second, *inner)
    block, thread = s.fuse(*outer), s.fuse(*middle)
    s.reverse_compute_at(last, thread)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    if not _copy_together(s, anchor, first[-1], threads):
        return False
    init = s.decompose_reduction(anchor, first[0])
    for name in (init, last):
        loops = s.get_loops(name)
        _unroll(s, loops[_position(loops, thread) + 1 :], LARGEST_THREAD)
    _unroll(s, inner, LARGEST_THREAD)
    _unroll(s, second, choose(s, UNROLLED, 1))
    return True


def _copy_together(s: Schedule, anchor: str, step: Var, threads: int) -> bool:
    """Copy tiles of operands to shared memory by all threads of a block; False if they do not fit."""
    block = s.block(anchor)
    written = {id(w.buffer) for w in block.writes}
    room = STATIC_SHARED_BYTES
    for number, operand in enumerate(r.buffer for r in block.reads if id(r.buffer) not in written):
        if not choose(s, (0, 1), int(threads >= WARP)):
            continue
        copy = s.cache_read(anchor, number, "shared")
        s.compute_at(copy, step)
        loops = s.get_loops(copy)
        inside = loops[_position(loops, step) + 1 :]
        if not inside:
            return False
        elements = prod(_size(s, loop) for loop in inside)
        room -= elements * dt.nbytes(operand.dtype)
        if room < 0:
            return False
        width = choose(s, VECTORS, 1)
        width = width if elements % width == 0 and _size(s, inside[-1]) % width == 0 else 1
        _, thread, lane = s.split(s.fuse(*inside), [None, threads, width])
        s.bind(thread, "threadIdx.x")
        if width > 1:
            s.vectorize(lane)
    return True


def _size(s: Schedule, loop: Var) -> int:
    """The extent of a loop, which ``_constant`` has checked."""
    extent = s.extent(loop)
    assert isinstance(extent, int)
    return extent


def _position(loops: list[Var], wanted: Var) -> int:
    return next(i for i, loop in enumerate(loops) if loop is wanted)


def _unroll(s: Schedule, loops: list[Var], limit: int) -> None:
    """Unroll loops, innermost first, up to ``limit`` iterations."""
    count = 1
    for loop in reversed(loops):
        count *= _size(s, loop)
        if count > limit:
            return
        s.unroll(loop)
