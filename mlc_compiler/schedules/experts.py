"""Recognition of grouped matmuls, in which each row uses an expert's matrix; see the operator ``nn.expert_linear``."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.expr import BinaryOp, Cast, PrimExpr, Var, without_casts
from ..ir.visitor import substitute, walk
from ..tir.nodes import Block, Buffer, BufferLoad, BufferStore, PrimFunc


@dataclass(frozen=True)
class ExpertMatmulBlock:
    """A block ``out[r, n] += x[place, k] * w[expert, n, k]``, where place and expert depend only on r."""

    block: Block
    row: Var
    activation: Buffer
    weight: Buffer
    place: PrimExpr
    expert: PrimExpr

    def expert_of(self, row: PrimExpr) -> PrimExpr:
        """The index of a row's expert."""
        return substitute(self.expert, {self.row: row})

    def place_of(self, row: PrimExpr) -> PrimExpr:
        """The index of the row of x that is multiplied for an output row."""
        return substitute(self.place, {self.row: row})

    def of_one(self, func: PrimFunc, expert: Var) -> PrimFunc:
        """The function around the block, with ``expert``, a free variable, in place of every row's expert."""
        replaced: PrimFunc = substitute(func, {self.expert: expert})
        return replaced


def match_expert_matmul(block: Block) -> ExpertMatmulBlock | None:
    """Match a grouped matmul; None for any other block."""
    if [it.kind for it in block.iter_vars] != ["S", "S", "R"] or not isinstance(block.body, BufferStore):
        return None
    row, column, position = (it.var for it in block.iter_vars)
    value = block.body.value
    term = value.b if isinstance(value, BinaryOp) and value.op == "+" else None
    term = term.value if isinstance(term, Cast) else term
    if not isinstance(term, BinaryOp) or term.op != "*":
        return None
    x, w = without_casts(term.a), without_casts(term.b)
    if not isinstance(x, BufferLoad) or not isinstance(w, BufferLoad) or len(w.indices) != 3:
        return None
    expert, n, k = w.indices
    if n is not column or k is not position or len(x.indices) != 2 or x.indices[1] is not position:
        return None
    of_row = not any(v is column or v is position for v in walk((expert, x.indices[0])))
    if not of_row or not any(isinstance(v, BufferLoad) for v in walk(expert)):
        return None
    return ExpertMatmulBlock(block, row, x.buffer, w.buffer, x.indices[0], expert)
