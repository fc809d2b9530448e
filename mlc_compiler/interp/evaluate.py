"""Evaluation of symbolic sizes, and matching of symbolic shapes with arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import IntImm, PrimExpr, Var
from ..ir.visitor import free_vars
from .errors import InterpreterError
from .expressions import ExprTranslator


def evaluate(expr: PrimExpr, env: Mapping[int, Any]) -> Any:
    """Evaluate an expression; ``env``: the values of variables by ``id``."""
    if isinstance(expr, IntImm):
        return bool(expr.value) if expr.dtype == "bool" else expr.value
    if isinstance(expr, Var):
        return lookup(expr, env)
    translator = ExprTranslator()
    values = {translator.name(v): lookup(v, env) for v in free_vars(expr)}
    source = translator.value(expr)
    return eval(compile(source, "<interpreted size>", "eval"), {**translator.globals, **values})


def lookup(var: Var, env: Mapping[int, Any]) -> Any:
    if id(var) not in env:
        raise InterpreterError(f"the symbolic size {var.name!r} has no value here")
    return env[id(var)]


def match_shape(shape: Sequence[PrimExpr], actual: Sequence[int], env: dict[int, Any], what: str) -> None:
    """Bind the symbolic sizes that are dimensions of ``shape`` and not yet in ``env``, and check all others.

    Raises InterpreterError when the rank or a size differs.
    """
    if len(shape) != len(actual):
        raise InterpreterError(f"{what}: got rank {len(actual)}; expected {len(shape)}")
    for dim, size in zip(shape, actual):
        if isinstance(dim, Var):
            env.setdefault(id(dim), size)
    for axis, (dim, size) in enumerate(zip(shape, actual)):
        if all(id(v) in env for v in free_vars(dim)) and evaluate(dim, env) != size:
            expected = f"{dim.name} = {env[id(dim)]}" if isinstance(dim, Var) else str(evaluate(dim, env))
            raise InterpreterError(f"{what}: got size {size} on axis {axis}; expected {expected}")
