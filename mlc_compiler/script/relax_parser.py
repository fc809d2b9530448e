"""Parser of graph functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.module import GlobalVar
from ..ir.visitor import free_vars
from ..relax.builder import with_visible_result
from ..relax.nodes import Binding, BindingBlock, Call, Expr, Function, StructInfo, Var
from .r_calls import GraphEvaluator, derive
from .scope import ModuleName, Scope
from .source import Source
from .tir_blocks import plain_attrs
from .tir_parser import declare_symbols, is_symbol_declaration


class RelaxParser(GraphEvaluator):
    """Parses the bindings of one function, block by block."""

    def __init__(
        self, source: Source, scope: Scope, constants: Sequence[np.ndarray], results: Mapping[str, StructInfo | None]
    ):
        super().__init__(source, scope, constants)
        self.results = results
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.in_dataflow = False
        self.inner: dict[str, Var] = {}
        self.attrs: dict[str, Any] = {}

    def function(self, node: ast.FunctionDef, options: dict[str, Any]) -> Function:
        """Parse the definition of a function; ``options`` are the decorator's keyword arguments."""
        declare_symbols(self, node)
        params = tuple(self._param(arg) for arg in node.args.args)
        ret_info = self.annotation(node.returns) if node.returns is not None else None
        *body, last = node.body
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.error(last, f"graph function {node.name!r} must end with return")
        for stmt in body:
            self._statement(stmt)
        self._define_returned(last.value)
        ret = self.graph(last, self.value(last.value))
        self._flush()
        blocks, ret = with_visible_result(tuple(self.blocks), ret)
        if not options.get("private", False):
            self.attrs.setdefault("global_symbol", node.name)
        pure = bool(options.get("pure", True))
        return Function(params, blocks, ret, ret_info or ret.struct_info, self.attrs, pure)

    def _define_returned(self, value: ast.expr) -> None:
        """Define the variables of dataflow blocks that the function returns unchanged."""
        for name in value.elts if isinstance(value, ast.Tuple | ast.List) else [value]:
            if isinstance(name, ast.Name) and name.id in self.inner and not self.scope.find(name.id)[0]:
                self.scope.define(name.id, self.inner[name.id])

    def _param(self, arg: ast.arg) -> Var:
        if arg.annotation is None:
            raise self.error(arg, f"parameter {arg.arg!r} has no structure info")
        var = Var(arg.arg, self.annotation(arg.annotation))
        self.scope.define(arg.arg, var)
        return var

    # -- blocks and bindings

    def _flush(self) -> None:
        if self.bindings:
            self.blocks.append(BindingBlock(tuple(self.bindings)))
            self.bindings = []

    def emit(self, node: ast.AST, value: Call) -> Expr:
        return self._bind(node, "lv", value, None, output=False)

    def _bind(self, node: ast.AST, name: str, value: Expr, info: StructInfo | None, output: bool) -> Var:
        if info is None:
            value = self._derived(node, value)
            info = value.struct_info
        elif isinstance(value, Call):
            value = replace(value, struct_info=info)
        if info is None and not name.startswith("_"):
            raise self.error(node, f"the structure info of {name!r} does not follow from its value; annotate it")
        var = Var(name, info, self.in_dataflow and not output)
        self.bindings.append(Binding(var, value))
        return var

    def _derived(self, node: ast.AST, value: Expr) -> Expr:
        if isinstance(value, Call) and isinstance(value.target, GlobalVar) and value.struct_info is None:
            info = self.results.get(value.target.name)
            return replace(value, struct_info=None if info is None or free_vars(info) else info)
        return self.attempt(node, derive, value)

    def _statement(self, node: ast.stmt, output: bool = False) -> None:
        if isinstance(node, ast.With):
            self._dataflow(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self._assign(node, node.target.id, node.value, self.annotation(node.annotation), output)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._assign(node, node.targets[0].id, node.value, None, output)
        elif isinstance(node, ast.Expr):
            self._effect(node)
        elif not isinstance(node, ast.Pass):
            raise self.error(node, f"{type(node).__name__} is not part of a graph function")

    def _dataflow(self, node: ast.With) -> None:
        if self.called(node.items[0].context_expr) != "R.dataflow":
            raise self.error(node.items[0].context_expr, "expected R.dataflow()")
        self._flush()
        outputs = self._outputs(node)
        self.in_dataflow = True
        with self.scope.nested():
            for stmt in node.body:
                self._statement(stmt, output=id(stmt) in outputs)
        self.in_dataflow = False
        self.blocks.append(BindingBlock(tuple(self.bindings), dataflow=True))
        for var in (b.var for b in self.bindings):
            if var.dataflow:
                self.inner[var.name] = var
                self.scope.notes[var.name] = (
                    f"{var.name!r} is visible only inside its dataflow block; add it to R.output"
                )
            else:
                self.scope.define(var.name, var)
        self.bindings = []

    def _outputs(self, node: ast.With) -> set[int]:
        """The ``id`` of each statement that binds a name of ``R.output``: the last one that assigns the name."""
        names: set[str] = set()
        for stmt in node.body:
            if isinstance(stmt, ast.Expr) and self.called(stmt.value) == "R.output":
                names |= {ast.unparse(a) for a in stmt.value.args}  # type: ignore[attr-defined]
        last = {_target(stmt): id(stmt) for stmt in node.body if _target(stmt) in names}
        missing = sorted(names - set(last))
        if missing:
            raise self.error(node, f"R.output({missing[0]}): no binding of this dataflow block has that name")
        return set(last.values())

    def _assign(self, node: ast.stmt, name: str, value: ast.expr, info: StructInfo | None, output: bool) -> None:
        path = self.called(value)
        if isinstance(value, ast.Call) and path is not None:
            if is_symbol_declaration(value, path):
                return
            if path == "R.match_cast":
                return self._match_cast(name, value, output)
        result = self.value(value)
        if isinstance(result, ModuleName):
            self.scope.define(name, result)
            return
        expr = result if isinstance(result, Call) else self.graph(value, result)
        self.scope.define(name, self._bind(node, name, expr, info, output))

    def _match_cast(self, name: str, node: ast.Call, output: bool) -> None:
        if len(node.args) != 2:
            raise self.error(node, "expected R.match_cast(value, structure info)")
        value = self.graph(node, self.value(self.operand(node)))
        var = Var(name, self.annotation(self.operand(node, 1)), self.in_dataflow and not output)
        self.bindings.append(Binding(var, value, matched=True))
        self.scope.define(name, var)

    def _effect(self, node: ast.Expr) -> None:
        call, path = node.value, self.called(node.value)
        if isinstance(call, ast.Constant) or path == "R.output":
            return
        if path == "R.func_attr" and isinstance(call, ast.Call):
            self.attrs.update(self.attempt(node, plain_attrs, self.value(self.operand(call))))
            return
        value = self.value(call)
        if not isinstance(value, Call):
            raise self.error(node, "a statement must bind a value or call a function")
        self._bind(node, "_", value, None, output=False)


def _target(stmt: ast.stmt) -> str | None:
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else getattr(stmt, "target", None)
    return target.id if isinstance(target, ast.Name) else None
