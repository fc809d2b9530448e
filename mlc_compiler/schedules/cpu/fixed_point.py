"""Activations times 4-bit weights in integers: a pass that says so, and the rule that schedules it.

A group of 32 activations becomes integers of 16 bits times one step, and each integer two digits of eight bits. Digits
times codes are ``vpdpbusd``: 64 products an instruction where float32 has 16. The error of an activation is at most
2 ** -16 of the largest one of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ...ir.expr import FloatImm, PrimExpr, Var, const, is_const
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.visitor import Substitute, walk
from ...passes.base import Pass
from ...relax.ops.linear import dequantize
from ...target import Target
from ...tir import te
from ...tir.nodes import Block, Buffer, BufferLoad, BufferStore, PrimFunc, Stmt
from ...tir.schedule import Schedule
from ...tir.schedule.blocks import block_nest
from ...tir.schedule.tree import replace_stmts, root_of, with_allocs
from ..rule import Blocks, MatmulBlock, Rule, analyse, constant_extent, match_matmul

BITS, GROUP, WORD = 4, 32, 8
ZERO_POINT = 7
LANES = 16
ROWS = 4  # of a tile: two digits times two vectors of sums, twice as many registers as rows times four
LARGEST = 127 * 256 + 127
SMALLEST = 1e-30  # a group whose largest activation is less counts as zero: the inverse of its step would overflow
INFINITY = FloatImm(float("inf"), "float32")
ATTRIBUTE = "fixed_point"


@dataclass(frozen=True)
class FixedPointActivations(Pass):
    """Rewrite products with group-quantized 4-bit weights as sums of integer products.

    Needs: fused, unscheduled tensor functions. Applies where the target has the instruction, a row of the weight is a
    whole number of groups and the columns fill whole vectors; marks what it rewrote with the attribute ``fixed_point``.
    """

    name = "fixed-point"
    target: Target

    def run(self, mod: IRModule) -> IRModule:
        if not self.target.has("avx512vnni"):
            return mod
        return mod.updated({name: _rewrite(f) for name, f in mod.of_type(PrimFunc).items()})


def _rewrite(func: PrimFunc) -> PrimFunc:
    found = _match(func)
    if found is None:
        return func
    dequantized, product, codes, scale = found
    target = _stored(product.block)
    core = _core(product.activation, codes, scale, target)
    inputs = dict(zip(core.buffers, (product.activation, codes, scale, target), strict=True))
    body = Substitute(inputs)(root_of(core).block.body)
    changes: dict[Stmt, Stmt | None] = {
        block_nest(func, dequantized.name): None,
        block_nest(func, product.block.name): body,
    }
    func = replace_stmts(func, changes)
    func = with_allocs(func, root_of(core).block.alloc_buffers, drop=(_stored(dequantized),))
    return func.with_attr(ATTRIBUTE, True)


def _match(func: PrimFunc) -> tuple[Block, MatmulBlock, Buffer, Buffer] | None:
    """The dequantization, the product that reads it, the codes and the scales; None for any other function."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    if blocks is None or len(blocks.in_order) < 2:
        return None
    dequantized, second = blocks.in_order[:2]
    product = match_matmul(second)
    if product is None or product.transposed or not product.rows or _stored(dequantized) is not product.weight:
        return None
    if product.activation.dtype != "float32":
        return None
    loads = {id(n.buffer): n.buffer for n in walk(dequantized.body) if isinstance(n, BufferLoad)}
    if len(loads) != 2:
        return None
    codes, scale = sorted(loads.values(), key=lambda b: b.dtype != "uint32")
    return (dequantized, product, codes, scale) if _is_dequantize(dequantized, codes, scale, product.weight) else None


