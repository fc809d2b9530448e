"""Debug callbacks at run time; only functions exported with ``debug=True`` may use them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from mlc_errors import MLCError

from ..ir.expr import ExprLike
from ..relax.builder import BlockBuilder
from ..relax.nodes import Call, ExternFunc, TupleStructInfo
from ..relax.nodes import Var as GraphVar
from .tensor import Tensor, graph_value

DEBUG_PRINT = "mlc.debug_print"
"""The registered function ``(where, name, tensor)`` that ``print_`` calls; the runtime registers it."""

_allowed: ContextVar[bool] = ContextVar("debugging", default=False)


class DebugError(MLCError):
    """A debug function was called in a module that is not exported with ``debug=True``."""


@contextmanager
def debugging(allowed: bool) -> Iterator[None]:
    """Context manager that sets whether functions traced inside may call debug functions."""
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def print_(tensor: Tensor, name: str | None = None) -> None:
    """Print a tensor each time the function runs: file and line of this call, name, dtype, shape and elements.

    name: the name of the graph variable by default. Tensors are printed in the order of the calls, once per run for any
    number of threads. Raises DebugError unless the module is exported with ``debug=True``.
    """
    _call("print_", DEBUG_PRINT, [name or _name(tensor), tensor], sys._getframe(1))


def debug_func(name: str, *args: Tensor | ExprLike | str) -> None:
    """Call the function registered as ``name`` (see ``register_func``) each time the function runs.

    It is called with ``"file:line"`` of this call, then the arguments: tensors share memory with the caller and are
    valid during the call, sizes are ints. Raises DebugError unless the module is exported with ``debug=True``.
    """
    _call("debug_func", name, args, sys._getframe(1))


def _call(what: str, name: str, args: list | tuple, caller: FrameType) -> None:
    where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    if not _allowed.get():
        hint = "export(..., debug=True) and jit(..., debug=True) allow it"
        raise DebugError(f"op.{what} in a module that is not exported for debugging", where=[where], hint=hint)
    void = TupleStructInfo(())
    values = tuple(graph_value(f"op.{what}", a) for a in (where, *args))
    BlockBuilder.current().emit(Call(ExternFunc(name), values, {}, void, void), "_")


def _name(tensor: Tensor) -> str:
    return tensor.expr.name if isinstance(tensor.expr, GraphVar) else "constant"
