"""What a product with a quantized weight is made of, and how it is cut for a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ....schedules.rule import largest_divisor, round_up
from ..instructions import DotProduct, find_dot_product
from ..machine import Cpu

BYTES = 4  # weights that a dot product sums up for each lane
INT8_MIN = -128
MOST_ROWS = 64  # of a tile
OPERAND_REGISTERS = 4  # for digits on their way from memory, beside words and sums


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
    def codes_per_word(self) -> int:
        return 32 // self.bits

    @property
    def zero_point(self) -> int:
        """What is subtracted from a code, or from a value of the code book made unsigned."""
        return -INT8_MIN if self.values else (1 << (self.bits - 1)) - 1

    @property
    def table(self) -> bytes:
        """The code book as uint8."""
        return bytes(value - INT8_MIN for value in self.values)

    @property
    def most(self) -> int:
        """The greatest weight as uint8."""
        return max(self.table) if self.values else (1 << self.bits) - 1


@dataclass(frozen=True)
class Plan:
    """How a product is computed.

    digits: of eight bits, one or two, of an activation. dot: the instruction. columns: of a tile, a multiple of the
    instruction's lanes; rows: of a tile, whose digits stay in the L2 cache; rows_in_registers: a divisor of rows, those
    whose sums over a group are computed together.
    """

    weight: Weight
    dot: DotProduct
    digits: int
    columns: int
    rows: int
    rows_in_registers: int

    @staticmethod
    def of(weight: Weight, cpu: Cpu, digits: int) -> Plan | None:
        """None when the CPU has no dot product for such weights, or they do not fill its lanes."""
        if weight.bits > 8 or weight.group % BYTES:
            return None
        dot = find_dot_product(cpu, weight.most)
        if dot is None or weight.columns % dot.lanes:
            return None
        words_in_registers = cpu.vector_registers // 2 // (weight.group // BYTES)
        vectors = largest_divisor(weight.columns // dot.lanes, max(1, words_in_registers))
        row_bytes = digits * weight.groups * weight.group
        sums = cpu.vector_registers - vectors * (weight.group // BYTES) - OPERAND_REGISTERS
        together = max(1, sums // (digits * vectors))
        rows = min(MOST_ROWS, cpu.l2_bytes // 2 // row_bytes)
        return Plan(weight, dot, digits, vectors * dot.lanes, round_up(max(1, rows), together), together)

    @property
    def flipped(self) -> bool:
        """Whether weights, which do not fit into int8, are stored less 128: their highest bit is flipped."""
        return self.dot.signed and self.weight.most > 127

    @property
    def zero_point(self) -> int:
        """By how much the weights that the instruction gets are too large."""
        return self.weight.zero_point - (-INT8_MIN if self.flipped else 0)

    @property
    def steps(self) -> int:
        """Dot products of a group, for one vector of columns."""
        return self.weight.group // BYTES
