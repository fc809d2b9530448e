"""Prints any part of the IR as TVMScript, the inverse of :func:`mlc_compiler.script.parser.parse`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..ir.printable import Printable
from ..ir.recursion import deep_recursion
from ..relax.nodes import Binding, BindingBlock, Expr, Function, StructInfo
from ..tir.nodes import Buffer, BufferRegion, PrimFunc, Stmt
from .expr_printer import ExprPrinter
from .lines import Lines
from .names import Names
from .relax_printer import RelaxPrinter, StructInfoPrinter
from .tir_printer import TIRPrinter

HEADER = "# from mlc_compiler.script import I, R, T\n\n"


@dataclass(frozen=True)
class ScriptText:
    """Printed IR: the text, and the constants that it refers to as ``metadata["relax.expr.Constant"][i]``."""

    text: str
    constants: tuple[np.ndarray, ...] = ()


def script(node: Any) -> str:
    """Print a module, function, statement, expression or structure info as TVMScript. The text is deterministic."""
    return to_text(node).text


@deep_recursion
def to_text(node: Any) -> ScriptText:
    """Print to text, together with the constants that are too large to print inline."""
    constants: list[np.ndarray] = []
    if isinstance(node, IRModule):
        return ScriptText(HEADER + _module(node, constants), tuple(constants))
    if isinstance(node, PrimFunc | Function):
        out = Lines()
        _function(out, node, str(node.attrs.get("global_symbol", "main")), constants)
        return ScriptText(HEADER + str(out), tuple(constants))
    return ScriptText(_fragment(node, constants), tuple(constants))


def _module(mod: IRModule, constants: list[np.ndarray]) -> str:
    out = Lines()
    out.add("@I.ir_module")
    with out.block("class Module:"):
        if mod.attrs:
            out.add(f"I.module_attrs({RelaxPrinter(out, Names(), constants).attr(mod.attrs)})")
        for i, (name, func) in enumerate(mod.functions.items()):
            if i or mod.attrs:
                out.add("")
            _function(out, func, name, constants)
    return str(out)


def _function(out: Lines, func: Any, name: str, constants: list[np.ndarray]) -> None:
    if isinstance(func, PrimFunc):
        TIRPrinter(out, Names()).prim_func(func, name)
    else:
        RelaxPrinter(out, Names(), constants).function(func, name)


def _fragment(node: Any, constants: list[np.ndarray]) -> str:
    """Print a part of a function, for messages and debugging; variables that it does not define print by name."""
    out, names = Lines(), Names()
    if isinstance(node, PrimExpr):
        return ExprPrinter(names).expr(node)
    if isinstance(node, StructInfo):
        return StructInfoPrinter(ExprPrinter(names))(node)
    if isinstance(node, Buffer):
        return f"{names.of(node)}: T.Buffer({ExprPrinter(names).buffer_type(node)})"
    if isinstance(node, BufferRegion):
        return TIRPrinter(out, names).region(node)
    relax = RelaxPrinter(out, names, constants)
    if isinstance(node, Stmt):
        TIRPrinter(out, names).body(node)
    elif isinstance(node, Binding):
        relax.binding(node)
    elif isinstance(node, BindingBlock):
        relax.block(node)
    elif isinstance(node, Expr):
        return relax.expr(node)
    else:
        return relax.attr(node)
    return str(out)


Printable.printer = staticmethod(script)
