"""Printer of scalar expressions and attribute values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, PrimExpr, Select, StringImm, Var
from ..tir.nodes import Buffer, BufferLoad
from ..tir.threads import STORAGE_SYNC
from . import calls
from .names import Names

_PRECEDENCE = {"or": 1, "and": 2, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9}
_PRECEDENCE |= {"*": 10, "/": 10, "//": 10, "%": 10}
_NOT, _COMPARE, _ATOM = 3, 4, 12


class ExprPrinter:
    """Prints expressions with only the parentheses that Python's precedence requires."""

    def __init__(self, names: Names):
        self.names = names

    def expr(self, node: PrimExpr) -> str:
        return self._render(node)[0]

    def exprs(self, nodes: Sequence[PrimExpr]) -> str:
        return ", ".join(self.expr(n) for n in nodes)

    def shape(self, dims: Sequence[PrimExpr]) -> str:
        """A tuple of sizes: ``(n, 4)``, ``(8,)``, ``()``."""
        return f"({self.exprs(dims)},)" if len(dims) == 1 else f"({self.exprs(dims)})"

    def sum(self, a: PrimExpr, b: PrimExpr) -> str:
        """``a + b`` as text, without constant folding."""
        return self.expr(BinaryOp("+", a, b))

    def indices(self, items: Sequence[PrimExpr]) -> str:
        return self.exprs(items) if items else "()"

    def buffer_type(self, buffer: Buffer) -> str:
        """The arguments of ``T.Buffer(…)`` and similar: shape, dtype, and the scope when it is not global memory."""
        scope = "" if buffer.scope == "global" else f", scope={json.dumps(buffer.scope)}"
        return f"{self.shape(buffer.shape)}, {json.dumps(buffer.dtype)}{scope}"

    def attr(self, value: Any) -> str:
        """An attribute value as Python source."""
        if isinstance(value, IntImm):
            return typed_literal(value)
        if isinstance(value, PrimExpr):
            return self.expr(value)
        if isinstance(value, Buffer):
            return self.names.of(value)
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.attr(k)}: {self.attr(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.attr, value)) + "]"
        if isinstance(value, tuple):
            return "(" + ", ".join(map(self.attr, value)) + ("," if len(value) == 1 else "") + ")"
        return repr(value)

    def _render(self, node: PrimExpr) -> tuple[str, int]:
        """The text of an expression, and the precedence of its outermost operator."""
        if isinstance(node, Var):
            return self.names.of(node), _ATOM
        if isinstance(node, IntImm):
            return (str(node.value) if node.dtype == "int64" else typed_literal(node)), _ATOM
        if isinstance(node, FloatImm):
            return typed_literal(node), _ATOM
        if isinstance(node, StringImm):
            return json.dumps(node.value), _ATOM
        if isinstance(node, BufferLoad):
            return f"{self.names.of(node.buffer)}[{self.indices(node.indices)}]", _ATOM
        if isinstance(node, BinaryOp):
            return self._binary(node)
        if isinstance(node, Not):
            return f"not {self._at_least(node.value, _NOT)}", _NOT
        return self._function(node), _ATOM

    def _at_least(self, node: PrimExpr, precedence: int) -> str:
        text, own = self._render(node)
        return text if own >= precedence else f"({text})"

    def _operand(self, node: PrimExpr, other: PrimExpr, precedence: int) -> str:
        """Print an operand. A Python number is parsed in the other operand's dtype; other immediates print typed."""
        if isinstance(node, IntImm) and (isinstance(other, IntImm | FloatImm) or other.dtype != "int64"):
            return typed_literal(node)
        return self._at_least(node, precedence)

    def _pair(self, a: PrimExpr, b: PrimExpr) -> str:
        return f"{self._operand(a, b, 0)}, {self._operand(b, a, 0)}"

    def _binary(self, node: BinaryOp) -> tuple[str, int]:
        if node.op in ("min", "max"):
            return f"T.{node.op}({self._pair(node.a, node.b)})", _ATOM
        if node.op == "/" and not dt.is_float(node.a.dtype):
            return f"T.Div({self._pair(node.a, node.b)})", _ATOM
        precedence = _PRECEDENCE.get(node.op, _COMPARE)
        left = precedence + (precedence == _COMPARE)
        a, b = self._operand(node.a, node.b, left), self._operand(node.b, node.a, precedence + 1)
        return f"{a} {node.op} {b}", precedence

    def _function(self, node: PrimExpr) -> str:
        if isinstance(node, Cast):
            value = typed_literal(node.value) if isinstance(node.value, IntImm) else self.expr(node.value)
            return f"T.Cast({json.dumps(node.dtype)}, {value})"
        if isinstance(node, Select):
            return f"T.Select({self.expr(node.condition)}, {self._pair(node.true_value, node.false_value)})"
        if isinstance(node, Let):
            return self._let(node)
        if isinstance(node, Call):
            return self._call(node)
        raise TypeError(f"cannot print an expression of type {type(node).__name__}")

    def _let(self, node: Let) -> str:
        value = self.typed(node.value)
        with self.names.scope():
            name = self.names.define(node.var)
            return f"T.Let({self.expr(node.body)}, where={{{name}: {value}}})"

    def _call(self, node: Call) -> str:
        args = "".join(f", {self.typed(a)}" for a in node.args)
        if node.op == "reinterpret" and len(node.args) == 1:
            return f"T.reinterpret({json.dumps(node.dtype)}{args})"
        if node.op == STORAGE_SYNC or calls.result_dtype(node.op, tuple(a.dtype for a in node.args)) == node.dtype:
            return f"T.{node.op}({args[2:]})"
        return f"T.call_intrin({json.dumps(node.dtype)}, {json.dumps(node.op)}{args})"

    def typed(self, node: PrimExpr) -> str:
        """Print an expression such that it parses to the same dtype in any context."""
        return typed_literal(node) if isinstance(node, IntImm) else self.expr(node)


def typed_literal(node: IntImm | FloatImm) -> str:
    """``T.int32(3)``, ``T.bool(True)``, ``T.float32(0.5)``, ``T.float32("inf")``."""
    if isinstance(node, FloatImm):
        value = repr(node.value) if math.isfinite(node.value) else f'"{node.value}"'
        return f"T.{node.dtype}({value})"
    return f"T.{node.dtype}({bool(node.value) if node.dtype == 'bool' else node.value})"
