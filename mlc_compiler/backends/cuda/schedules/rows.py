"""Schedule of reductions over trailing axes: normalizations, softmax, sums and argmax of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....ir import dtype as dt
from ....ir.expr import IntImm, Var, as_expr
from ....ir.simplify import Analyzer
from ....schedules.rule import Blocks, TunableRule, analyse, choose
from ....target import Target
from ....tir.nodes import Block, Buffer
from ....tir.schedule import Schedule
from ..machine import MAX_THREADS_PER_BLOCK, STATIC_SHARED_BYTES, WARP
from .elementwise import VECTOR_BYTES, choose_width, has_branches, powers_of_two, vector_width

MAX_ROWS = 8  # of a block
MAX_THREADS = 512
VALUES_OF_A_THREAD = 8  # or more
UNROLLED = (1, 4, 16)  # candidates for the maximum number of unrolled steps of a thread


@dataclass(frozen=True)
class Shares:
    """How threads divide a row.

    threads: of the row, a power of two. width: maximum adjacent elements that a thread accesses together. unrolled:
    maximum steps of a thread that are unrolled.
    """

    threads: int
    width: int
    unrolled: int


class RowReduction(TunableRule):
    """Row-wise blocks, some of which reduce the row: one or more warps for each row.

    Results of reductions are in registers of all threads of a row. Intermediate rows that several blocks read are in
    shared memory, or are recomputed if they are too long. Choices: whether such a row is recomputed, the rows of a
    block, the threads of a row, the adjacent elements that a thread accesses together, its unrolled steps.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or not blocks.reductions:
            return None
        last = blocks.last.name
        if blocks.last.is_reduction:
            last = s.cache_write(last, "local")
        reduced = [b.name for b in blocks.reductions]
        axes = _row_axes(s, reduced, last)
        length = _row_length(blocks)
        if axes is None or length is None:
            return None
        _inline_short_lived(s, last, length)
        block = row = _rows(s, last, axes)
        has_shared_rows = len(s.get_blocks()) > len({*reduced, last})
        rows = 1 if has_shared_rows else choose(s, _row_counts(s, row, length), 1)
        if rows > 1:
            block, row = s.split(row, [None, rows])
            s.bind(row, "threadIdx.y")
        for name in reversed(s.get_blocks()[:-1]):
            s.compute_at(name, row)
            s.set_scope(name, 0, "local" if name in reduced else "shared")
        shares = _shares(s, s.get_blocks(), reduced, length, rows)
        for name in s.get_blocks():
            if name in reduced:
                _reduce(s, name, row, shares)
            else:
                _spread(s, name, row, shares)
        s.bind(block, "blockIdx.x")
        return s


def reduce_rows(s: Schedule, name: str) -> None:
    """Schedule a single reduction: a thread block for each result, or one block if no axis is kept."""
    block = s.block(name)
    kept = sum(it.kind == "S" for it in block.iter_vars)
    length = _reduced_extent(block)
    copy = s.cache_write(name, "local")
    row = _rows(s, copy, kept)
    s.compute_at(name, row)
    shares = _shares(s, [name], [name], length or MAX_THREADS * VALUES_OF_A_THREAD)
    _reduce(s, name, row, shares)
    _spread(s, copy, row, shares)
    s.bind(row, "blockIdx.x")


def _row_axes(s: Schedule, reduced: list[str], last: str) -> int | None:
    """The number of leading axes that reductions keep; None unless it is the same for all, and positive."""
    spatial = [[it for it in s.block(name).iter_vars if it.kind == "S"] for name in reduced]
    axes = len(spatial[0])
    loops = s.get_loops(last)
    shapes = {tuple(_size(it.extent) for it in row) for row in spatial}
    leading = tuple(_size(it.extent) for it in s.block(last).iter_vars[:axes])
    same = len(shapes) == 1 and leading in shapes and len(loops) == len(s.block(last).iter_vars) and axes > 0
    return axes if same else None


def _size(extent: object) -> object:
    return extent.value if isinstance(extent, IntImm) else id(extent)


def _row_length(blocks: Blocks) -> int | None:
    """The number of elements that the longest reduction of a row reads; None when it is not constant."""
    lengths = [_reduced_extent(b) for b in blocks.reductions]
    return None if None in lengths else max(n for n in lengths if n is not None)