def _is_dequantize(block: Block, codes: Buffer, scale: Buffer, weight: Buffer) -> bool:
    """Whether the block is what the ``dequantize`` operator gives for 4 bits in whole groups of 32."""
    columns, length = (constant_extent(size) or 1 for size in weight.shape)
    if codes.dtype != "uint32" or columns % (2 * LANES) or length % GROUP or weight.dtype != "float32":
        return False
    operands = [te.placeholder(b.shape, b.dtype, b.name) for b in (codes, scale)]
    try:
        defined = dequantize.te(*operands, bits=BITS, group=GROUP, k=length, dtype=weight.dtype)
    except ValueError:
        return False
    assert isinstance(defined, te.Tensor)
    expected = analyse(te.create_prim_func([*operands, defined]))
    return expected is not None and structural_equal(replace(expected.last, name=block.name), block)


def _stored(block: Block) -> Buffer:
    return next(n.buffer for n in walk(block.body) if isinstance(n, BufferStore))


# -- the computation ----------------------------------------------------------------------------------------------


def _core(activation: Buffer, codes: Buffer, scale: Buffer, out: Buffer) -> PrimFunc:
    """The product as a tensor function of activation [..., K], codes [N, K/8], scale [N, K/32] -> [..., N].

    Rows are counted through, up to a whole number of tiles; those after the last are zero.
    """
    x, q, s = (te.placeholder(b.shape, b.dtype, b.name) for b in (activation, codes, scale))
    largest, digits, sums = _fixed_point(x)
    padded, groups, columns = digits.shape[0], largest.shape[1], q.shape[0]

    def code(word: Var, half: Var, n: Var, byte: Var) -> PrimExpr:
        nibble = (q[n, word] >> te.cast(byte * 8 + half * 4, "uint32")) & te.cast(15, "uint32")
        return te.cast(nibble, "uint8")

    table = te.compute((q.shape[1], 2, columns, 4), code, name="codes")
    word, half, byte = te.reduce_axis(4, "word"), te.reduce_axis(2, "half"), te.reduce_axis(4, "byte")

    def dot(row: Var, g: Var, digit: Var, n: Var) -> PrimExpr:
        at = g * 4 + word
        product = te.cast(table[at, half, n, byte], "int32") * te.cast(digits[row, at, half, digit, byte], "int32")
        return te.sum(product, axis=[word, half, byte])

    dots = te.compute((padded, groups, 2, columns), dot, name="dots")
    g = te.reduce_axis(groups, "g")

    def total(row: Var, n: Var) -> PrimExpr:
        whole = dots[row, g, 0, n] * 256 + dots[row, g, 1, n] - sums[row, g] * ZERO_POINT
        return te.sum(te.f32(whole) * (te.f32(s[n, g]) * (largest[row, g] * (1 / LARGEST))), axis=g)

    product = te.compute((padded, columns), total, name="product")
    result = te.compute(out.shape, lambda *i: product[_row_number(x.shape[:-1], i[:-1]), i[-1]], name="result")
    return te.create_prim_func([x, q, s, result])


