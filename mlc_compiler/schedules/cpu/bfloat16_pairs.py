"""4-bit weights times few rows, by bfloat16 dot products of pairs: a pass that says so, and the rule that schedules it.

A code less its zero point is exact in bfloat16, and a float32 activation is the sum of two bfloat16 numbers up to
2 ** -16 of its size. One ``vdpbf16ps`` then does 32 products, where float32 arithmetic unpacks, converts and multiplies
16 weights in five instructions. With many rows the unpacking is shared and float32 is as fast; this is for decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.expr import PrimExpr, Var
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
ATTRIBUTE = "bfloat16_pairs"


@dataclass(frozen=True)
class Bfloat16Pairs(Pass):
    """Rewrite products of one row with group-quantized 4-bit weights as sums over bfloat16 pairs.

    Needs: fused, unscheduled tensor functions. Applies where the target has the instruction and a row is a whole number
    of groups and the columns fill whole vectors; marks what it rewrote with the attribute ``bfloat16_pairs``.
    """

    name = "bfloat16-pairs"
    target: Target

    def run(self, mod: IRModule) -> IRModule:
        if not self.target.has("avx512bf16"):
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
    if product is None or _stored(dequantized) is not product.weight or not _one_row(product):
        return None
    loads = {id(n.buffer): n.buffer for n in walk(dequantized.body) if isinstance(n, BufferLoad)}
    if len(loads) != 2 or product.activation.dtype != "float32":
        return None
    codes, scale = sorted(loads.values(), key=lambda b: b.dtype != "uint32")
    return (dequantized, product, codes, scale) if _is_dequantize(dequantized, codes, scale, product.weight) else None


def _one_row(product: MatmulBlock) -> bool:
    extents = [constant_extent(it.extent) for it in product.block.iter_vars if it.var in product.rows]
    return bool(extents) and all(e == 1 for e in extents)


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


def _core(activation: Buffer, codes: Buffer, scale: Buffer, out: Buffer) -> PrimFunc:
    """The product as a tensor function of activation [..., K], codes [N, K/8], scale [N, K/32] -> [..., N]."""
    x, q, s = (te.placeholder(b.shape, b.dtype, b.name) for b in (activation, codes, scale))
    length = constant_extent(activation.shape[-1]) or 0
    lead = activation.shape[:-1]
    words, groups = length // WORD, length // GROUP

    def part(*i: Var) -> PrimExpr:
        *row, word, low, position, half = i
        value = x[(*row, word * WORD + half * 4 + position)]
        high = te.cast(value, "bfloat16")
        return te.select(low == 0, high, te.cast(value - te.f32(high), "bfloat16"))

    def code(word: Var, position: Var, n: Var, half: Var) -> PrimExpr:
        return nibble_to_bfloat16(q[n, word], position * 4, half)

    pairs = te.compute((*lead, words, 2, 4, 2), part, name="pairs")
    table = te.compute((words, 4, q.shape[0], 2), code, name="codes")
    word, position, half = te.reduce_axis(4, "word"), te.reduce_axis(4, "position"), te.reduce_axis(2, "half")

    def dot(*i: Var) -> PrimExpr:
        *row, g, low, n = i
        at = g * 4 + word
        product = te.f32(table[at, position, n, half]) * te.f32(pairs[(*row, at, low, position, half)])
        return te.sum(product, axis=[word, position, half])

    partial = te.compute((*lead, groups, 2, q.shape[0]), dot, name="partial")
    g, low = te.reduce_axis(groups, "g"), te.reduce_axis(2, "low")

    def element(*i: Var) -> PrimExpr:
        return te.sum(partial[(*i[:-1], g, low, i[-1])] * te.f32(s[i[-1], g]), axis=[g, low])

    return te.create_prim_func([x, q, s, te.compute(out.shape, element, name="product")])


def nibble_to_bfloat16(word: PrimExpr, shift: PrimExpr, half: PrimExpr) -> PrimExpr:
    """The code at bit ``16 * half + shift`` of a word, less the zero point."""
    nibble = (word >> te.cast(half * 16 + shift, "uint32")) & te.cast(15, "uint32")
    return te.cast(te.f32(te.cast(nibble, "int32") - ZERO_POINT), "bfloat16")


class PairsOfBfloat16(Rule):
    """The rewritten product: columns over the team, two vectors of sixteen rows of the weight, instructions inside."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or not func.attrs.get(ATTRIBUTE):
            return None
        s = Schedule(func)
        columns = 2 * LANES
        codes, scale = _quantized_parameters(blocks, func)
        for weight in (codes, scale):
            s.tile_layout(weight, 0, columns)
        copy = s.cache_write("product", "local")
        names = [b.name for b in blocks.in_order]
        after = [copy, *names[names.index("product") + 1 :]]
        for name in after[:-1]:
            s.compute_inline(name)
        _split_activations(s, target)
        _accumulate(s, after[-1], columns)
        return s


def _quantized_parameters(blocks: Blocks, func: PrimFunc) -> tuple[Buffer, Buffer]:
    by_name = {b.name: b for b in blocks.in_order}
    parameters = {id(p) for p in func.buffers}

    def read(name: str) -> Buffer:
        block = by_name[name]
        loads = [n.buffer for n in walk(block.body) if isinstance(n, BufferLoad)]
        return next(b for b in loads if id(b) in parameters and b is not _stored(block))

    return read("codes"), read("product")


def _split_activations(s: Schedule, target: Target) -> None:
    *outer, position, half = s.get_loops("pairs")
    lane = s.fuse(position, half)
    s.vectorize(lane)
    s.parallel(s.fuse(*outer))


def _accumulate(s: Schedule, last: str, columns: int) -> None:
    *rows, column, group, low = s.get_loops("product")
    row = s.fuse(*rows)
    tile, lane = s.split(column, [None, columns])
    s.reorder(tile, row, group, low, lane)
    s.fuse(*s.get_loops(last)[:-1])
    s.reverse_compute_at(last, row)
    init = s.decompose_reduction("product", group)
    for block in (init, "product_update", last):
        s.vectorize(s.get_loops(block)[-1])
    s.unroll(low)
    s.compute_at("partial", group)
    part, column, word, position, half = s.get_loops("partial")[3:]
    side, row_lane = s.split(column, [None, LANES])
    s.reorder(word, position, side, part, row_lane, half)
    zero = s.decompose_reduction("partial", word)
    *outer, vector = s.get_loops(zero)[3:]
    s.vectorize(vector)
    s.compute_at("codes", side)
    s.tensorize(s.get_loops("codes")[-2], "avx512.nibbles_to_bf16")
    s.tensorize(row_lane, "avx512.vdpbf16ps")
    for loop in (*outer, part, side, position, word):
        s.unroll(loop)
    s.parallel(tile)

