"""Do accesses stay inside of their buffers, and inside of the regions that the blocks around them declare?

Only what is certain is refused: an access under a condition, or at an index that is no sum of loop variables, may well
be inside.
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
    """Raises VerifyError for an access, or the value of a block variable, that is certainly out of bounds, and for

    blocks whose ``reads`` and ``writes`` leave out what they read and write.
    """
    _Accesses(name).visit(func.body)


class _Accesses:
    def __init__(self, name: str):
        self.name = name
        self.bounds = IndexBounds()
        self.blocks: list[Block] = []
        self.homes: dict[Buffer, int] = {}
        """How many of the blocks around an allocation know nothing of it."""
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

    def _maybe(self, *nodes: Any) -> None:
        """Parts that a condition may keep from being evaluated."""
        outer, self.conditional = self.conditional, True
        self._each(nodes)
        self.conditional = outer

    # -- statements

    def _For(self, s: For) -> None:
        self.visit(s.extent)
        extent = self.bounds.enter(s.var, s.extent)
        never = isinstance(extent, IntImm) and extent.value <= 0
        (self._maybe if never else self.visit)(s.body)
        self.bounds.leave(s.var)

    def _IfThenElse(self, s: IfThenElse) -> None:
        self.visit(s.condition)
        self._maybe(s.then_case, s.else_case)

    def _While(self, s: While) -> None:
        self.visit(s.condition)
        self._maybe(s.body)

    def _LetStmt(self, s: LetStmt | Let) -> None:
        self.visit(s.value)
        self.bounds.let(s.var, s.value)
        self.visit(s.body)

    def _Allocate(self, s: Allocate) -> None:
        self.homes[s.buffer] = len(self.blocks)
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
        (self.visit if always else self._maybe)(s.block)
        self.at, self.block = outer

    def _Block(self, block: Block) -> None:
        """A block that declares nothing at all, as the root does, says nothing wrong."""
        declares = bool(block.reads or block.writes)
        self.blocks += [block] * declares
        self.homes |= dict.fromkeys(block.alloc_buffers, len(self.blocks))
        self._each((block.init, block.body))
        del self.blocks[len(self.blocks) - declares :]

    # -- expressions

    def _BufferLoad(self, e: BufferLoad) -> None:
        self._access(e.buffer, e.indices, "reads")
        self._each(e.indices)

    def _Call(self, e: Call) -> None:
        (self._maybe if e.op in _CONDITIONAL else self.visit)(e.args)

    def _Select(self, e: Select) -> None:
        self.visit(e.condition)
        self._maybe(e.true_value, e.false_value)

    def _BinaryOp(self, e: BinaryOp) -> None:
        self.visit(e.a)
        (self._maybe if e.op in LOGICAL else self.visit)(e.b)

    _Let = _LetStmt

    def _Var(self, e: Var) -> None:
        """Nothing is accessed."""

    # -- bounds

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr], kind: str) -> None:
        for axis, (index, size) in enumerate(zip(indices, buffer.shape)):
            self._within(index, size, f"axis {axis} of {buffer.name!r}")
        for block in self.blocks[self.homes.get(buffer, 0) :]:
            declared = (*block.reads, *block.writes) if kind == "reads" else block.writes
            same = [region.region for region in declared if region.buffer is buffer]
            listed = bool(same) and all(map(self._may_cover, zip(*same), indices))
            self.require(listed, f"block {block.name!r} {kind} more of {buffer.name!r} than its T.{kind}(...) say")

    def _within(self, index: PrimExpr, size: PrimExpr, what: str) -> None:
        if self.conditional or (isinstance(index, Var) and self.bounds.extents.get(index) is size):
            return
        low, high = self.bounds.widest(index)
        if low is None or low < 0:
            least, _ = self.bounds.ends(index)
            self.require(least is None or least >= 0, f"{what} starts at 0; got an index of {least}")
        if not isinstance(size, IntImm):
            _, beyond = self.bounds.ends(index - size)
            inside = beyond is None or beyond < 0
            self.require(inside, f"{what} ends before its size; got an index of its size or more")
        elif high is None or high >= size.value:
            _, most = self.bounds.ends(index)
            inside = most is None or most < size.value
            self.require(inside, f"{what} ends before its size; got an index of {most}")

    def _may_cover(self, declared: Sequence[Range], index: PrimExpr) -> bool:
        """Whether nothing proves that an index reaches out of all of the declared ranges, to the same side."""
        if self.conditional or any(r.min is index for r in declared):
            return True
        starts = [self.bounds.ends(index - r.min)[0] for r in declared]
        ends = [self.bounds.ends(index - r.min - r.extent)[1] for r in declared]
        return any(n is None or n >= 0 for n in starts) and any(n is None or n < 0 for n in ends)