def _fixed_point(x: te.Tensor) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """largest f32 [rows, groups], digits int8 [rows, words, 2, 2, 4], the high one first, sums int32 [rows, groups].

    Positions of a word are even ones, then odd ones, as the halves of the codes' bytes are.
    """
    lead, length = x.shape[:-1], constant_extent(x.shape[-1]) or 0
    rows: PrimExpr = reduce(lambda a, b: a * b, lead, const(1, "int64"))
    height = min(ROWS, constant_extent(rows) or ROWS)
    padded = (rows + (height - 1)) // height * height
    k = te.reduce_axis(GROUP, "k")

    def value(row: PrimExpr, at: PrimExpr) -> PrimExpr:
        element = x[(*_row_indices(lead, row), at)]
        return element if height == 1 else te.if_then_else(row < rows, element, te.f32(0))

    def magnitude(row: Var, g: Var) -> PrimExpr:
        element = value(row, g * GROUP + k)
        size = te.max(element, -element)
        return te.max(te.select(size < INFINITY, size, INFINITY), axis=k)  # a NaN makes the group's step one, too

    largest = te.compute((padded, length // GROUP), magnitude, name="largest")

    def whole(row: Var, word: Var, half: Var, byte: Var) -> PrimExpr:
        limit = largest[row, word // 4]
        inverse = te.select(limit > SMALLEST, LARGEST / limit, te.f32(0))
        return te.cast(te.call("round", value(row, word * WORD + byte * 2 + half) * inverse), "int32")

    fixed = te.compute((padded, length // WORD, 2, 4), whole, name="fixed")

    def digit(row: Var, word: Var, half: Var, low: Var, byte: Var) -> PrimExpr:
        number = fixed[row, word, half, byte]
        high = (number + 128) >> 8
        return te.cast(te.select(low == 0, high, number - high * 256), "int8")

    digits = te.compute((padded, length // WORD, 2, 2, 4), digit, name="digits")
    word, half, byte = te.reduce_axis(4, "word"), te.reduce_axis(2, "half"), te.reduce_axis(4, "byte")

    def total(row: Var, g: Var) -> PrimExpr:
        return te.sum(fixed[row, g * 4 + word, half, byte], axis=[word, half, byte])

    return largest, digits, te.compute((padded, length // GROUP), total, name="sums")


def _row_indices(lead: Sequence[PrimExpr], row: PrimExpr) -> list[PrimExpr]:
    """The indices of a row by its number: over the axes ``lead``, the last fastest."""
    wide = [axis for axis, size in enumerate(lead) if not is_const(size, 1)]
    indices: list[PrimExpr] = [const(0, "int64") for _ in lead]
    for axis in reversed(wide):
        indices[axis] = row if axis == wide[0] else row % lead[axis]
        row = row // lead[axis]
    return indices


def _row_number(lead: Sequence[PrimExpr], indices: Sequence[PrimExpr]) -> PrimExpr:
    number: PrimExpr = const(0, "int64")
    for size, index in zip(lead, indices, strict=True):
        number = number if is_const(size, 1) else number * size + index
    return number


# -- the schedule -------------------------------------------------------------------------------------------------


class FixedPointProduct(Rule):
    """The rewritten product: columns over the team; tiles of rows by two vectors of columns, instructions inside."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or not func.attrs.get(ATTRIBUTE):
            return None
        s = Schedule(func)
        columns = 2 * LANES
        for weight in _quantized_parameters(blocks, func):
            s.tile_layout(weight, 0, columns)
        last = _accumulate_locally(s, blocks)
        _prepare_activations(s)
        _accumulate(s, last, columns)
        return s


def _quantized_parameters(blocks: Blocks, func: PrimFunc) -> tuple[Buffer, Buffer]:
    by_name = {b.name: b for b in blocks.in_order}
    parameters = {id(p) for p in func.buffers}

    def read(name: str) -> Buffer:
        block = by_name[name]
        loads = [n.buffer for n in walk(block.body) if isinstance(n, BufferLoad)]
        return next(b for b in loads if id(b) in parameters and b is not _stored(block))

    return read("codes"), read("product")


def _accumulate_locally(s: Schedule, blocks: Blocks) -> str:
    """Sums in registers; gives the block that writes the result, with everything between inlined."""
    copy = s.cache_write("product", "local")
    names = [b.name for b in blocks.in_order]
    after = [copy, *names[names.index("product") + 1 :]]
    for name in after[:-1]:
        s.compute_inline(name)
    return after[-1]


def _prepare_activations(s: Schedule) -> None:
    """Rows and groups over the team, the elements of a group as lanes."""
    for block in ("fixed", "digits"):
        s.vectorize(s.fuse(*s.get_loops(block)[2:]))
    for block in ("largest", "fixed", "digits", "sums"):
        s.parallel(s.fuse(*s.get_loops(block)[:2]))


def _accumulate(s: Schedule, last: str, columns: int) -> None:
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