def _reduced_extent(block: Block) -> int | None:
    sizes = [it.extent for it in block.iter_vars if it.kind == "R"]
    return prod(n.value for n in sizes if isinstance(n, IntImm)) if all(isinstance(n, IntImm) for n in sizes) else None


def _inline_short_lived(s: Schedule, last: str, length: int) -> None:
    """Inline intermediate rows that one block reads, and those that do not fit into shared memory together."""
    room = STATIC_SHARED_BYTES // 2
    for name in s.get_blocks():
        if name == last or s.block(name).is_reduction:
            continue
        row_bytes = length * dt.nbytes(_written(s, name).dtype)
        if len(s.get_consumers(name)) > 1 and row_bytes <= room and choose(s, (0, 1), 1):
            room -= row_bytes
            continue
        s.compute_inline(name)


def _written(s: Schedule, name: str) -> Buffer:
    return s.block(name).writes[0].buffer


def _rows(s: Schedule, last: str, axes: int) -> Var:
    """The loop over rows, around at least one other loop."""
    loops = s.get_loops(last)
    if len(loops) > axes:
        return s.fuse(*loops[:axes])
    row, _ = s.split(s.fuse(*loops), [None, 1])
    return row


def _row_counts(s: Schedule, row: Var, length: int) -> list[int]:
    """Candidates for the rows of a block: divisors of their number, so that all threads of a block have a row."""
    most = min(MAX_ROWS, MAX_THREADS_PER_BLOCK // _threads(length))
    return [n for n in powers_of_two(1, most) if Analyzer().prove_equal(as_expr(s.extent(row)) % n, 0)]


def _shares(s: Schedule, names: Sequence[str], reduced: Sequence[str], length: int, rows: int = 1) -> Shares:
    """Choose how threads divide rows, of which the longest has ``length`` elements, in the given blocks.

    rows: of a thread block.
    """
    most = min(max(length, WARP), MAX_THREADS_PER_BLOCK // rows)
    threads = choose(s, powers_of_two(WARP, most), _threads(length))
    blocks = {name: s.block(name) for name in names}
    width = choose_width(s, (_read_width(b) if n in reduced else vector_width(b) for n, b in blocks.items()))
    return Shares(threads, width, choose(s, UNROLLED, 4))


def _threads(length: int) -> int:
    """A power of two of threads for a row: a warp for short rows."""
    threads = WARP
    while threads < MAX_THREADS and threads * VALUES_OF_A_THREAD < length:
        threads *= 2
    return threads


def _inside(s: Schedule, name: str, row: Var) -> list[Var]:
    loops = s.get_loops(name)
    return loops[next(i for i, loop in enumerate(loops) if loop is row) + 1 :]


def _reduce(s: Schedule, name: str, row: Var, shares: Shares) -> None:
    """Divide a reduction among threads; each reads several adjacent elements at a time."""
    loops, width = _inside(s, name, row), min(_read_width(s.block(name)), shares.width)
    if not loops:
        return
    vector, lane = s.split(s.fuse(*loops), [None, width])
    step, thread = s.split(vector, [None, shares.threads])
    s.reorder(thread, step, lane)
    s.bind(thread, "threadIdx.x")
    s.unroll(lane)
    if isinstance(s.extent(step), int) and s.extent(step) <= shares.unrolled:
        s.unroll(step)


def _read_width(block: Block) -> int:
    """Adjacent elements that a thread reads: 16 bytes of the widest operand; fewer if rows or branches forbid it."""
    if has_branches(block):
        return 1
    sizes = [dt.nbytes(r.buffer.dtype) for r in block.reads if r.buffer.scope != "local"]
    width = VECTOR_BYTES // max(sizes, default=VECTOR_BYTES)
    extent = _reduced_extent(block) or 1
    while width > 1 and extent % width:
        width //= 2
    return max(width, 1)


def _spread(s: Schedule, name: str, row: Var, shares: Shares) -> None:
    """Divide independent elements of a row among threads."""
    loops = _inside(s, name, row)
    if not loops:
        return
    width = min(vector_width(s.block(name)), shares.width)
    inner = s.fuse(*loops)
    if s.extent(inner) == 1:
        s.bind(inner, "threadIdx.x")
        return
    step, thread, lane = s.split(inner, [None, shares.threads, width])
    s.bind(thread, "threadIdx.x")
    if width > 1:
        s.vectorize(lane)
    if isinstance(s.extent(step), int) and s.extent(step) <= shares.unrolled:
        s.unroll(step)
