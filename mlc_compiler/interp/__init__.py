"""Interpreter of both levels of the IR: reference semantics, with bounds checks at every access."""

from __future__ import annotations

from .errors import InterpreterError
from .graph import run_function
from .intrinsics import register_intrinsic
from .tensor import run_prim_func

__all__ = ["InterpreterError", "register_intrinsic", "run_function", "run_prim_func"]
