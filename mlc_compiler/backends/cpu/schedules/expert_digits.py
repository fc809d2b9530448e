"""Kernels of matmuls with quantized expert weights in integers; ``quantized/matmuls.py`` has the formula."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlc_errors import MLCError

from ....ir.expr import Call, IntImm, PrimExpr, const, minimum
from ....ir.visitor import Substitute
from ....tir import te
from ....tir.byte_scales import scale_value
from ....tir.nodes import Buffer, BufferLoad, PrimFunc, Stmt, seq
from ....tir.schedule import Schedule
from ....tir.schedule.prefetch import LINE, PREFETCHES
from ....tir.schedule.tree import root_of
from ..machine import Cpu
from ..quantized.experts import DIGITS, QuantizedExperts, match_quantized_experts
from ..quantized.matmuls import Activations, Rows, Words
from ..quantized.plan import BYTES, Plan
from .expert_loops import multiply_digits
from .expert_runs import Runs
from .prefetching import bytes_ahead, cache_level
from .quantized_matmul import prepare_activations

WORDS_OF_LINE = LINE // 4


def integer_kernel(func: PrimFunc, cpu: Cpu) -> PrimFunc:
    """Build the kernel of a function that is marked ``expert_digits``: quantize the activations, then multiply."""
    found = match_quantized_experts(func, cpu, int(func.attrs[DIGITS]))
    if found is None:
        raise MLCError(f"a function is marked {DIGITS}, but computes no matmul with quantized experts")
    digits, step, correction, prepare = _prepared(found)
    plan, made = found.plan, [b for b in (digits, step, correction) if b is not None]
    positions = [func.buffers.index(b) for b in (found.codes, found.scale)]
    runs = DigitRuns(func, found.matched, plan.columns, plan.rows, plan, positions, cpu, digits, step, correction)
    root = root_of(prepare)
    block = replace(
        root.block,
        body=seq(_nest(prepare, found.matched.activation), runs.nest(multiply_digits)),
        alloc_buffers=(*root.block.alloc_buffers, *made),
    )
    return PrimFunc(runs.func.params, replace(root, block=block), runs.func.attrs)


def _prepared(found: QuantizedExperts) -> tuple[Buffer, Buffer, Buffer | None, PrimFunc]:
    """Digits, steps and corrections of all rows of x, and the scheduled function of x that computes these."""
    source, weight = found.matched.activation, found.plan.weight
    x = te.placeholder(source.shape, source.dtype, source.name)
    a = Activations(found.plan, Rows(x, weight.length, weight.length % weight.group != 0))
    s = Schedule(te.create_prim_func([x, a.digits, a.step, *([] if a.correction is None else [a.correction])]))
    row_group, vectors = prepare_activations(s)
    for name in vectors:
        s.vectorize(s.get_loops(name)[-1])
    s.parallel(row_group)
    _, digits, step, *correction = s.func.buffers
    return digits, step, correction[0] if correction else None, s.func


def _nest(prepare: PrimFunc, x: Buffer) -> Stmt:
    nest: Stmt = Substitute({prepare.buffers[0]: x})(root_of(prepare).block.body)
    return nest


@dataclass(eq=False)
class DigitRuns(Runs):
    """Operands and expressions of the macro ``multiply_digits``. positions: parameter indices of codes and scales.

    digits, step, correction: the quantized rows of x, see ``Activations``. height: rows in registers.
    """

    plan: Plan
    positions: list[int]
    cpu: Cpu
    digits: Buffer
    step: Buffer
    correction: Buffer | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.codes, self.scale = (self.func.buffers[i] for i in self.positions)
        self.groups, self.steps, self.lanes = self.plan.weight.groups, self.plan.steps, self.plan.dot.lanes
        self.steps_of_dot = self.plan.dot.steps
        self.digits_of_one, self.height = self.plan.digits, self.plan.rows_in_registers
        self.words = Words(self.plan, self._packed_word, self.codes.shape[2])
        self.words_of_group = self.plan.weight.words.group_words
        self.lines = -(-self.words_of_group * self.tile_columns // WORDS_OF_LINE)
        self.distance = -(-bytes_ahead(self.cpu) // (self.lines * LINE))

    def _packed_word(self, c: PrimExpr, i: PrimExpr) -> PrimExpr:
        """The i-th word of codes of a column of ``self.tile``."""
        return self.codes[self.run[2], self.tile, i, c]

    def prefetch(self, g: PrimExpr, line: PrimExpr, following: PrimExpr) -> Call:
        """Prefetch a cache line of codes ``distance`` groups ahead: of this expert, then of that of the next run."""
        later, place = g + self.distance, line * WORDS_OF_LINE
        expert = te.select(later < self.groups, self.run[2], following)
        word = later % self.groups * self.words_of_group + place // self.tile_columns
        at = (expert, self.tile, minimum(word, self.codes.shape[2] - 1), place % self.tile_columns)
        return Call(PREFETCHES[cache_level(self.cpu)], (Call("address_of", (self.codes[at],), "handle"),), "handle")

    def word(self, g: PrimExpr, step: PrimExpr, c: PrimExpr) -> PrimExpr:
        return self.words.word(g, step, c)

    def start(self, row: PrimExpr, g: PrimExpr, which: PrimExpr) -> PrimExpr:
        """The initial value of a group's sum: the correction for the lowest digits, else 0."""
        if self.correction is None:
            return const(0, "int32")
        own = self.correction[self.matched.place_of(row), g]
        return te.select(which < self.plan.digits - 1, const(0, "int32"), own)

    def add_dot(
        self,
        dots: Buffer,
        words: Buffer,
        row: PrimExpr,
        r: PrimExpr,
        g: PrimExpr,
        which: PrimExpr,
        step: PrimExpr,
        side: PrimExpr,
    ) -> Call:
        """Add the products of the instruction's steps, from ``step`` on, to a vector of ``dots[r, which]``."""
        fours = self.digits[self.matched.place_of(row), g, which, step, 0]
        places = (
            _region(dots[r, which, side * self.lanes], (1, self.lanes)),
            _region(words[side, step, 0], (self.steps_of_dot, self.lanes)),
            _region(fours, (self.steps_of_dot, BYTES)),
        )
        return Call(f"intrinsic.{self.plan.dot.intrin.name}", places, "handle")

    def group_sum(self, g: PrimExpr, row: PrimExpr, dots: Buffer, r: PrimExpr, c: PrimExpr) -> PrimExpr:
        """The scaled sum over one group of a row and column, float32."""
        dot: PrimExpr = dots[r, 0, c]
        for which in range(1, self.plan.digits):
            dot = dot * 256 + dots[r, which, c]
        scale = self.scale[self.run[2], self.tile, g, c]
        return te.f32(dot) * (te.f32(scale_value(scale)) * self.step[self.matched.place_of(row), g])


def _region(first: BufferLoad, shape: tuple[int, int]) -> Call:
    """The address of an operand: the extents in the last two axes of the buffer."""
    ones = (IntImm(1) for _ in first.indices[2:])
    return Call("address_of", (first, *ones, *map(IntImm, shape)), "handle")
