"""The schedule of products in fixed point; see ``fixed_point`` for what they compute."""

from __future__ import annotations

from ...ir.expr import Var
from ...ir.visitor import walk
from ...target import Target
from ...tir.nodes import Buffer, BufferLoad, PrimFunc
from ...tir.schedule import Schedule
from ..rule import Blocks, Rule, accumulate_locally, analyse, stored_buffer
from .fixed_point import ATTRIBUTE, LANES, ROWS, WORDS

PARTIAL_SUMS = 8  # lanes of a reduction over 32: four steps, then eight


class FixedPointProduct(Rule):
    """What ``FixedPointActivations`` has rewritten: tiles of four rows by two vectors of columns, in instructions."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or not func.attrs.get(ATTRIBUTE):
            return None
        s = Schedule(func)
        columns = 2 * LANES
        for weight in _quantized_parameters(blocks, func):
            s.tile_layout(weight, 0, columns)
        names = [b.name for b in blocks.in_order]
        last = accumulate_locally(s, "product", names[names.index("product") + 1 :])
        _prepare_activations(s)
        _accumulate(s, last, columns)
        return s


def _quantized_parameters(blocks: Blocks, func: PrimFunc) -> tuple[Buffer, Buffer]:
    """The parameters that hold the codes and the scales."""
    by_name = {b.name: b for b in blocks.in_order}
    parameters = {id(p) for p in func.buffers}

    def read(name: str) -> Buffer:
        block = by_name[name]
        loads = [n.buffer for n in walk(block.body) if isinstance(n, BufferLoad)]
        return next(b for b in loads if id(b) in parameters and b is not stored_buffer(block))

    return read("codes"), read("product")


def _prepare_activations(s: Schedule) -> None:
    """Before the product: rows and groups over the team, the elements of a group as lanes."""
    for block in ("fixed", "digits"):
        _, word, *inside = s.get_loops(block)
        _, in_group = s.split(word, [None, WORDS])
        s.vectorize(s.fuse(in_group, *inside))
    for block in ("largest", "sums"):
        _reduce_group(s, block)
    for block in ("largest", "fixed", "digits", "sums"):
        s.parallel(s.fuse(*s.get_loops(block)[:2]))


def _reduce_group(s: Schedule, block: str) -> None:
    """A reduction over a group in a few lanes, then over these."""
    _, _, *inside = s.get_loops(block)
    _, lane = s.split(s.fuse(*inside), [None, PARTIAL_SUMS])
    partial = s.rfactor(lane, 2)
    s.compute_at(partial, s.get_loops(block)[1])
    *_, step, lane = s.get_loops(partial)
    init = s.decompose_reduction(partial, step)
    s.vectorize(s.get_loops(init)[-1])
    s.vectorize(lane)


def _accumulate(s: Schedule, last: str, columns: int) -> None:
    """Column tiles over the team; in each, tiles of rows are summed group by group in registers."""
    row, column, group = s.get_loops("product")
    height = _tile_height(s)
    tile, lane = s.split(column, [None, columns])
    row_tile, row_in = s.split(row, [None, height])
    s.reorder(tile, row_tile, group, row_in, lane)
    s.fuse(*s.get_loops(last)[:-1])
    s.reverse_compute_at(last, row_tile)
    init = s.decompose_reduction("product", group)
    for block in (init, "product_update", last):
        *_, row_in, lane = s.get_loops(block)
        s.unroll(row_in)
        s.vectorize(lane)
    _dots(s, group)
    s.parallel(tile)


def _tile_height(s: Schedule) -> int:
    rows = s.extent(s.get_loops("product")[0])
    return 1 if rows == 1 else ROWS


def _dots(s: Schedule, group: Var) -> None:
    """The integer sums of one group, written out as instructions: codes unpacked, then multiplied for every row."""
    s.compute_at("dots", group)
    outside = len(s.get_loops("product")) - 2
    *row, digit, column, word, half, byte = s.get_loops("dots")[outside:]
    side, lane = s.split(column, [None, LANES])
    s.reorder(word, half, side, *row, digit, lane, byte)
    zero = s.decompose_reduction("dots", word)
    *outer, vector = s.get_loops(zero)[outside:]
    s.vectorize(vector)
    s.compute_at("codes", side)
    s.tensorize(s.get_loops("codes")[-2], "avx512.nibbles")
    s.tensorize(lane, "avx512.vpdpbusd")
    for loop in (*outer, *row, digit, side, half, word):
        s.unroll(loop)
