"""Parser from TVMScript text to IR. The text is read through Python's ``ast`` and never executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ir.module import IRModule
from ..ir.recursion import deep_recursion
from ..relax.nodes import StructInfo
from ..tir.nodes import Stmt
from .evaluate import Evaluator
from .relax_parser import RelaxParser
from .scope import NAMESPACES, Macro, Namespace, Scope, Surroundings, import_aliases
from .source import Source
from .tir_parser import TIRParser

_LEVELS = {"prim_func": "tir", "function": "relax"}


@dataclass
class ScriptParser:
    """Parses the definitions of one source."""

    source: Source
    constants: Sequence[np.ndarray] = ()

    def module(self, node: ast.ClassDef, around: Surroundings) -> IRModule:
        """Parse a class to a module."""
        definitions = [s for s in node.body if isinstance(s, ast.FunctionDef)]
        self._once(definitions)
        names = frozenset(d.name for d in definitions)
        around = replace(
            around,
            functions=names,
            module_names=frozenset({"cls", node.name}),
            type_vars=around.type_vars | _type_vars(node.body),
        )
        functions = self._functions(definitions, around)
        return IRModule(functions, self._module_attrs(node, around))

    def _once(self, definitions: Sequence[ast.FunctionDef]) -> None:
        seen: set[str] = set()
        for definition in definitions:
            if definition.name in seen:
                raise self.source.error(definition, f"the module defines {definition.name!r} twice")
            seen.add(definition.name)

    def _functions(self, definitions: Sequence[ast.FunctionDef], around: Surroundings) -> dict[str, Any]:
        functions: dict[str, Any] = {}
        results: dict[str, StructInfo | None] = {}
        for definition in definitions:
            func = self.function(definition, around, results)
            functions[definition.name] = func
            results[definition.name] = getattr(func, "ret_info", None)
        return functions

    def _module_attrs(self, node: ast.ClassDef, around: Surroundings) -> dict[str, Any]:
        evaluator = Evaluator(self.source, Scope(around))
        attrs: dict[str, Any] = {}
        for stmt in node.body:
            call = stmt.value if isinstance(stmt, ast.Expr) else None
            if isinstance(call, ast.Call) and evaluator.called(call) == "I.module_attrs":
                attrs.update(evaluator.value(evaluator.operand(call)))
        return attrs

    def function(
        self, node: ast.FunctionDef, around: Surroundings, results: Mapping[str, StructInfo | None] | None = None
    ) -> Any:
        """Parse a definition to a tensor function or a graph function."""
        try:
            return self._function(node, around, results or {})
        except RecursionError as error:
            raise self.source.error(node, f"{node.name!r} nests too deeply") from error

    def _function(self, node: ast.FunctionDef, around: Surroundings, results: Mapping[str, StructInfo | None]) -> Any:
        level, options = self._decorator(node, around)
        scope = Scope(around)
        if level == "tir":
            return TIRParser(self.source, scope).function(node, options)
        return RelaxParser(self.source, scope, self.constants, results).function(node, options)

    def _decorator(self, node: ast.FunctionDef, around: Surroundings) -> tuple[str, dict[str, Any]]:
        for decorator in node.decorator_list:
            plain = decorator.func if isinstance(decorator, ast.Call) else decorator
            level = _LEVELS.get(_last_name(plain))
            if level:
                keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
                evaluator = Evaluator(self.source, Scope(around))
                return level, {k.arg: evaluator.value(k.value) for k in keywords if k.arg}
        raise self.source.error(node, f"{node.name!r} is neither decorated with @T.prim_func nor with @R.function")


@deep_recursion
def parse(text: str, constants: Sequence[np.ndarray] = (), name: str = "<script>") -> Any:
    """Parse ``@I.ir_module`` text to an IRModule, or a text that defines one function to that function.

    The text may be indented as a whole. ``constants``: the arrays that ``metadata["relax.expr.Constant"][i]`` refers
    to. ``name`` is shown in errors. Raises ScriptError with the line and column of the error.
    """
    source = Source.dedented(text, name)
    tree = source.parse()
    around = surroundings(tree.body)
    parser = ScriptParser(source, constants)
    classes = [s for s in tree.body if isinstance(s, ast.ClassDef)]
    if len(classes) == 1:
        return parser.module(classes[0], around)
    functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    if classes or len(functions) != 1:
        found = f"{len(classes)} classes and {len(functions)} functions"
        raise source.error(tree, f"got {found}; expected one @I.ir_module class or one function")
    return parser.function(functions[0], around)


@deep_recursion
def expand(macro: Macro, *args: Any, **kwargs: Any) -> Stmt:
    """Expand a macro (``@T.macro``) to its statements, with its parameters bound to the arguments.

    Arguments are expressions, buffers, Python values, or dataclasses: whose attributes and methods can be used in
    the macro. Raises ScriptError with the line and column of the macro's text.
    """
    return TIRParser(macro.source, Scope(macro.around)).macro_body(macro, macro.bind(args, kwargs))


def surroundings(stmts: Sequence[ast.stmt], values: Mapping[str, Any] | None = None) -> Surroundings:
    """The names that imports and free symbolic sizes at module level define; ``values``: Python variables in scope."""
    namespaces: dict[str, Namespace] = dict(NAMESPACES)
    for stmt in stmts:
        namespaces.update(import_aliases(stmt))
    return Surroundings(namespaces, _type_vars(stmts), frozenset(), frozenset({"cls", "Module"}), values or {})


def _type_vars(stmts: Sequence[ast.stmt]) -> frozenset[str]:
    """Names assigned as ``n = TypeVar("n")`` or, outside functions, ``n = T.int64()``."""
    names = set()
    for stmt in stmts:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call) and isinstance(stmt.targets[0], ast.Name):
            if _last_name(stmt.value.func) in ("TypeVar", "int64"):
                names.add(stmt.targets[0].id)
    return frozenset(names)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
