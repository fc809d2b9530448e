"""Evaluates Python expressions of the script language to IR nodes and Python values, without executing them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, MethodType
from typing import Any

from mlc_errors import MLCError

from ..ir.expr import Let, PrimExpr, Var
from ..ir.module import GlobalVar
from ..tir.index_map import IndexMap
from ..tir.nodes import Buffer, BufferLoad, BufferRegion
from . import arithmetic
from .arithmetic import to_expr
from .regions import index_or_range, region_from_indices
from .scope import ModuleName, Namespace, Scope
from .source import ScriptError, Source, describe
from .t_functions import FUNCTIONS

_BINARY: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_PYTHON_FUNCTIONS: dict[str, Callable[..., Any]] = {"float": float, "int": int, "len": len}


class Evaluator:
    """Evaluates expressions. Subclasses add function calls (:meth:`call`) and graph expressions."""

    def __init__(self, source: Source, scope: Scope):
        self.source, self.scope = source, scope

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> ScriptError:
        return self.source.error(node, message, hint)

    def attempt(self, node: ast.AST, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``function(*args, **kwargs)``; its errors are reraised as ScriptErrors at ``node``."""
        try:
            return function(*args, **kwargs)
        except ScriptError:
            raise
        except MLCError as error:
            raise self.error(node, error.message, error.hint) from error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise self.error(node, str(error)) from error

    # -- values by expected kind

    def value(self, node: ast.expr) -> Any:
        """The value of an expression: a Python value, an IR node, or a name of the script language."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} is not part of the script language")
        return method(node)

    def expr(self, node: ast.expr, like: str | None = None) -> PrimExpr:
        """A scalar expression; a Python number takes the dtype ``like``."""
        return self.attempt(node, to_expr, self.value(node), like)

    def exprs(self, node: ast.expr) -> tuple[PrimExpr, ...]:
        """Evaluate a tuple or list of scalars; a single scalar gives a tuple of one."""
        value = self.value(node)
        items = value if isinstance(value, tuple | list) else (value,)
        return tuple(self.attempt(node, to_expr, v) for v in items)

    def string(self, node: ast.expr) -> str:
        value = self.value(node)
        if not isinstance(value, str):
            raise self.error(node, f"expected a string, got {describe(value)}")
        return value

    def buffer(self, node: ast.expr) -> Buffer:
        value = self.value(node)
        if not isinstance(value, Buffer):
            raise self.error(node, f"expected a buffer, got {describe(value)}")
        return value

    def path(self, node: ast.expr) -> str | None:
        """The dotted name of the script language that an expression refers to (``T.axis.remap``), or None."""
        if isinstance(node, ast.Name):
            known, value = self.scope.find(node.id)
            return value.path if known and isinstance(value, Namespace) else None
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def called(self, node: ast.AST | None) -> str | None:
        """The dotted name of the callee of a call expression, or None."""
        return self.path(node.func) if isinstance(node, ast.Call) else None

    def operand(self, node: ast.Call, index: int = 0) -> ast.expr:
        """Return a positional argument of a call. Raises ScriptError when the call has fewer."""
        if index >= len(node.args):
            raise self.error(node, f"got {len(node.args)} arguments; expected {index + 1} or more")
        return node.args[index]

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values of a call's arguments."""
        positional: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                positional.extend(self._unpacked(arg))
            else:
                positional.append(self.value(arg))
        return positional, {k.arg: self.value(k.value) for k in node.keywords if k.arg}

    # -- leaves

    def _Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _Name(self, node: ast.Name) -> Any:
        known, value = self.scope.find(node.id)
        if not known:
            message = self.scope.notes.get(node.id, f"unknown name {node.id!r}")
            raise self.error(node, message, self.scope.similar(node.id))
        unusable = self.scope.around.values.get(node.id) if value is None else None
        if unusable is not None:
            raise self.error(node, f"{node.id!r} is {describe(unusable)}; expected a number, string or tuple")
        return value

    def _Attribute(self, node: ast.Attribute) -> Any:
        path = self.path(node)
        if path:
            return Namespace(path)
        base = self.value(node.value)
        if isinstance(base, ModuleName):
            return self._function_of_module(node)
        is_node = isinstance(base, Buffer | PrimExpr)
        if is_dataclass(base) and (not is_node or node.attr in ("dtype", "shape", "scope", "name")):
            return self.attempt(node, getattr, base, node.attr)
        raise self.error(node, f"{describe(base)} has no attribute {node.attr!r}")

    def _function_of_module(self, node: ast.Attribute) -> GlobalVar:
        functions = self.scope.around.functions
        if functions and node.attr not in functions:
            raise self.error(node, f"the module has no function {node.attr!r}; it has {', '.join(sorted(functions))}")
        return GlobalVar(node.attr)

    # -- containers

    def _Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _List(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _unpacked(self, node: ast.Starred) -> list[Any] | tuple[Any, ...]:
        items = self.value(node.value)
        if not isinstance(items, list | tuple):
            raise self.error(node, f"only lists and tuples can be unpacked; got {describe(items)}")
        return items

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self._unpacked(node))
            else:
                items.append(self.value(node))
        return items

    def _Dict(self, node: ast.Dict) -> dict[Any, Any]:
        if any(k is None for k in node.keys):
            raise self.error(node, "'**' is not part of the script language")
        items = [(self.value(k), self.value(v)) for k, v in zip(node.keys, node.values, strict=True) if k is not None]
        return self.attempt(node, dict, items)

    # -- operators

    def _BinOp(self, node: ast.BinOp) -> Any:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.error(node, f"operator {type(node.op).__name__} is not part of the script language")
        return self.operate(node, op, self.value(node.left), self.value(node.right))

    def operate(self, node: ast.AST, op: str, a: Any, b: Any) -> Any:
        """Apply a binary operator to two values."""
        return self.attempt(node, arithmetic.binary, op, a, b)

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.value(node.values[0])
        for item in node.values[1:]:
            result = self.operate(node, op, result, self.value(item))
        return result

    def _Compare(self, node: ast.Compare) -> Any:
        operands = [self.value(n) for n in (node.left, *node.comparators)]
        result: Any = None
        for i, op in enumerate(node.ops):
            if type(op) not in _COMPARE:
                raise self.error(node, f"operator {type(op).__name__} is not part of the script language")
            term = self.operate(node, _COMPARE[type(op)], operands[i], operands[i + 1])
            result = term if i == 0 else self.operate(node, "and", result, term)
        return result

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return self.attempt(node, arithmetic.negate, value)
        if isinstance(node.op, ast.Not):
            return self.attempt(node, arithmetic.logical_not, value)
        if isinstance(node.op, ast.UAdd):
            return value
        return self.operate(node, "^", value, -1)

    def _IfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if arithmetic.is_python(condition):
            return self.value(node.body if condition else node.orelse)
        both = self.value(node.body), self.value(node.orelse)
        return self.attempt(node, FUNCTIONS["if_then_else"], condition, *both)

    # -- subscripts

    def _Subscript(self, node: ast.Subscript) -> Any:
        base = self.value(node.value)
        if isinstance(base, Buffer):
            return self.access(node, base)
        if isinstance(base, Namespace):
            return self.subscript_of_name(node, base)
        return self.item(node, base)

    def item(self, node: ast.Subscript, base: Any) -> Any:
        """An item of a Python value."""
        if isinstance(base, PrimExpr):
            raise self.error(node, f"{describe(base)} cannot be indexed")
        index = self.value(node.slice)
        return self.attempt(node, lambda: base[index])

    def subscript_of_name(self, node: ast.Subscript, base: Namespace) -> Any:
        """Evaluate ``T.Buffer[(4, 4), "float32"]`` and other names that take square brackets."""
        raise self.error(node, f"{base.path} cannot be indexed")

    def access(self, node: ast.Subscript, buffer: Buffer) -> BufferLoad | BufferRegion:
        """Evaluate ``A[i, j]``; a region where an index is a slice."""
        items = self.indices(node, buffer)
        if all(isinstance(i, PrimExpr) for i in items):
            return BufferLoad(buffer, tuple(items))
        return region_from_indices(buffer, items)

    def indices(self, node: ast.Subscript, buffer: Buffer) -> list[Any]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        items: list[Any] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                bounds = [self.expr(b) if b else None for b in (part.lower, part.upper)]
                size = buffer.shape[len(items)] if len(items) < len(buffer.shape) else None
                items.append(self.attempt(part, index_or_range, *bounds, size))
            else:
                value = self.value(part.value if isinstance(part, ast.Starred) else part)
                many = value if isinstance(value, tuple | list) else (value,)
                items.extend(self.attempt(part, to_expr, v) for v in many)
        if len(items) != len(buffer.shape):
            raise self.error(node, f"buffer {buffer.name!r} has {len(buffer.shape)} axes; got {len(items)} indices")
        return items

    # -- calls

    def _Call(self, node: ast.Call) -> Any:
        path = self.path(node.func)
        if path == "T.Let":
            return self._let(node)
        if path == "T.index_map":
            return self.attempt(node, IndexMap.parse, ast.unparse(self.operand(node)))
        if path is not None:
            return self.call(node, path)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
            base = self.value(node.func.value)
            if not isinstance(base, ModuleName):
                return self.attempt(node, arithmetic.convert, self.string(self.operand(node)), base)
        return self.call_value(node, self.value(node.func))

    def call(self, node: ast.Call, path: str) -> Any:
        """Evaluate a call of a function of the script language."""
        function = FUNCTIONS.get(path.removeprefix("T.")) if path.startswith("T.") else _PYTHON_FUNCTIONS.get(path)
        if function is None:
            raise self.error(node.func, f"unknown function {path}")
        args, kwargs = self.arguments(node)
        return self.attempt(node, function, *args, **kwargs)

    def call_value(self, node: ast.Call, function: Any) -> Any:
        """Call a Python function of the surrounding code, which takes and returns expressions."""
        if isinstance(function, FunctionType | MethodType):
            args, kwargs = self.arguments(node)
            return self.attempt(node, function, *args, **kwargs)
        raise self.error(node.func, f"{describe(function)} cannot be called")

    def _let(self, node: ast.Call) -> PrimExpr:
        """Evaluate ``T.Let(body, where={x: value})``."""
        where = next((k.value for k in node.keywords if k.arg == "where"), None)
        named = isinstance(where, ast.Dict) and all(isinstance(k, ast.Name) for k in where.keys)
        if len(node.args) != 1 or not isinstance(where, ast.Dict) or not named:
            raise self.error(node, "expected T.Let(body, where={name: value})")
        bound: list[tuple[Var, PrimExpr]] = []
        with self.scope.nested():
            for key, value_node in zip(where.keys, where.values, strict=True):
                assert isinstance(key, ast.Name)
                value = self.expr(value_node)
                bound.append((Var(key.id, value.dtype), value))
                self.scope.define(key.id, bound[-1][0])
            body = self.expr(self.operand(node))
        for var, value in reversed(bound):
            body = Let(var, value, body)
        return body
