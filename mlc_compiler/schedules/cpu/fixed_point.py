"""Products of float32 activations and 4-bit weights in integer arithmetic: the pass that rewrites them.

The weights of a group of 32 are ``scale * (code - 7)``, with codes from 0 to 15. The pass gives the activations of such
a group one step, too, so that each is ``step * fixed`` with an integer ``fixed`` of 16 bits, and writes ``fixed`` as
``256 * high + low`` with two digits of 8 bits. The sum over a group is then::

    step * scale * (256 * sum(high * code) + sum(low * code) - 7 * sum(fixed))

The two sums of digits times codes are what the instruction ``vpdpbusd`` computes, 64 products at a time, where float32
has 16. An activation changes by at most 2 ** -16 of the largest one of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import Call, PrimExpr, Var, ceildiv, const, is_const, product
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.visitor import Substitute, walk
from ...passes.base import Pass
from ...relax.ops.linear import dequantize
from ...target import Target
from ...tir import te
from ...tir.nodes import Block, Buffer, BufferLoad, PrimFunc, Stmt
from ...tir.schedule.blocks import block_nest
from ...tir.schedule.tree import replace_stmts, root_of, with_allocs
from ..rule import MatmulBlock, analyse, constant_extent, match_matmul, stored_buffer

BITS, ZERO_POINT = 4, 7
GROUP = 32  # weights that share a scale, and activations that share a step
WORD = 8  # codes in a uint32
WORDS = GROUP // WORD
LANES = 16
ROWS = 4  # of a tile: each takes four of the 32 registers, for two digits times two vectors of sums
MAX_FIXED = 127 * 256 + 127  # both digits at their largest
MIN_MAGNITUDE = 1e-30  # a group whose largest activation is less counts as zero: the inverse of its step would overflow
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
    """The function with its first two blocks, dequantization and product, replaced by the integer computation."""
    found = _match(func)
    if found is None:
        return func
    dequantized, product, codes, scale = found
    operands = (product.activation, codes, scale, stored_buffer(product.block))
    integer = integer_product(*operands)
    body = Substitute(dict(zip(integer.buffers, operands, strict=True)))(root_of(integer).block.body)
    changes: dict[Stmt, Stmt | None] = {
        block_nest(func, dequantized.name): None,
        block_nest(func, product.block.name): body,
    }
    func = replace_stmts(func, changes)
    func = with_allocs(func, root_of(integer).block.alloc_buffers, drop=(stored_buffer(dequantized),))
    return func.with_attr(ATTRIBUTE, True)


def _match(func: PrimFunc) -> tuple[Block, MatmulBlock, Buffer, Buffer] | None:
    """The dequantization, the product that reads it, the codes and the scales; None for any other function."""
    blocks = None if func.attrs.get("tir.is_scheduled") else analyse(func)
    if blocks is None or len(blocks.in_order) < 2:
        return None
    dequantized, second = blocks.in_order[:2]
    product = match_matmul(second)
    if product is None or product.transposed or not product.rows or stored_buffer(dequantized) is not product.weight:
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


# -- the computation ----------------------------------------------------------------------------------------------


def integer_product(activation: Buffer, codes: Buffer, scale: Buffer, out: Buffer) -> PrimFunc:
    """``activation @ (scale * (codes - 7)).T`` in blocks that ``FixedPointProduct`` schedules.

    activation: float32 [..., K]; codes: uint32 [N, K/8]; scale: [N, K/32]; out: float32 [..., N]. The rows of all
    leading axes are numbered through and filled up with zeros to a whole number of tiles.
    """
    x, q, s = (te.placeholder(b.shape, b.dtype, b.name) for b in (activation, codes, scale))
    rows = _Rows.of(x)
    largest = _largest(rows)
    fixed = _fixed(rows, largest)
    digits, sums, table = _digits(fixed), _sums(fixed), _codes(q)
    dots = _dots(digits, table)
    g = te.reduce_axis(rows.groups, "g")

    def total(row: Var, n: Var) -> PrimExpr:
        whole = dots[row, g, 0, n] * 256 + dots[row, g, 1, n] - sums[row, g] * ZERO_POINT
        return te.sum(te.f32(whole) * (te.f32(s[n, g]) * (_magnitude(largest, row, g) * (1 / MAX_FIXED))), axis=g)

    product = te.compute((rows.padded, q.shape[0]), total, name="product")
    result = te.compute(out.shape, lambda *i: product[rows.number(i[:-1]), i[-1]], name="result")
    return te.create_prim_func([x, q, s, result])


@dataclass(frozen=True)
class _Rows:
    """The activations as a matrix of ``padded`` rows, of which the last ones may be zeros."""

    x: te.Tensor
    count: PrimExpr
    padded: PrimExpr
    is_padded: bool

    @classmethod
    def of(cls, x: te.Tensor) -> _Rows:
        count = product(x.shape[:-1])
        height = min(ROWS, constant_extent(count) or ROWS)
        return cls(x, count, ceildiv(count, height) * height, height > 1)

    @property
    def length(self) -> int:
        return constant_extent(self.x.shape[-1]) or 0

    @property
    def groups(self) -> int:
        return self.length // GROUP

    def element(self, row: PrimExpr, position: PrimExpr) -> PrimExpr:
        value = self.x[(*self._indices(row), position)]
        return te.if_then_else(row < self.count, value, te.f32(0)) if self.is_padded else value

    def _indices(self, row: PrimExpr) -> list[PrimExpr]:
        """The leading indices of a row by its number, the last axis fastest."""
        lead = self.x.shape[:-1]
        wide = [axis for axis, size in enumerate(lead) if not is_const(size, 1)]
        indices: list[PrimExpr] = [const(0, "int64") for _ in lead]
        for axis in reversed(wide):
            indices[axis] = row if axis == wide[0] else row % lead[axis]
            row = row // lead[axis]
        return indices

    def number(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        """The number of the row at these leading indices."""
        number: PrimExpr = const(0, "int64")
        for size, index in zip(self.x.shape[:-1], indices, strict=True):
            number = number if is_const(size, 1) else number * size + index
        return number


def _largest(rows: _Rows) -> te.Tensor:
    """int32 [rows, groups]: the bits of the largest magnitude of each group, see ``_magnitude``.

    Magnitudes are ordered like their bits, NaN after infinity, and integers are what LLVM makes lanes of.
    """
    k = te.reduce_axis(GROUP, "k")

    def bits(row: Var, g: Var) -> PrimExpr:
        element = rows.element(row, g * GROUP + k)
        return te.max(Call("reinterpret", (element,), "int32") & 0x7FFFFFFF, axis=k)

    return te.compute((rows.padded, rows.groups), bits, name="largest")


def _magnitude(largest: te.Tensor, row: PrimExpr, g: PrimExpr) -> PrimExpr:
    """float32: the largest magnitude of a group."""
    return Call("reinterpret", (largest[row, g],), "float32")


def _fixed(rows: _Rows, largest: te.Tensor) -> te.Tensor:
    """int32 [rows, words, 2, 4]: the integers, the even positions of a word of codes and then the odd ones.

    That is how codes come out of a word: the low halves of its four bytes are the even positions.
    """

    def integer(row: Var, word: Var, half: Var, byte: Var) -> PrimExpr:
        limit = _magnitude(largest, row, word // WORDS)
        inverse = te.select(limit > MIN_MAGNITUDE, MAX_FIXED / limit, te.f32(0))
        return te.cast(te.call("round", rows.element(row, word * WORD + byte * 2 + half) * inverse), "int32")

    return te.compute((rows.padded, rows.length // WORD, 2, 4), integer, name="fixed")


def _digits(fixed: te.Tensor) -> te.Tensor:
    """int8 [rows, words, 2, 2, 4]: of each half of a word the high digits, then the low ones."""
    padded, words = fixed.shape[:2]

    def digit(row: Var, word: Var, half: Var, low: Var, byte: Var) -> PrimExpr:
        number = fixed[row, word, half, byte]
        high = (number + 128) >> 8
        return te.cast(te.select(low == 0, high, number - high * 256), "int8")

    return te.compute((padded, words, 2, 2, 4), digit, name="digits")


def _in_group() -> tuple[te.ReduceAxis, te.ReduceAxis, te.ReduceAxis]:
    """The positions of a group: word, half, byte."""
    return te.reduce_axis(WORDS, "word"), te.reduce_axis(2, "half"), te.reduce_axis(4, "byte")


def _sums(fixed: te.Tensor) -> te.Tensor:
    """int32 [rows, groups]: the sum of each group's integers."""
    padded, words = fixed.shape[:2]
    word, half, byte = _in_group()

    def total(row: Var, g: Var) -> PrimExpr:
        return te.sum(fixed[row, g * WORDS + word, half, byte], axis=[word, half, byte])

    return te.compute((padded, (constant_extent(words) or 0) // WORDS), total, name="sums")


def _codes(q: te.Tensor) -> te.Tensor:
    """uint8 [words, 2, N, 4]: the codes, each in a byte, in the order of ``_fixed``."""

    def code(word: Var, half: Var, n: Var, byte: Var) -> PrimExpr:
        nibble = (q[n, word] >> te.cast(byte * 8 + half * 4, "uint32")) & te.cast(15, "uint32")
        return te.cast(nibble, "uint8")

    return te.compute((q.shape[1], 2, q.shape[0], 4), code, name="codes")


def _dots(digits: te.Tensor, table: te.Tensor) -> te.Tensor:
    """int32 [rows, groups, 2, N]: the sums of digits times codes of each group, for the high and the low digits."""
    padded, words, columns = digits.shape[0], constant_extent(digits.shape[1]) or 0, table.shape[2]
    word, half, byte = _in_group()

    def dot(row: Var, g: Var, digit: Var, n: Var) -> PrimExpr:
        at = g * WORDS + word
        product = te.cast(table[at, half, n, byte], "int32") * te.cast(digits[row, at, half, digit, byte], "int32")
        return te.sum(product, axis=[word, half, byte])

    return te.compute((padded, words // WORDS, 2, columns), dot, name="dots")
