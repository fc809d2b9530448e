"""The parameters of a matmul with a quantized weight, and its tile sizes on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.expr import PrimExpr
from ....schedules.rule import round_up
from ....tir.code_words import CodeWords
from ..instructions import DotProduct, find_dot_product
from ..machine import Cpu

BYTES = 4  # weights per lane of a dot product
INT8_MIN = -128
MIN_DIGIT = {1: -127, 2: INT8_MIN}  # by the number of digits of an activation
MAX_ROWS = 64  # of a tile
OPERAND_REGISTERS = 4  # for digits loaded from memory, in addition to words and sums
EVEN = 1.125  # the largest share of a core that counts as even, as a multiple of the mean


@dataclass(frozen=True)
class Weight:
    """A weight [N, K] as ``dequantize`` describes it: codes of ``bits`` bits, a scale for ``group`` of them."""

    columns: int
    length: int
    bits: int
    group: int
    layout: str
    values: tuple[int, ...]

    @property
    def groups(self) -> int:
        return -(-self.length // self.group)

    @property
    def words(self) -> CodeWords:
        return CodeWords(self.bits, self.group)

    @property
    def zero_point(self) -> int:
        """Zero point of the unsigned codes, or of the unsigned entries of the codebook."""
        return -INT8_MIN if self.values else (1 << (self.bits - 1)) - 1

    @property
    def max_value(self) -> int:
        """The largest weight as uint8."""
        return max(self.values) - INT8_MIN if self.values else (1 << self.bits) - 1


@dataclass(frozen=True)
class Plan:
    """The instruction and the tile sizes of a matmul with a quantized weight.

    digits: 8-bit digits of an activation, 1 or 2. dot: the instruction. columns: per tile, a multiple of the
    instruction's lanes. rows: per tile; their digits fit the L2 cache. rows_in_registers: a divisor of ``rows``; rows
    whose sums over a group are in registers at a time. sides: 2 where results combine a column of the first half of the
    weight with one of the second half, as SwiGLU does; a tile has equally many columns of both.
    """

    weight: Weight
    dot: DotProduct
    digits: int
    columns: int
    rows: int
    rows_in_registers: int
    sides: int = 1

    @staticmethod
    def of(weight: Weight, cpu: Cpu, digits: int, sides: int = 1) -> Plan | None:
        """The plan for a CPU; None without a dot product for these weights whose lanes divide the columns of a side."""
        if weight.bits > 8 or weight.group % BYTES:
            return None
        dot = find_dot_product(cpu, weight.max_value, MIN_DIGIT[digits], weight.group // BYTES)
        if dot is None or weight.columns % (sides * dot.lanes):
            return None
        words_in_registers = cpu.vector_registers // 2 // (weight.group // BYTES)
        of_side = weight.columns // sides // dot.lanes
        vectors = sides * even_divisor(of_side, max(1, words_in_registers // sides), cpu.cores)
        row_bytes = digits * weight.groups * weight.group
        sums = cpu.vector_registers - vectors * (weight.group // BYTES) - OPERAND_REGISTERS
        together = power_of_two(sums // (digits * vectors))  # fills tiles with the usual batches
        rows = min(MAX_ROWS, cpu.l2_bytes // 2 // row_bytes)
        return Plan(weight, dot, digits, vectors * dot.lanes, round_up(max(1, rows), together), together, sides)

    @property
    def column_shape(self) -> tuple[int, ...]:
        """Shape of the weight's columns: [sides, columns of a side], or [columns] for one side."""
        return (self.weight.columns,) if self.sides == 1 else (self.sides, self.weight.columns // self.sides)

    def column(self, axes: Sequence[PrimExpr]) -> PrimExpr:
        """The column of the weight with these indices in ``column_shape``."""
        return axes[0] if self.sides == 1 else axes[0] * self.column_shape[-1] + axes[1]

    def column_axes(self, column: PrimExpr) -> tuple[PrimExpr, ...]:
        """The indices in ``column_shape`` of a column of the weight."""
        width = self.column_shape[-1]
        return (column,) if self.sides == 1 else (column // width, column % width)

    @property
    def flipped(self) -> bool:
        """Whether 128 is subtracted from uint8 weights, by flipping bit 7, for an instruction with int8 weights."""
        return self.dot.signed and self.weight.max_value > 127

    @property
    def table(self) -> bytes:
        """The codebook as the instruction reads its entries: int8 for one with int8 weights, else uint8."""
        return bytes((value + self.zero_point) & 0xFF for value in self.weight.values)

    @property
    def zero_point(self) -> int:
        """Zero point of the weights as the instruction reads them."""
        return self.weight.zero_point - (-INT8_MIN if self.flipped else 0)

    @property
    def steps(self) -> int:
        """Dot products per group and vector of columns."""
        return self.weight.group // BYTES


def power_of_two(limit: int) -> int:
    """The largest power of two up to ``limit``, at least 1."""
    return 1 << (max(limit, 1).bit_length() - 1)


def even_divisor(extent: int, limit: int, cores: int) -> int:
    """The largest divisor of ``extent`` up to ``limit`` that divides it into parts of which all cores get as many.

    Without such a divisor, the one for which the largest share of a core is least; ``limit`` for an extent of 0.
    """

    def largest_share(divisor: int) -> float:
        parts = extent // divisor
        return -(-parts // cores) * cores / max(parts, 1)

    divisors = [d for d in range(min(extent or limit, limit), 0, -1) if extent % d == 0]
    return next((d for d in divisors if largest_share(d) <= EVEN), min(divisors, key=largest_share))
