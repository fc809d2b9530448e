"""Schedule of matmuls in which each row uses the weight of its expert; ``expert_runs.py`` has the algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ir.expr import Cast, PrimExpr
from ....ir.visitor import substitute
from ....schedules.experts import ExpertMatmulBlock, match_expert_matmul
from ....schedules.rule import Rule, analyse, constant_extent, largest_divisor
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from ..quantized.experts import DIGITS
from .expert_digits import integer_kernel
from .expert_loops import multiply_floats
from .expert_runs import Runs
from .matmul import UNROLLED_REDUCTION
from .row_tiles import row_tiles


class ExpertMatmul(Rule):
    """``epilogue(x[rows] @ weight[experts])`` with float32 sums and a stored or dequantized weight."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        matched, cpu = match_experts(func), Cpu.of(target)
        if matched is None:
            return None
        if DIGITS in func.attrs:
            return Schedule(integer_kernel(func, cpu))
        (height, *_), *_ = row_tiles(cpu)
        runs = FloatRuns(func, matched, 2 * cpu.lanes(32), 0, height)
        return Schedule(PrimFunc(runs.func.params, runs.nest(multiply_floats), runs.func.attrs))


def match_experts(func: PrimFunc) -> ExpertMatmulBlock | None:
    """Match a function whose only reduction is an expert matmul of static sizes; None for any other."""
    blocks = analyse(func)
    if blocks is None or len(blocks.reductions) != 1:
        return None
    matched = match_expert_matmul(blocks.reductions[0])
    return None if matched is None or not _has_known_sizes(matched) else matched


def _has_known_sizes(matched: ExpertMatmulBlock) -> bool:
    sizes = [constant_extent(size) for size in matched.weight.shape]
    return all(sizes) and matched.block.writes[0].buffer.dtype == "float32"


@dataclass(eq=False)
class FloatRuns(Runs):
    """Float32 matmuls, with the loops of ``schedules/matmul.py``; ``height`` rows in registers."""

    height: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unrolled = largest_divisor(self.depth, UNROLLED_REDUCTION)
        term: Any = self.matmul.body.value.b  # type: ignore[attr-defined]  # matched as a matmul
        term = term.value if isinstance(term, Cast) else term
        self.factors = (term.a, term.b)

    def activation(self, row: PrimExpr, position: PrimExpr) -> PrimExpr:
        r, _, k = (it.var for it in self.matmul.iter_vars)
        value: PrimExpr = substitute(self.factors[0], {r: row, k: position})
        return value

    def weight(self, c: PrimExpr, position: PrimExpr) -> PrimExpr:
        _, n, k = (it.var for it in self.matmul.iter_vars)
        at = {n: self.column(c), k: position, self.expert: self.run[2]}
        value: PrimExpr = substitute(self.factors[1], at)
        return value
