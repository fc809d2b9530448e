"""Schedule of sums of products over several axes, such as convolutions with the channels last: register tiles."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import BinaryOp, PrimExpr, Var, without_casts
from ....ir.visitor import walk
from ....schedules.rule import Blocks, TunableRule, accumulate_locally, analyse, choose, constant_extent
from ....target import Target
from ....tir.index_map import IndexMap
from ....tir.nodes import Block, BufferLoad, BufferStore, IterVar
from ....tir.schedule import Schedule
from ..machine import Cpu
from .padding import inline_or_keep, rows_in_lanes
from .register_tiles import check_elementwise, split_depth, static_heights, sum_in_registers, unroll_around_lanes

UNROLLED = 4  # steps of the innermost reduction
UNROLLINGS = (1, 2, UNROLLED, 8)
VECTORS = (1, 2, 4)  # of columns in a tile
HEIGHTS = (1, 2, 3, 4, 6, 7, 12, 14, 28)
OPERANDS = 4  # registers that are not sums


class Convolution(TunableRule):
    """``out[…, x, o] += data[…] * w[o, c, k…]`` with element-wise blocks around it; w has its axes in any order.

    A tile is a run of positions along x by some vectors of columns o; its sums stay in registers. The weights of a
    tile's columns are stored in the order in which the sums read them. Tiles of columns, and the axes before x, run in
    parallel. Choices: vectors and positions of a tile, unrolled reduction steps, and whether padding is inlined or
    computed beforehand.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks, cpu = analyse(s.func), Cpu.of(target)
        found = _single_convolution(blocks) if blocks else None
        if blocks is None or found is None:
            return None
        places = found.spatial[-2].extent
        width = constant_extent(places)
        if width == 0:
            return None
        vectors = choose(s, VECTORS, _vectors(width, constant_extent(found.spatial[-1].extent), cpu))
        tallest = choose(s, HEIGHTS, _tallest(vectors, cpu))
        columns, unrolled = vectors * cpu.lanes(32), choose(s, UNROLLINGS, UNROLLED)
        names = [b.name for b in blocks.in_order]
        product = found.block.name
        at = names.index(product)
        padded = inline_or_keep(s, names[:at])
        for load in _parameters(s, found):
            s.transform_layout(product, load.buffer.name, found.in_order_of_sums(load, columns))
        last = accumulate_locally(s, product, names[at + 1 :])
        check_elementwise(s.block(product), s.block(last))
        _tile(s, product, last, _heights(places, tallest), columns, unrolled)
        for name in padded:
            rows_in_lanes(s, name, cpu.lanes(32))
        return s


