"""Schedule of functions without reductions: element-wise chains, copies, casts, gathers, transpositions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....ir import dtype as dt
from ....ir.expr import Call, Var
from ....ir.simplify import Analyzer
from ....ir.visitor import substitute, walk
from ....schedules.rule import TunableRule, analyse, choose, constant_extent, contiguous_axis, inline_intermediates
from ....target import Target
from ....tir.calling import flat_index
from ....tir.nodes import Allocate, Block, BufferLoad, BufferStore, For, IfThenElse, While
from ....tir.schedule import Schedule, ScheduleError
from ..machine import WARP
from ..passes.bind_threads import DEFAULT_THREADS, ITERATIONS, THREADS

TILE_WARPS = (4, 8, 16)  # of a block that transposes a tile
VECTOR_BYTES = 16  # of the widest access
VECTORS = (1, 2, 4)  # of a thread
THREADS_OF_A_BLOCK = (64, 128, DEFAULT_THREADS, 512)


class Elementwise(TunableRule):
    """A thread computes vectors of the last axis of each block that cannot be inlined.

    The pass ``bind-threads`` binds the parallel loop to blocks and threads. Transpositions go through shared memory.
    Choices: the elements of a vector, the vectors of a thread, the threads of a block; of transpositions, its warps.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or blocks.reductions:
            return None
        inline_intermediates(s, [b.name for b in blocks.in_order[:-1]])
        names = s.get_blocks()
        if len(names) == 1 and _transpose_tiles(s, names[0]):
            return s
        if not all(s.get_loops(name) for name in names):
            return None
        spread_vectors(s, names)
        return s


def _transpose_tiles(s: Schedule, name: str) -> bool:
    """Transpose square tiles through shared memory, with coalesced reads and writes; False for other blocks.

    Rows in shared memory begin in different banks.
    """
    block, loops = s.block(name), s.get_loops(name)
    across = contiguous_axis(block)
    if across is None or any(_whole_tiles(s, loops[axis]) == 0 for axis in (across, -1)):
        return False
    load = next(n for n in walk(block.body) if isinstance(n, BufferLoad))
    axis = next((i for i, index in enumerate(load.indices) if index is block.iter_vars[-1].var), None)
    if axis is None:
        return False
    (far, near), (outer, lane) = (s.split(loops[i], [None, WARP]) for i in (across, -1))
    rest = [*loops[:across], far, *loops[across + 1 : -1], outer]
    s.reorder(*rest, near, lane)
    tile, warps = s.fuse(*rest), choose(s, TILE_WARPS, 8)
    copy = s.cache_read(name, 0, "shared")
    s.compute_at(copy, tile)
    s.storage_align(copy, 0, axis, WARP, 4 // min(dt.nbytes(load.dtype), 4))
    s.bind(tile, "blockIdx.x")
    for rows, lanes in (s.get_loops(copy)[1:], (near, lane)):
        _, row = s.split(rows, [None, warps])
        s.bind(row, "threadIdx.y")
        s.bind(lanes, "threadIdx.x")
    return True


def _whole_tiles(s: Schedule, loop: Var) -> int:
    """The number of tiles along a loop; 0 where they do not divide it."""
    extent = s.extent(loop)
    return extent // WARP if isinstance(extent, int) and extent % WARP == 0 else 0


def spread_vectors(s: Schedule, names: Sequence[str]) -> None:
    """Compute vectors of blocks without reductions on threads; blocks with results of one shape share a loop."""
    widths = {name: vector_width(s.block(name)) for name in names}
    widest = choose_width(s, widths.values())
    nests = [vectorize_last_axis(s, name, min(width, widest)) for name, width in widths.items()]
    count = choose(s, VECTORS, 1)
    for loop in _merged(s, nests):
        parallel(s, loop)
        s.annotate(loop, ITERATIONS, count)


def choose_width(s: Schedule, widths: Iterable[int]) -> int:
    """Choose the maximum elements of a vector, by default the largest of ``widths``, which are powers of two."""
    widest = max(widths, default=1)
    return choose(s, powers_of_two(1, widest), widest)


def powers_of_two(least: int, most: int) -> list[int]:
    """The powers of two from ``least``, which is one of them, to ``most``."""
    return [least << i for i in range((most // least).bit_length())]


def parallel(s: Schedule, loop: Var) -> None:
    """Run the iterations of a loop on threads, in blocks of a chosen number of threads."""
    s.parallel(loop)
    s.annotate(loop, THREADS, choose(s, THREADS_OF_A_BLOCK, DEFAULT_THREADS))


def vectorize_last_axis(s: Schedule, name: str, width: int) -> Var:
    """Vectorize the last axis of a block; returns the loop over its vectors."""
    loops = s.get_loops(name)
    if width > 1:
        loops[-1], lane = s.split(loops[-1], [None, width])
        s.vectorize(lane)
    return s.fuse(*loops)


def _merged(s: Schedule, nests: list[Var]) -> list[Var]:
    """Merge the loops if all results have the same shape; otherwise return them unchanged."""
    try:
        return [s.merge(*nests)] if len(nests) > 1 else nests
    except ScheduleError:
        return nests


def vector_width(block: Block) -> int:
    """The number of elements along the last axis that one thread computes as a vector; 1 if accesses are strided."""
    stores = [n for n in walk(block.body) if isinstance(n, BufferStore)]
    extent = constant_extent(block.iter_vars[-1].extent)
    if extent is None or len(stores) != 1 or not isinstance(block.body, BufferStore) or has_branches(block):
        return 1
    width = max(VECTOR_BYTES // dt.nbytes(stores[0].buffer.dtype), 1)
    while width > 1 and (extent % width or not _is_vector(block, width)):
        width //= 2
    return width


def has_branches(block: Block) -> bool:
    """Whether a block has control flow, or calls without a vector form."""
    statements = (For, While, IfThenElse, Allocate)
    return any(
        isinstance(n, statements) or (isinstance(n, Call) and (n.op == "if_then_else" or "." in n.op))
        for n in walk(block.body)
    )


def _is_vector(block: Block, width: int) -> bool:
    """Whether ``width`` consecutive values of the last variable access contiguous elements, or the same element."""
    last = block.iter_vars[-1]
    vector, lane = Var("vector", last.var.dtype), Var("lane", last.var.dtype)
    analyzer = Analyzer({vector: last.extent // width, lane: width})
    for it in block.iter_vars[:-1]:
        analyzer.bind(it.var, it.extent)
    value = {last.var: vector * width + lane}
    for access in (n for n in walk(block.body) if isinstance(n, BufferLoad | BufferStore)):
        flat = analyzer.simplify(substitute(flat_index(access.buffer, access.indices), value))
        form = analyzer.linear(flat)
        moving = [(atom, step) for atom, step in form.terms.values() if any(n is lane for n in walk(atom))]
        step = sum(step for atom, step in moving if atom is lane)
        if any(atom is not lane for atom, _ in moving) or step > 1 or (isinstance(access, BufferStore) and step != 1):
            return False
    return True
