"""Checks that accesses are inside their buffers, and inside the regions declared by the enclosing blocks.

Only provable violations are errors: conditional accesses, and indices whose bounds are unknown, are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.expr import LOGICAL, BinaryOp, Call, IntImm, Let, PrimExpr, Select, Var
from ..ir.visitor import children
from ..tir.nodes import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Range,
    While,
)
from .bounds import IndexBounds
from .errors import VerifyError

_CONDITIONAL = ("if_then_else", "address_of")


def verify_accesses(func: PrimFunc, name: str) -> None:
    """Raise VerifyError for an access or a block variable that is provably out of bounds, or an undeclared access.

    An access is undeclared if it is outside the ``reads`` and ``writes`` of an enclosing block.
    """
    _Accesses(name).visit(func.body)


class _Accesses:
    def __init__(self, name: str):
        self.name = name
        self.bounds = IndexBounds()
        self.blocks: list[Block] = []
        self.outer_blocks: dict[Buffer, int] = {}
        """The number of blocks around the allocation of a buffer, which need not declare accesses to it."""
        self.conditional = False
        self.at: Any = None
        self.block: str | None = None

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            raise VerifyError(message, self.name, self.at, self.block)

    def visit(self, node: Any) -> None:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            method(node)
        else:
            self._each(children(node))

    def _each(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            self.visit(node)

    def _conditional(self, *nodes: Any) -> None:
        """Visit parts that are only evaluated under a condition."""
        outer, self.conditional = self.conditional, True
        self._each(nodes)
        self.conditional = outer

    # -- statements

    def _For(self, s: For) -> None:
        self.visit(s.extent)
        extent = self.bounds.enter(s.var, s.extent)
        is_empty = isinstance(extent, IntImm) and extent.value <= 0
        (self._conditional if is_empty else self.visit)(s.body)
        self.bounds.leave(s.var)

    def _IfThenElse(self, s: IfThenElse) -> None:
        self.visit(s.condition)
        self._conditional(s.then_case, s.else_case)

    def _While(self, s: While) -> None:
        self.visit(s.condition)
        self._conditional(s.body)

    def _LetStmt(self, s: LetStmt | Let) -> None:
        self.visit(s.value)
        self.bounds.let(s.var, s.value)
        self.visit(s.body)

    def _Allocate(self, s: Allocate) -> None:
        self.outer_blocks[s.buffer] = len(self.blocks)
        self.visit(s.body)

    def _BufferStore(self, s: BufferStore) -> None:
        outer, self.at = self.at, s
        self._access(s.buffer, s.indices, "writes")
        self._each((*s.indices, s.value))
        self.at = outer

    def _BlockRealize(self, s: BlockRealize) -> None:
        outer, self.at, self.block = (self.at, self.block), s, s.block.name
        self._each((*s.iter_values, s.predicate))
        always = isinstance(s.predicate, IntImm) and bool(s.predicate.value)
        for it, value in zip(s.block.iter_vars, s.iter_values):
            if always:
                self._within(value, it.extent, f"block variable {it.var.name!r}")
            self.bounds.let(it.var, value)
        (self.visit if always else self._conditional)(s.block)
        self.at, self.block = outer

    def _Block(self, block: Block) -> None:
        """Visit a block; regions are not checked for a block that declares none, such as the root block."""
        declares = bool(block.reads or block.writes)
        self.blocks += [block] * declares
        self.outer_blocks |= dict.fromkeys(block.alloc_buffers, len(self.blocks))
        self._each((block.init, block.body))
        del self.blocks[len(self.blocks) - declares :]

    # -- expressions

    def _BufferLoad(self, e: BufferLoad) -> None:
        self._access(e.buffer, e.indices, "reads")
        self._each(e.indices)

    def _Call(self, e: Call) -> None:
        (self._conditional if e.op in _CONDITIONAL else self.visit)(e.args)

    def _Select(self, e: Select) -> None:
        self.visit(e.condition)
        self._conditional(e.true_value, e.false_value)

    def _BinaryOp(self, e: BinaryOp) -> None:
        self.visit(e.a)
        (self._conditional if e.op in LOGICAL else self.visit)(e.b)

    _Let = _LetStmt

    def _Var(self, e: Var) -> None:
        """Do nothing: a variable is a leaf."""

    # -- bounds

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr], kind: str) -> None:
        for axis, (index, size) in enumerate(zip(indices, buffer.shape)):
            self._within(index, size, f"axis {axis} of {buffer.name!r}")
        for block in self.blocks[self.outer_blocks.get(buffer, 0) :]:
            declared = (*block.reads, *block.writes) if kind == "reads" else block.writes
            same = [region.region for region in declared if region.buffer is buffer]
            listed = bool(same) and all(map(self._may_cover, zip(*same), indices))
            self.require(listed, f"block {block.name!r} {kind} more of {buffer.name!r} than its T.{kind}(...) say")

    def _within(self, index: PrimExpr, size: PrimExpr, what: str) -> None:
        if self.conditional or (isinstance(index, Var) and self.bounds.extents.get(index) is size):
            return
        low, high = self.bounds.estimate(index)
        if low is None or low < 0:
            minimum, _ = self.bounds.exact(index)
            self.require(minimum is None or minimum >= 0, f"{what} starts at 0; got an index of {minimum}")
        if not isinstance(size, IntImm):
            _, excess = self.bounds.exact(index - size)
            inside = excess is None or excess < 0
            self.require(inside, f"{what} ends before its size; got an index of its size or more")
        elif high is None or high >= size.value:
            _, maximum = self.bounds.exact(index)
            inside = maximum is None or maximum < size.value
            self.require(inside, f"{what} ends before its size; got an index of {maximum}")

    def _may_cover(self, declared: Sequence[Range], index: PrimExpr) -> bool:
        """Whether an index is possibly in the declared ranges: not provably below, or above, all of them."""
        if self.conditional or any(r.min is index for r in declared):
            return True
        starts = [self.bounds.exact(index - r.min)[0] for r in declared]
        ends = [self.bounds.exact(index - r.min - r.extent)[1] for r in declared]
        return any(n is None or n >= 0 for n in starts) and any(n is None or n < 0 for n in ends)