@dataclass(frozen=True)
class _Convolution:
    """A block that sums products with a weight, which is indexed by the last spatial axis and all reduced ones."""

    block: Block
    spatial: tuple[IterVar, ...]
    reduced: tuple[IterVar, ...]

    def is_weight(self, load: BufferLoad) -> bool:
        """Whether each index is the column or a reduced axis, each of these once."""
        variables = [self.spatial[-1].var, *(it.var for it in self.reduced)]
        return sorted(map(id, load.indices)) == sorted(map(id, variables))

    def in_order_of_sums(self, load: BufferLoad, columns: int) -> IndexMap:
        """The layout [tiles of columns, reduced axes in order, columns of a tile] of a weight."""
        logical = {id(index): Var(f"i{n}") for n, index in enumerate(load.indices)}
        column = logical[id(self.spatial[-1].var)]
        sums = [logical[id(it.var)] for it in self.reduced]
        return IndexMap(list(logical.values()), [column // columns, *sums, column % columns])


def _single_convolution(blocks: Blocks) -> _Convolution | None:
    if len(blocks.reductions) != 1:
        return None
    (block,) = blocks.reductions
    spatial = tuple(it for it in block.iter_vars if it.kind == "S")
    reduced = tuple(it for it in block.iter_vars if it.kind == "R")
    found = _Convolution(block, spatial, reduced)
    several = len(spatial) > 1 and len(reduced) > 1 and block.iter_vars == (*spatial, *reduced)
    return found if several and any(found.is_weight(load) for load in _factors(block)) else None


def _factors(block: Block) -> list[BufferLoad]:
    """The loads of ``a`` and ``b``, maybe cast, in ``out = out + a * b``; none for another body."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    term = value.b if isinstance(value, BinaryOp) and value.op == "+" else None
    term = without_casts(term) if term is not None else None
    if not isinstance(term, BinaryOp) or term.op != "*":
        return []
    factors: list[PrimExpr] = [without_casts(term.a), without_casts(term.b)]
    return [f for f in factors if isinstance(f, BufferLoad)]


def _parameters(s: Schedule, found: _Convolution) -> list[BufferLoad]:
    """The loads of parameters that are weights and whose last axis is not that of the columns."""
    parameters = {id(p) for p in s.func.buffers}
    loads: dict[int, BufferLoad] = {}
    for load in walk(s.block(found.block.name).body):
        if isinstance(load, BufferLoad) and id(load.buffer) in parameters and found.is_weight(load):
            loads[id(load.buffer)] = load
    return [load for load in loads.values() if load.indices[-1] is not found.spatial[-1].var]


# -- sizes of tiles -----------------------------------------------------------------------------------------------


def _vectors(width: int | None, outputs: int | None, cpu: Cpu) -> int:
    """Vectors of columns in a tile: two, or four when rows are short; no more than the columns fill."""
    few = width is not None and width <= _tallest(4, cpu)
    needed = -(-outputs // cpu.lanes(32)) if outputs else 4
    return max(v for v in VECTORS if v == 1 or v <= min(4 if few else 2, needed))


def _tallest(vectors: int, cpu: Cpu) -> int:
    return (cpu.vector_registers - OPERANDS) // vectors


def _heights(places: PrimExpr, tallest: int) -> tuple[int, ...]:
    """Positions in a tile: parts of a row that are as even as possible, and the remainder.

    Tiles have one position if the number of positions may be negative, as n - 2 may.
    """
    width = constant_extent(places)
    if width is None:
        multiple = tallest - tallest % 4
        return (multiple, 4, 1) if isinstance(places, Var) and multiple > 4 else (1,)
    height = -(-width // -(-width // tallest))
    return tuple(h for h in (height, width % height) if h)


# -- loops --------------------------------------------------------------------------------------------------------


def _tile(s: Schedule, product: str, last: str, heights: tuple[int, ...], columns: int, unrolled: int) -> None:
    row = len(s.get_loops(last)) - 2
    rows = [s.get_loops(product)[row], s.get_loops(last)[row]]
    extent = s.extent(rows[0])
    if isinstance(extent, int):
        heights, points = static_heights(extent, heights)
    else:
        points = [extent // h * h for h in heights[:-1]]
    suffixes = s.partition(rows, points)[1] if len(heights) > 1 else [""]
    outer = [
        _tile_part(s, product + suffix, last + suffix, height, columns, unrolled)
        for suffix, height in zip(suffixes, heights, strict=True)
    ]
    if len(outer) > 1:
        s.merge(*outer)


def _tile_part(s: Schedule, product: str, last: str, height: int, columns: int, unrolled: int) -> Var:
    """Schedule one part: tiles in parallel, then sums over register accumulators. Returns the parallel loop."""
    count = len(s.get_loops(last))
    loops = s.get_loops(product)
    outer, row, column, (*kernel, depth) = loops[: count - 2], loops[count - 2], loops[count - 1], loops[count:]
    row_tile, row_in = s.split(row, [None, height])
    column_tile, lane = s.split(column, [None, columns])
    depth, *inner = split_depth(s, depth, unrolled)
    s.reorder(column_tile, *outer, row_tile, *kernel, depth, *inner, row_in, lane)
    s.reverse_compute_at(last, row_tile)
    sum_in_registers(s, product, kernel[0])
    for loop in inner:
        s.unroll(loop)
    unroll_around_lanes(s, last, skip=len(outer) + 2)
    parallel = s.fuse(column_tile, *outer)
    s.parallel(parallel)
    return parallel
