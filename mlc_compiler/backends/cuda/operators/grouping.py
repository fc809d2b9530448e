"""Sorting of routing choices by expert on a GPU: a thread block per expert counts the choices before its own."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, cast, ceildiv, const, maximum, minimum
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, buffer
from .grouping_loops import place_choices
from .nests import nest

THREADS = 128


def group_by_expert(experts: te.Tensor, *, target: Target, num_experts: int) -> list[te.Tensor]:
    """Kernel of the operator ``nn.group_by_expert``."""
    names = _Grouping(experts.buffer, num_experts)
    expert, thread = Var("expert"), Var("thread")
    body = expand(place_choices, names, expert, thread)
    kernel = nest(((expert, num_experts),), ((thread, THREADS),), names.scratch, body)
    return list(te.extern([names.places, names.ids, names.rows], [experts], kernel))


@dataclass(eq=False)
class _Grouping:
    """Operands, sizes and buffers for the macro. Each thread has ``share`` consecutive choices.

    equal, smaller: for each thread, how many of its choices are the block's expert or an expert before it; shared.
    counted: both numbers of this thread. place: the position of its next choice.
    """

    experts: Buffer
    num_experts: int

    def __post_init__(self) -> None:
        tokens, self.choices = self.experts.shape
        self.total, self.threads = tokens * self.choices, THREADS
        self.share = ceildiv(self.total, THREADS)
        self.places = buffer("places", self.experts.shape, "int32")
        self.ids, self.rows = buffer("ids", (self.total,), "int32"), buffer("rows", (self.total,), "int32")
        self.equal, self.smaller = (buffer(name, (THREADS,), "int32", "shared") for name in ("equal", "smaller"))
        self.counted, self.place = buffer("counted", (2,), "int32", "local"), buffer("place", (1,), "int32", "local")
        self.scratch = [self.equal, self.smaller, self.counted, self.place]

    def chosen(self, number: PrimExpr) -> PrimExpr:
        """int64: the expert of a choice."""
        value = cast("int64", self.experts[self.token(number), number % self.choices])
        return maximum(minimum(value, self.num_experts - 1), 0)

    def token(self, number: PrimExpr) -> PrimExpr:
        return number // self.choices

    def one_if(self, condition: PrimExpr) -> PrimExpr:
        return te.select(condition, const(1, "int32"), const(0, "int32"))
