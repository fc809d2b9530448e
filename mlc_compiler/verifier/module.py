"""Verification of modules and functions."""

from __future__ import annotations

from typing import Any

from mlc_errors import MLCError

from ..ir.module import IRModule
from ..ir.recursion import deep_recursion
from ..ir.visitor import depth
from ..relax.nodes import Function
from ..script.names import identifier
from ..tir.nodes import PrimFunc
from .accesses import verify_accesses
from .attributes import wrong_attribute
from .errors import VerifyError
from .relax import verify_function
from .tir import verify_prim_func

MAX_DEPTH = 1000
"""Maximum depth of a function's tree. Visitors make a few nested calls per level; see ``ir/recursion.py``."""


@deep_recursion
def verify(node: Any) -> None:
    """Verify a module or a single function.

    Raises VerifyError, which names the function and the statement or binding, when it is not well formed; MLCError for
    an object of another type.
    """
    if isinstance(node, PrimFunc | Function):
        _function(node, str(node.attrs.get("global_symbol", "main")), IRModule())
    elif isinstance(node, IRModule):
        _module(node)
    else:
        raise MLCError(f"verify: got a {type(node).__name__}; expected an IRModule, PrimFunc or Function")


def _module(mod: IRModule) -> None:
    for name, func in mod.functions.items():
        if identifier(name) != name:
            raise VerifyError(f"{name!r} is not a valid function name", name)
        if not isinstance(func, PrimFunc | Function):
            raise VerifyError(f"{name!r} is a {type(func).__name__}; expected a PrimFunc or Function", name)
        _function(func, name, mod)


def _function(func: PrimFunc | Function, name: str, mod: IRModule) -> None:
    if depth(func) > MAX_DEPTH:
        raise VerifyError(f"statements or expressions nest too deeply: more than {MAX_DEPTH} levels", name)
    wrong = wrong_attribute(func)
    if wrong is not None:
        raise VerifyError(wrong, name)
    if isinstance(func, PrimFunc):
        verify_prim_func(func, name)
        verify_accesses(func, name)
    else:
        verify_function(func, name, mod)
