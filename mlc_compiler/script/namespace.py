"""``I``, ``T`` and ``R``: the names imported by TVMScript that is part of a Python file.

    @T.prim_func
    def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] * scale          # scale: a Python number of the surrounding code

``T.prim_func``, ``R.function`` and ``I.ir_module`` parse the source of the decorated definition and return the
PrimFunc, Function or IRModule. All other names are placeholders, so that Python can evaluate annotations.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import CellType, FrameType, FunctionType
from typing import Any

from mlc_errors import MLCError

from ..ir.module import IRModule
from ..ir.recursion import deep_recursion
from ..relax.nodes import Function
from ..tir.nodes import PrimFunc
from .parser import ScriptParser, surroundings
from .scope import Macro, Namespace, Surroundings
from .source import Source


class Placeholder:
    """Placeholder for a name of the script language in code that Python evaluates; calls and indexing return it."""

    def __init__(self, path: str):
        self._path = path

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Placeholder:
        return self

    def __getitem__(self, index: Any) -> Placeholder:
        return self

    def __repr__(self) -> str:
        return self._path


class _TensorNamespace(Placeholder):
    """``T``: the names of tensor functions. ``@T.prim_func`` parses a Python definition to a PrimFunc."""

    def prim_func(
        self,
        func: FunctionType | None = None,
        *,
        private: bool = False,
        root: bool = True,
        s_tir: bool = True,
        check_well_formed: bool = True,
    ) -> Any:
        """Decorator: parse a Python definition to a PrimFunc. ``private``: omit ``global_symbol``.

        ``root=False``: do not wrap the body in a root block. The other options are accepted for compatibility with
        Apache TVM and ignored.
        """
        return _decorate(func, sys._getframe(1))

    def macro(self, func: FunctionType) -> Macro:
        """Decorator: define a macro, whose statements are inlined into tensor functions at calls of ``func``.

        Names are resolved where the macro is defined; globals may be defined after it. Arguments are expressions,
        buffers or Python values.
        """
        source = _source(func)
        node = source.parse().body[0]
        assert isinstance(node, ast.FunctionDef)
        around = _around(_values(sys._getframe(1), func))
        return Macro(node, source, replace(around, values=ChainMap(dict(around.values), func.__globals__)))


class _GraphNamespace(Placeholder):
    """``R``: the names of graph functions. ``@R.function`` parses a Python definition to a Function."""

    def function(
        self,
        func: FunctionType | None = None,
        *,
        private: bool = False,
        pure: bool = True,
        check_well_formed: bool = True,
    ) -> Any:
        """Decorator: parse a Python definition to a graph Function. ``pure=False``: it may have side effects."""
        return _decorate(func, sys._getframe(1))


class _ModuleNamespace(Placeholder):
    """``I``: the names of modules. ``@I.ir_module`` parses a class, whose methods are functions, to an IRModule."""

    def ir_module(self, cls: type | None = None, *, check_well_formed: bool = True) -> Any:
        """Decorator: parse a class, whose methods are tensor and graph functions, to an IRModule."""
        frame = sys._getframe(1)
        return _module(cls, frame) if cls is not None else lambda c: _module(c, frame)


def _decorate(func: FunctionType | None, frame: FrameType) -> Any:
    read: Callable[[FunctionType], Any] = lambda f: f if _is_in_class(f) else _function(f, frame)  # noqa: E731
    return read(func) if func is not None else read


def _is_in_class(func: FunctionType) -> bool:
    """Whether a function is defined in a class body; ``I.ir_module`` parses it with the class."""
    outer = func.__qualname__.rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")


def _source(func: FunctionType) -> Source:
    try:
        lines, first = inspect.getsourcelines(func)
        name = inspect.getsourcefile(func) or "<script>"
    except (OSError, TypeError) as error:
        raise _no_source(func.__name__, str(error)) from error
    return Source.dedented("".join(lines), name, first)


def _class_source(name: str, frame: FrameType) -> Source:
    """The source of a class that is decorated at the frame's line, in a file or a notebook cell."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    lines = linecache.getlines(file, frame.f_globals)
    try:
        classes = [n for n in ast.walk(ast.parse("".join(lines))) if isinstance(n, ast.ClassDef) and n.name == name]
    except SyntaxError as error:
        raise _no_source(name, str(error)) from error
    for node in classes:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if first <= line <= (node.end_lineno or line):
            return Source.dedented("".join(lines[first - 1 : node.end_lineno]), file, first)
    raise _no_source(name, "source code not available")


def _no_source(name: str, reason: str) -> MLCError:
    hint = "put it in a file, or give the text to mlc_compiler.parse"
    return MLCError(f"cannot read the source of {name!r}: {reason}", hint=hint)


def _values(frame: FrameType, *functions: FunctionType) -> Mapping[str, Any]:
    """The Python variables visible in the source: globals, locals, and closures of ``functions``."""
    values: dict[str, Any] = {**frame.f_globals, **frame.f_locals}
    for function in functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if cell != CellType():  # not assigned yet, such as the class that is being defined
                values.setdefault(name, cell.cell_contents)
    return values


def _around(values: Mapping[str, Any]) -> Surroundings:
    around = surroundings([], values)
    aliases = {name: Namespace(v._path) for name, v in values.items() if isinstance(v, Placeholder)}
    return replace(around, namespaces={**around.namespaces, **aliases})


@deep_recursion
def _function(func: FunctionType, frame: FrameType) -> PrimFunc | Function:
    source = _source(func)
    node = source.parse().body[0]
    assert isinstance(node, ast.FunctionDef)
    return ScriptParser(source).function(node, _around(_values(frame, func)))


@deep_recursion
def _module(cls: type, frame: FrameType) -> IRModule:
    source = _class_source(cls.__name__, frame)
    node = source.parse().body[0]
    assert isinstance(node, ast.ClassDef)
    functions = [f for f in vars(cls).values() if isinstance(f, FunctionType)]
    return ScriptParser(source).module(node, _around(_values(frame, *functions)))


I = _ModuleNamespace("I")  # noqa: E741
T = _TensorNamespace("T")
R = _GraphNamespace("R")
