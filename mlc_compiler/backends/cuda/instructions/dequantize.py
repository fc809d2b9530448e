"""Unpacking of quantized weights to 16-bit floats, two at a time.

Kim et al. 2022, "Who Says Elephants Can't Run", 3.1: with m mantissa bits, a code in the low mantissa bits of 2 ** m
gives ``2 ** m + code``; subtracting ``2 ** m + zero point`` is exact. Results are bitwise equal to those of the
operator ``dequantize``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands
from ....codegen.values import I8, I16, I32, i32
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .operands import SHORT, address, load, store
from .pairs import PAIRS, Pairs, permute

BOOK = 16  # entries of a codebook


@dataclass(frozen=True)
class Unpacking:
    """Operands and results of an instruction ``cuda.dequantize.NAME``.

    elements: consecutive stored elements of ``dtype``, which have ``codes`` codes of consecutive positions. scaled:
    whether results are multiplied by a scale. book: whether codes are indices of a codebook. in_order: whether there is
    an instruction with the results in the order of the codes. paired: whether there is one (``NAME.pairs``) with codes
    ``i`` and ``i + codes / 2`` next to each other, which compiles to fewer machine instructions.
    """

    name: str
    codes: int
    dtype: str = "uint32"
    elements: int = 1
    scaled: bool = True
    book: bool = False
    in_order: bool = True
    paired: bool = False

    @property
    def positions(self) -> int:
        """Codes in one stored element."""
        return self.codes // self.elements

    def order(self, place: PrimExpr) -> PrimExpr:
        """The index of the code at ``place`` of a paired result."""
        return place // 2 + place % 2 * (self.codes // 2)


@dataclass(frozen=True)
class _Fields:
    """Unpacks words of as many codes as fit, the first in the lowest bits; zero point 2 ** (bits - 1) - 1."""

    bits: int

    @property
    def codes(self) -> int:
        return 32 // self.bits

    @property
    def zero_point(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def pairs(self, b: ll.IRBuilder, floats: Pairs, word: ll.Value) -> list[ll.Value]:
        """The codes minus the zero point, in pairs (i, i + codes / 2).

        Fields at bit ``low`` of the mantissas are ``2 ** low`` times as large as the codes.
        """
        word, mask, start, found = self._halves(b, word), (1 << self.bits) - 1, 0, []
        shifted = word
        for i in range(self.codes // 2):
            low = self.bits * i - start
            if low + self.bits > floats.mantissa:
                start, low = self.bits * i, 0
                shifted = b.lshr(word, i32(start))
            codes = b.and_(shifted, i32((mask << low) * 0x10001))
            number = b.or_(codes, floats.constant(floats.magic))
            minus_zero = floats.constant(-(floats.magic >> low) - self.zero_point)
            found.append(_scaled_plus(b, floats, number, low, minus_zero))
        return found

    def _halves(self, b: ll.IRBuilder, word: ll.Value) -> ll.Value:
        """The word with its second half of codes in the upper 16 bits."""
        unused = 16 - self.codes // 2 * self.bits
        if not unused:
            return word
        low = (1 << (16 - unused)) - 1
        upper = b.and_(b.shl(word, i32(unused)), i32(~low & 0xFFFFFFFF))
        return b.or_(b.and_(word, i32(low)), upper)


def _scaled_plus(b: ll.IRBuilder, floats: Pairs, number: ll.Value, low: int, other: ll.Value) -> ll.Value:
    """``number / 2 ** low + other``"""
    return floats.fma(b, number, floats.constant(2.0**-low), other) if low else floats.plus(b, number, other)


def _in_order(b: ll.IRBuilder, found: Sequence[ll.Value]) -> list[ll.Value]:
    """Reorder pairs (i, i + 4) of eight codes to the order of the codes."""
    firsts = [permute(b, found[i], found[i + 1], 0x5410) for i in (0, 2)]
    return [*firsts, *(permute(b, found[i], found[i + 1], 0x7632) for i in (0, 2))]


# -- bytes ---------------------------------------------------------------------------------------------------------


def _bytes(b: ll.IRBuilder, floats: Pairs, word: ll.Value, zero_point: int) -> list[ll.Value]:
    """The four unsigned bytes of a word minus a zero point, in order."""
    numbers = [permute(b, word, i32((0x64 if floats.mantissa > 8 else 0x43) * 0x01010101), s) for s in (0x4140, 0x4342)]
    if floats.mantissa > 8:
        zero = floats.constant(-floats.magic - zero_point)
        return [floats.plus(b, number, zero) for number in numbers]
    return [_byte_of_seven_bits(b, floats, number, zero_point) for number in numbers]


def _byte_of_seven_bits(b: ll.IRBuilder, floats: Pairs, number: ll.Value, zero_point: int) -> ll.Value:
    """A byte in the low bits of bfloat16 128, minus the zero point.

    The highest bit falls into the exponent, so two numbers are added: 128 + the low 7 bits, and 128 or 256.
    """
    low = floats.plus(b, b.and_(number, i32(0xFF7FFF7F)), floats.constant(-zero_point))
    high = floats.plus(b, b.and_(number, i32(0xFF80FF80)), floats.constant(-256))
    return floats.plus(b, low, high)


# -- codebooks -----------------------------------------------------------------------------------------------------


def _looked_up(b: ll.IRBuilder, table: Sequence[ll.Value], word: ll.Value) -> list[ll.Value]:
    """The bytes of a table of 16 for the eight 4-bit codes of a word, four in each result.

    ``prmt`` selects by three bits of a code in each half of the table; a third ``prmt`` selects the half by the fourth.
    """
    index = b.and_(word, i32(0x77777777))
    half = b.or_(b.and_(b.lshr(word, i32(1)), i32(0x44444444)), i32(0x32103210))
    found = []
    for shift in (0, 16):
        own, which = (b.lshr(x, i32(shift)) if shift else x for x in (index, half))
        first, second = (permute(b, table[i], table[i + 1], own) for i in (0, 2))
        found.append(permute(b, first, second, which))
    return found


def _book_pairs(b: ll.IRBuilder, floats: Pairs, book: Sequence[ll.Value], word: ll.Value) -> list[ll.Value]:
    """Look up the int8 entries of the codes of a word.

    float16: look up entries + 128 as unsigned bytes. bfloat16: look up both bytes of the converted entries.
    """
    if floats.mantissa > 8:
        biased = [b.xor(entries, i32(0x80808080)) for entries in book]
        return [pair for word_ in _looked_up(b, biased, word) for pair in _bytes(b, floats, word_, 128)]
    low, high = (_looked_up(b, table, word) for table in _bytes_of_floats(b, book))
    return [permute(b, x, y, s) for x, y in zip(low, high, strict=True) for s in (0x5140, 0x7362)]


def _bytes_of_floats(b: ll.IRBuilder, book: Sequence[ll.Value]) -> list[list[ll.Value]]:
    """The low and the high bytes of int8 entries converted to bfloat16, the upper half of a float32."""
    tables: list[list[ll.Value]] = [[], []]
    for entries in book:
        numbers = b.sitofp(b.bitcast(entries, ll.VectorType(I8, 4)), ll.VectorType(v.F32, 4))
        bits = b.bitcast(numbers, ll.VectorType(I32, 4))
        for table, shift in zip(tables, (16, 24), strict=True):
            moved = b.lshr(bits, v.constant(I32, shift, 4))
            table.append(b.bitcast(b.trunc(moved, ll.VectorType(I8, 4)), I32))
    return tables


# -- rows ----------------------------------------------------------------------------------------------------------


def _scaled(b: ll.IRBuilder, floats: Pairs, row: TensorIntrin, operands: Operands, found: Sequence[ll.Value]) -> None:
    """Store pairs times the scale, operand 2."""
    scale = b.bitcast(v.splat(b, b.load(address(row, operands, 2), align=2, typ=I16), 2), I32)
    store(b, row, operands, [floats.times(b, pair, scale) for pair in found])


def _word_operands(codes: int, dtype: str) -> tuple[Operand, ...]:
    return Operand("out", (codes,), dtype), Operand("word", (1,), "uint32"), Operand("scale", (1,), dtype)


def _code(word: te.Tensor, place: PrimExpr, bits: int) -> PrimExpr:
    """A code of a word as int32."""
    return te.cast((word[0] >> te.cast(place * bits, "uint32")) & te.const((1 << bits) - 1, "uint32"), "int32")


def _word_row(floats: Pairs, bits: int, unpacking: Unpacking, pairs: bool) -> TensorIntrin:
    """``out[i] = (code i of word - zero point) * scale``; pairs: code ``order(i)`` instead."""
    fields, dtype = _Fields(bits), floats.dtype

    def semantics(word: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def element(i: Var) -> PrimExpr:
            code = _code(word, unpacking.order(i) if pairs else i, bits)
            return te.cast(code - fields.zero_point, dtype) * scale[0]

        return te.compute((fields.codes,), element, name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (word,) = load(b, row, operands, 1)
        if bits == 8:
            found = _bytes(b, floats, word, fields.zero_point)
        else:
            found = fields.pairs(b, floats, word)
        _scaled(b, floats, row, operands, found if pairs or bits == 8 else _in_order(b, found))

    name = f"cuda.dequantize.{unpacking.name}.{'pairs.' if pairs else ''}{SHORT[dtype]}"
    return TensorIntrin(name, _word_operands(fields.codes, dtype), semantics, {"cuda": code}, "sm_80")


def _book_row(floats: Pairs, unpacking: Unpacking) -> TensorIntrin:
    """``out[i] = book[code i of word] * scale``"""

    def semantics(word: te.Tensor, scale: te.Tensor, book: te.Tensor) -> te.Tensor:
        def element(i: Var) -> PrimExpr:
            return te.cast(book[_code(word, i, 4)], floats.dtype) * scale[0]

        return te.compute((unpacking.codes,), element, name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (word,), book = load(b, row, operands, 1), load(b, row, operands, 3)
        _scaled(b, floats, row, operands, _book_pairs(b, floats, book, word))

    operands = (*_word_operands(unpacking.codes, floats.dtype), Operand("book", (BOOK,), "int8"))
    name = f"cuda.dequantize.{unpacking.name}.{SHORT[floats.dtype]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_80")


Q3 = Unpacking("q3", 10, in_order=False, paired=True)
Q4 = Unpacking("q4", 8, paired=True)
Q8 = Unpacking("q8", 4)
BOOK4 = Unpacking("book4", 8, book=True)

DEQUANTIZE = tuple(
    row
    for floats in PAIRS
    for row in (
        *(_word_row(floats, bits, unpacking, True) for bits, unpacking in ((3, Q3), (4, Q4))),
        *(_word_row(floats, bits, unpacking, False) for bits, unpacking in ((4, Q4), (8, Q8))),
        _book_row(floats, BOOK4),
    )
)
