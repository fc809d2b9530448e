"""Symbolic sizes: solve them from the shapes of inputs, evaluate them for the shapes of outputs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

from mlc_errors import MLCError

MAX_EXPRESSION = 1000

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "int64": int,
    "int32": int,
}


def evaluate(size: int | str, values: Mapping[str, int]) -> int:
    """Evaluate a size expression: integers, names in `values`, ``+ - * // %``, ``min``, ``max``, ``T.int64(…)``.

    Raises KeyError for a name without a value, MLCError for any other expression.
    """
    if isinstance(size, int):
        return size
    if size.isidentifier():
        return values[size]
    if len(size) > MAX_EXPRESSION:
        raise MLCError(f"size expression has {len(size)} characters; expected at most {MAX_EXPRESSION}")
    try:
        return _value(ast.parse(size, mode="eval").body, values)
    except (SyntaxError, ZeroDivisionError, RecursionError, TypeError) as e:
        raise MLCError(f"cannot evaluate the size {size!r}: {e}") from None


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in _CALLS:
            return _CALLS[name](*(_value(a, values) for a in args))
    raise SyntaxError(f"{ast.unparse(node)!r} is not allowed here")


def solve(
    shapes: Sequence[tuple[int | str, ...]], actual: Sequence[tuple[int, ...]], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Solve for the symbolic sizes: each takes the actual size of the first dimension that is the bare name.

    known: values that are given.
    """
    values: dict[str, int] = dict(known or {})
    for expected, got in zip(shapes, actual, strict=True):
        for size, number in zip(expected, got, strict=False):
            if isinstance(size, str) and size.isidentifier():
                values.setdefault(size, number)
    return values


def matches(shape: tuple[int | str, ...], actual: tuple[int, ...], values: Mapping[str, int]) -> bool:
    """Whether `actual` equals `shape` evaluated with `values`; a size with an unknown name never matches."""
    try:
        return len(shape) == len(actual) and all(
            evaluate(size, values) == got for size, got in zip(shape, actual, strict=True)
        )
    except KeyError:
        return False
