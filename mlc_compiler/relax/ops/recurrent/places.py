"""State slots of tokens, and loops over elements in SIMD tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.expr import IntImm, PrimExpr, Var, logical_and
from ....ir.simplify import simplify
from ....tir import te
from ....tir.nodes import VECTORIZED, For, IfThenElse, LetStmt, Stmt
from ..attention import as_index, clamped


@dataclass(frozen=True)
class Places:
    """The slots of tokens in a state array with ``num_slots`` slots."""

    num_slots: PrimExpr
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor

    @property
    def inputs(self) -> tuple[te.Tensor, ...]:
        return self.slots, self.token_seq, self.token_pos

    def each_token(self, step: Callable[[PrimExpr, PrimExpr], Stmt], skip: Callable[[PrimExpr], Stmt]) -> Stmt:
        """A loop over all tokens in order: ``step(token, slot)``, or ``skip(token)`` for a token without a state."""
        t, slot = Var("t"), Var("slot")
        sequence = as_index(self.token_seq[t])
        sequences = self.slots.shape[0]
        known = logical_and(sequences > 0, sequence >= 0, sequence < sequences, self.token_pos[t] >= 0)
        given = te.if_then_else(known, as_index(self.slots[clamped(sequence, sequences)]), -1)
        exists = logical_and(slot >= 0, slot < self.num_slots)
        body = LetStmt(slot, given, IfThenElse(exists, step(t, slot), skip(t)))
        return For(t, self.token_seq.shape[0], body)


@dataclass(frozen=True)
class Lanes:
    """Division of ``size`` elements into SIMD tiles of ``width``; width 1 is the operator's reference semantics."""

    size: int
    width: int = 1

    @property
    def tiles(self) -> int:
        return -(-self.size // self.width)

    def each(self, tile: PrimExpr, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """``body(lane, element)`` for the elements of a tile, as a vectorized loop."""
        if self.width == 1:
            return body(IntImm(0), tile)
        lane = Var("lane")
        element = simplify(tile * self.width + lane)
        inner = body(lane, element)
        guarded = IfThenElse(element < self.size, inner) if self.size % self.width else inner
        return For(lane, IntImm(self.width), guarded, VECTORIZED)
