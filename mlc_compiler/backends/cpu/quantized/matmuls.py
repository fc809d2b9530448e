"""``x @ w.T`` with a group-quantized weight as sums of integer products, in tensor expressions.

The weights of a group are ``scale * (weight - zero_point)`` with small unsigned weights. The activations of the same
group are quantized to ``step * fixed`` with one step and an integer ``fixed`` of one or two 8-bit digits. The sum over
a group is then ::

    step * scale * (sum(fixed * weight) - zero_point * sum(fixed))

where the first sum is 256 times that of the high digits plus that of the low ones; both are dot products of bytes, 32
to 64 products per instruction. The error of an activation is at most 2 ** -16 (two digits) or 2 ** -8 (one digit) of
the largest magnitude in its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir import expr
from ....ir.expr import Call, ExprLike, PrimExpr, Var, const, is_const
from ....tir import te
from ....tir.byte_scales import scale_value
from ....tir.nodes import Buffer, PrimFunc
from ..instructions.dot import byte_of
from .plan import BYTES, Plan, Weight

MIN_MAGNITUDE = 1e-30  # groups with a smaller maximum are treated as zero: the inverse of their step would overflow


def integer_matmul(plan: Plan, activation: Buffer, codes: Buffer, scale: Buffer, out: Buffer) -> PrimFunc:
    """The tensor function of the matmul, in the blocks that ``QuantizedMatmul`` schedules.

    activation: float32 [..., K]; codes, scale: the 2-d operands of ``dequantize``; out: float32 [..., N]. Leading axes
    are flattened to rows.
    """
    x, q, s = (te.placeholder(b.shape, b.dtype, b.name) for b in (activation, codes, scale))
    length = plan.weight.length
    rows = Rows(x, length, length % plan.weight.group != 0)
    computed = _IntegerMatmul(plan, rows, q, s)
    shape: tuple[ExprLike, ...] = (*out.shape[:-1], plan.weight.columns)
    result = te.compute(
        shape, lambda *i: computed.product[rows.number(i[:-1]), *plan.column_axes(i[-1])], name="result"
    )
    return te.create_prim_func([x, q, s, result])


@dataclass(frozen=True)
class Rows:
    """The activations as a matrix."""

    x: te.Tensor
    length: int
    is_padded: bool

    @property
    def count(self) -> PrimExpr:
        return expr.product(self.x.shape[:-1])

    def element(self, row: PrimExpr, position: PrimExpr) -> PrimExpr:
        """An activation; 0 in the padding of the last group."""
        value = self.x[(*self._indices(row), position)]
        return te.if_then_else(position < self.length, value, te.f32(0)) if self.is_padded else value

    def _indices(self, row: PrimExpr) -> list[PrimExpr]:
        """Unflatten a row number to the leading indices, in row-major order."""
        lead = self.x.shape[:-1]
        wide = [axis for axis, size in enumerate(lead) if not is_const(size, 1)]
        indices: list[PrimExpr] = [const(0, "int64") for _ in lead]
        for axis in reversed(wide):
            indices[axis] = row if axis == wide[0] else row % lead[axis]
            row = row // lead[axis]
        return indices

    def number(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        """Flatten leading indices to a row number, in row-major order."""
        number: PrimExpr = const(0, "int64")
        for size, index in zip(self.x.shape[:-1], indices, strict=True):
            number = number if is_const(size, 1) else number * size + index
        return number


class Activations:
    """The quantized activations of a matmul and the tensors that lead to them, in the order of computation.

    A position in a group is a pair: ``step``, the index of the dot product, and ``byte``, the index inside it.
    """

    def __init__(self, plan: Plan, rows: Rows):
        self.plan, self.rows, self.weight = plan, rows, plan.weight
        self.per_row = (rows.count, plan.weight.groups)
        self.largest = self._largest()
        self.fixed = self._fixed()
        self.digits = self._digits()
        self.correction = self._correction()
        self.step = te.compute(
            self.per_row, lambda row, g: self._magnitude(row, g) * (1 / self._max_fixed), name="step"
        )

    @property
    def _max_fixed(self) -> int:
        """The largest integer that the digits represent."""
        return 127 if self.plan.digits == 1 else 127 * 256 + 127

    def _largest(self) -> te.Tensor:
        """int32 [rows, groups]: the bit pattern of the largest magnitude of each group, see ``_magnitude``.

        Bit patterns of magnitudes are ordered like their values, NaN above infinity, and LLVM vectorizes integer max.
        """
        k = te.reduce_axis(self.weight.group, "k")

        def bits(row: Var, g: Var) -> PrimExpr:
            element = self.rows.element(row, g * self.weight.group + k)
            return te.max(Call("reinterpret", (element,), "int32") & 0x7FFFFFFF, axis=k)

        return te.compute(self.per_row, bits, name="largest")

    def _magnitude(self, row: PrimExpr, g: PrimExpr) -> PrimExpr:
        """float32: the largest magnitude of a group."""
        return Call("reinterpret", (self.largest[row, g],), "float32")

    def _fixed(self) -> te.Tensor:
        """int32 [rows, groups, steps, 4]: the quantized activations, in the order of the weights in ``Words``."""

        def integer(row: Var, g: Var, step: Var, byte: Var) -> PrimExpr:
            limit = self._magnitude(row, g)
            inverse = te.select(limit > MIN_MAGNITUDE, self._max_fixed / limit, te.f32(0))
            element = self.rows.element(row, g * self.weight.group + _position(self.weight, step, byte))
            return _nearest(element * inverse)

        return te.compute((*self.per_row, self.plan.steps, BYTES), integer, name="fixed")

    def _digits(self) -> te.Tensor:
        """int8 [rows, groups, digits, steps, 4]: the high digits of a group, then the low ones."""

        def digit(row: Var, g: Var, which: Var, step: Var, byte: Var) -> PrimExpr:
            number = self.fixed[row, g, step, byte]
            if self.plan.digits == 1:
                return te.cast(number, "int8")
            high = (number + 128) >> 8
            return te.cast(te.select(which < 1, high, number - high * 256), "int8")

        return te.compute((*self.per_row, self.plan.digits, self.plan.steps, BYTES), digit, name="digits")

    def _correction(self) -> te.Tensor | None:
        """int32 [rows, groups]: ``-zero_point * sum(fixed)`` of a group; None for a zero point of 0."""
        if not self.plan.zero_point:
            return None
        step, byte = _in_group(self.plan)

        def group_sum(row: Var, g: Var) -> PrimExpr:
            return te.sum(self.fixed[row, g, step, byte] * -self.plan.zero_point, axis=[step, byte])

        return te.compute(self.per_row, group_sum, name="correction")


class Words:
    """Words of four weights, one per byte, as the instruction reads them. packed: (column, i) -> i-th word of codes."""

    def __init__(self, plan: Plan, packed: Callable[[PrimExpr, PrimExpr], PrimExpr], stored: PrimExpr):
        """stored: words of codes in a column; those of the last group may be missing."""
        self.plan, self.weight, self.packed, self.stored = plan, plan.weight, packed, stored
        self.layout = plan.weight.words

    def word(self, g: PrimExpr, step: PrimExpr, n: PrimExpr) -> PrimExpr:
        """uint32: the word of a step of a group of column ``n``."""
        codes = self._codes(g, step, n)
        if self.weight.values:
            return self._looked_up(codes)
        return codes ^ _uint32(0x80808080) if self.plan.flipped else codes

    def _codes(self, g: PrimExpr, step: PrimExpr, n: PrimExpr) -> PrimExpr:
        bits, mask = self.weight.bits, (1 << self.weight.bits) - 1
        if self.layout.is_split:
            return self._of_planes(g, step, n)
        if parts := _parts(self.weight):
            read = 8 if self.weight.values else bits  # the lookup ignores the upper bits of bytes
            return self._field_of_bytes(g, step // parts, step % parts * bits, read, n)
        codes = _uint32(0)
        for byte in range(BYTES):
            position = _position(self.weight, step, const(byte, "int64"))
            word = self._word_of_codes(g, position // self.layout.run, n)
            shift = te.cast(position % self.layout.run * bits, "uint32")
            codes = codes | (((word >> shift) & _uint32(mask)) << _uint32(8 * byte))
        return codes

    def _of_planes(self, g: PrimExpr, step: PrimExpr, n: PrimExpr) -> PrimExpr:
        """A word of four codes, one per byte, joined from the planes of their low and high bits."""
        of, parts, steps = self.layout, _parts(self.weight), self.layout.run // BYTES
        first, step = step // steps * of.run_words, step % steps
        high_word, shift = of.high_of_step(step)
        low = self._field_of_bytes(g, first + step // parts, step % parts * of.low_bits, of.low_bits, n)
        high = self._field_of_bytes(g, first + high_word, shift, 8, n) << _uint32(of.low_bits)
        # The lookup ignores the bits above the code: the complement of the low mask makes this one bitwise selection.
        mask = (1 << self.weight.bits) - 1 if not self.weight.values else 0xFF
        return low | (high & _uint32((mask ^ (1 << of.low_bits) - 1) * 0x01010101))

    def _field_of_bytes(self, g: PrimExpr, i: PrimExpr, shift: PrimExpr, bits: int, n: PrimExpr) -> PrimExpr:
        """``bits`` bits of each byte of packed word ``i`` of a group, from bit ``shift`` on."""
        word = self._word_of_codes(g, i, n) >> te.cast(shift, "uint32")
        return word if bits == 8 else word & _uint32(((1 << bits) - 1) * 0x01010101)

    def _word_of_codes(self, g: PrimExpr, i: PrimExpr, n: PrimExpr) -> PrimExpr:
        """Packed word ``i`` of a group; 0 in the padding of the last group."""
        per_group = self.layout.group_words
        word = g * per_group + i
        codes = self.packed(n, word)
        whole = is_const(self.stored, self.weight.groups * per_group)
        return codes if whole else te.if_then_else(word < self.stored, codes, 0)

    def _looked_up(self, codes: PrimExpr) -> PrimExpr:
        """Look up each byte in the codebook, which is packed in uint32 constants."""
        table = self.plan.table
        words = [int.from_bytes(table[i : i + BYTES], "little") for i in range(0, len(table), BYTES)]
        return Call("lookup_bytes", (codes, *map(_uint32, words)), "uint32")


def _parts(weight: Weight) -> int:
    """Codes per byte of a packed word, of the low plane where there are two; 0 when codes cross byte boundaries."""
    bits = weight.words.low_bits
    return 8 // bits if 8 % bits == 0 else 0


def _position(weight: Weight, step: PrimExpr, byte: PrimExpr) -> PrimExpr:
    """Index of a weight in its group; each byte of a packed word holds one weight of each of ``_parts`` steps."""
    if not (parts := _parts(weight)):
        return step * BYTES + byte
    return (step // parts * BYTES + byte) * parts + step % parts


def _in_group(plan: Plan) -> tuple[te.ReduceAxis, te.ReduceAxis]:
    return te.reduce_axis(plan.steps, "step"), te.reduce_axis(BYTES, "byte")


class _IntegerMatmul:
    """The tensors of a quantized matmul, in the order in which they are computed."""

    def __init__(self, plan: Plan, rows: Rows, q: te.Tensor, s: te.Tensor):
        self.plan, self.s, self.activations, self.weight = plan, s, Activations(plan, rows), plan.weight
        self.per_row, self.rows = self.activations.per_row, rows
        self.words = self._words(q)
        self.dots = self._dots()
        self.product = self._sum_of_groups()

    def _words(self, q: te.Tensor) -> te.Tensor:
        """uint32 [groups, steps, *columns]: four weights, one per byte."""
        by_column = self.weight.layout == "NK"
        words = Words(self.plan, lambda n, i: q[n, i] if by_column else q[i, n], q.shape[1 if by_column else 0])
        shape = (self.weight.groups, self.plan.steps, *self.plan.column_shape)
        return te.compute(shape, lambda g, step, *n: words.word(g, step, self.plan.column(n)), name="words")

    def _dots(self) -> te.Tensor:
        """int32 [rows, groups, digits, *columns]: sums over groups of digits times weights."""
        step, byte = _in_group(self.plan)

        def dot(row: Var, g: Var, which: Var, *n: Var) -> PrimExpr:
            weight = byte_of(self.words[g, step, *n], byte, self.plan.dot.signed)
            value = weight * te.cast(self.activations.digits[row, g, which, step, byte], "int32")
            return te.sum(value, axis=[step, byte], init=self._start(row, g, which))

        return te.compute((*self.per_row, self.plan.digits, *self.plan.column_shape), dot, name="dots")

    def _start(self, row: Var, g: Var, which: Var) -> PrimExpr | None:
        """Initial value of a group's sum: the correction for the lowest digits, else 0; None without a correction."""
        correction = self.activations.correction
        if correction is None:
            return None
        return te.select(which < self.plan.digits - 1, te.cast(0, "int32"), correction[row, g])

    def _sum_of_groups(self) -> te.Tensor:
        g = te.reduce_axis(self.weight.groups, "g")

        def product(row: Var, *n: Var) -> PrimExpr:
            column = self.plan.column(n)
            scale = self.s[column, g] if self.weight.layout == "NK" else self.s[g, column]
            dot = self.dots[row, g, 0, *n]
            for which in range(1, self.plan.digits):
                dot = dot * 256 + self.dots[row, g, which, *n]
            return te.sum(te.f32(dot) * (te.f32(scale_value(scale)) * self.activations.step[row, g]), axis=g)

        return te.compute((self.rows.count, *self.plan.column_shape), product, name="product")


def _nearest(value: PrimExpr) -> PrimExpr:
    """int32: the integer next to a float32 of at most 2 ** 22, ties to even; any integer for NaN and infinity.

    The sum with 1.5 * 2 ** 23 has the integer in its lowest bits. LLVM has no vectors of conversions that saturate.
    """
    shifted = value + te.f32(1.5 * 2**23)
    return Call("reinterpret", (shifted,), "int32") - const(0x4B400000, "int32")


def _uint32(value: int) -> PrimExpr:
    return const(value, "uint32")
