"""Divergence analysis: the variables and buffers of a lowered statement that depend on given variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir.expr import Call, Var
from ..ir.visitor import walk
from .intrinsics import operands_of
from .nodes import Allocate, Buffer, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While


class Varying:
    """The variables and private buffers whose values may depend on ``variables``, through data or control flow.

    private: whether a buffer's contents may differ between values of the variables; any other buffer is one memory,
    shared
    by all of them.
    """

    def __init__(self, stmt: Stmt, variables: Iterable[Var], private: Callable[[Buffer], bool]):
        self.private = private
        self.found = {id(v) for v in variables}
        before = -1
        while len(self.found) != before:
            before = len(self.found)
            self._visit(stmt, False)

    def depends(self, node: Any) -> bool:
        """Whether an expression or a statement mentions a variable or buffer that varies."""
        return any(id(n) in self.found for n in walk(node))

    def _visit(self, s: Stmt, controlled: bool) -> None:
        """Visit a statement; ``controlled``: whether a condition or an extent around it varies."""
        if isinstance(s, SeqStmt):
            for child in s.stmts:
                self._visit(child, controlled)
        elif isinstance(s, For):
            controlled = controlled or self.depends(s.extent)
            self._mark(s.var, controlled)
            self._visit(s.body, controlled)
        elif isinstance(s, While):
            self._visit(s.body, controlled or self.depends(s.condition))
        elif isinstance(s, IfThenElse):
            controlled = controlled or self.depends(s.condition)
            self._visit(s.then_case, controlled)
            if s.else_case is not None:
                self._visit(s.else_case, controlled)
        elif isinstance(s, LetStmt):
            self._mark(s.var, self.depends(s.value))
            self._visit(s.body, controlled)
        elif isinstance(s, Allocate):
            self._visit(s.body, controlled)
        elif isinstance(s, BufferStore):
            self._write(s.buffer, controlled or self.depends((s.value, s.indices)))
        elif isinstance(s, Evaluate) and isinstance(s.value, Call):
            self._call(s.value, controlled)

    def _call(self, call: Call, controlled: bool) -> None:
        """Mark the buffers that a call writes: an instruction its first operands, any other call possibly all."""
        varies = controlled or self.depends(call.args)
        for buffer, writes in operands_of(call):
            if writes or not call.op.startswith("intrinsic."):
                self._write(buffer, varies)

    def _write(self, buffer: Buffer, varies: bool) -> None:
        self._mark(buffer, varies and self.private(buffer))

    def _mark(self, node: Var | Buffer, varies: bool) -> None:
        if varies:
            self.found.add(id(node))
