"""Parser of tensor functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, Var, binary, cast, is_const
from ..tir.nodes import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    is_root,
    root_block,
)
from .arithmetic import is_python
from .scope import Macro, Scope
from .source import Source, describe
from .t_functions import DTYPES
from .tir_blocks import BlockFrame, BlockParser, plain_attrs
from .tir_printer import needs_root

Cover = Callable[[Stmt], Stmt]
"""Builds a ``LetStmt`` or ``Allocate`` from its body, the statements after the definition in its suite."""
Loop = tuple[str, PrimExpr, PrimExpr, dict[str, Any]]
"""Variable name, start, extent, keyword arguments."""

_LOOPS = {
    "T.range": SERIAL,
    "T.serial": SERIAL,
    "T.parallel": PARALLEL,
    "T.vectorized": VECTORIZED,
    "T.unroll": UNROLLED,
    "T.thread_binding": THREAD,
}
_ALLOC_BUFFER = ("T.alloc_buffer", "T.sblock_alloc_buffer")
_BLOCK = ("T.block", "T.sblock")


class TIRParser(BlockParser):
    """Parses one function. A Python statement yields a ``Stmt``, a ``Cover``, or None for a declaration."""

    def __init__(self, source: Source, scope: Scope):
        super().__init__(source, scope)
        self.params: dict[str, Buffer | Var | None] = {}
        self.attrs: dict[str, Any] = {}

    # -- functions

    def function(self, node: ast.FunctionDef, options: dict[str, Any]) -> PrimFunc:
        """Parse the definition of a function; ``options`` are the decorator's keyword arguments."""
        declare_symbols(self, node)
        for arg in node.args.args:
            self._scalar_param(arg)
        for arg in node.args.args:
            self._buffer_param(arg)
        body = self.suite(node.body)
        if options.get("root", True):
            allocs = tuple(self.block.alloc_buffers)
            if allocs or (needs_root(body, ()) and not is_root(body)):
                body = root_block(body, allocs)
        unmatched = [name for name, p in self.params.items() if p is None]
        if unmatched:
            raise self.error(node, f"parameter {unmatched[0]!r} is a T.handle without a T.match_buffer")
        if not options.get("private", False):
            self.attrs.setdefault("global_symbol", node.name)
        return PrimFunc(tuple(p for p in self.params.values() if p is not None), body, self.attrs)

    def _scalar_param(self, arg: ast.arg) -> None:
        dtype = self._dtype_of_annotation(arg.annotation)
        self.params[arg.arg] = None
        if dtype is not None and dtype != "handle":
            self.params[arg.arg] = var = self.scope.symbols.pop(arg.arg, None) or Var(arg.arg, dtype)
            self.scope.define(arg.arg, var)

    def _dtype_of_annotation(self, node: ast.expr | None) -> str | None:
        """The dtype name of ``T.int64``, ``T.int64()`` or ``T.let[T.int64]``; None for any other annotation."""
        if isinstance(node, ast.Subscript) and self.path(node.value) == "T.let":
            return self._dtype_of_annotation(node.slice)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        plain = node.func if isinstance(node, ast.Call) and not node.args else node
        path = self.path(plain) if plain is not None else None
        name = path.removeprefix("T.") if path else ""
        return name if name in DTYPES or name == "handle" else None

    def _buffer_param(self, arg: ast.arg) -> None:
        if self.params[arg.arg] is not None:
            return
        if self._dtype_of_annotation(arg.annotation) == "handle":
            return
        if arg.annotation is None:
            raise self.error(arg, f"parameter {arg.arg!r} has no type; expected T.Buffer(shape, dtype) or T.int64")
        if self.called(arg.annotation) == "T.Buffer":
            made = self.buffer_from(arg, arg.arg, *self.arguments(arg.annotation))  # type: ignore[arg-type]
        else:
            made = self.value(arg.annotation)
            if not isinstance(made, Buffer):
                raise self.error(arg.annotation, f"expected T.Buffer(shape, dtype), got {ast.unparse(arg.annotation)}")
            made = Buffer(arg.arg, made.shape, made.dtype, made.scope)
        self.params[arg.arg] = made
        self.scope.define(arg.arg, made)

    def _match_buffer(self, node: ast.Call, name: str) -> None:
        handle = node.args[0].id if node.args and isinstance(node.args[0], ast.Name) else ""
        if handle not in self.params or self.params[handle] is not None:
            raise self.error(node, "T.match_buffer takes a parameter that is a T.handle")
        args, kwargs = self.arguments(ast.Call(node.func, node.args[1:], node.keywords))
        self.params[handle] = made = self.buffer_from(node, name, args, kwargs)
        self.scope.define(name, made)

    # -- suites

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a sequence of statements; a single one is returned itself, unless a ``pass`` marks it as a sequence."""
        stmts: list[Stmt] = []
        is_list = False
        pending = list(nodes)
        while pending:
            node = pending.pop(0)
            if isinstance(node, ast.If) and (taken := self._static_branch(node)) is not None:
                pending = [*taken, *pending]
                continue
            is_list |= isinstance(node, ast.Pass)
            result = self.statement(node)
            if callable(result):
                stmts.append(result(self.suite(pending)))
                break
            if result is not None:
                stmts.append(result)
        return stmts[0] if len(stmts) == 1 and not is_list else SeqStmt(tuple(stmts))

    def _static_branch(self, node: ast.If) -> list[ast.stmt] | None:
        condition = self.value(node.test)
        if not is_python(condition):
            return None
        return node.body if condition else node.orelse

    def nested(self, nodes: list[ast.stmt], loop: bool = False) -> Stmt:
        with self.scope.nested(loop):
            return self.suite(nodes)

    def statement(self, node: ast.stmt) -> Stmt | Cover | None:
        method = getattr(self, f"_stmt_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} is not part of a tensor function")
        return method(node)

    def _stmt_Pass(self, node: ast.Pass) -> None:
        return None

    def _stmt_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise self.error(node, "a tensor function returns nothing; it writes to its output buffers")

    # -- control flow

    def _stmt_If(self, node: ast.If) -> Stmt:
        condition = self.expr(node.test)
        then_case = self.nested(node.body)
        return IfThenElse(condition, then_case, self.nested(node.orelse) if node.orelse else None)

    def _stmt_While(self, node: ast.While) -> Stmt:
        return While(self.expr(node.test), self.nested(node.body, loop=True))

    def _stmt_For(self, node: ast.For) -> Stmt:
        path = self.called(node.iter)
        targets = names_of(node.target)
        assert path is None or isinstance(node.iter, ast.Call)
        if path == "T.grid":
            loops = self._grid(node, targets)
        elif path in _LOOPS and len(targets) == 1:
            loops = [(targets[0].id, *self._range(node.iter))]  # type: ignore[arg-type]
        else:
            raise self.error(node.iter, f"expected T.grid or one of {', '.join(_LOOPS)}; got {ast.unparse(node.iter)}")
        return self._loops(node, loops, _LOOPS.get(path or "", SERIAL))

    def _grid(self, node: ast.For, targets: list[ast.Name]) -> list[Loop]:
        extents = self.arguments(node.iter)[0]  # type: ignore[arg-type]
        if len(extents) != len(targets):
            raise self.error(node, f"T.grid: got {len(targets)} names and {len(extents)} extents")
        sizes = [self.attempt(node.iter, _as_size, e) for e in extents]
        return [(t.id, IntImm(0), size, {}) for t, size in zip(targets, sizes)]

    def _range(self, node: ast.Call) -> tuple[PrimExpr, PrimExpr, dict[str, Any]]:
        """Evaluate the start, extent and keyword arguments of a loop."""
        args, kwargs = self.arguments(node)
        bounds = [self.attempt(node, _as_size, a) for a in args]
        if len(bounds) == 1:
            return IntImm(0), bounds[0], kwargs
        if len(bounds) != 2:
            raise self.error(node, f"expected an extent, or start and stop; got {len(bounds)} arguments")
        return bounds[0], binary("-", bounds[1], bounds[0]), kwargs

    def _loops(self, node: ast.For, loops: list[Loop], kind: str) -> Stmt:
        made: list[For] = []
        with self.scope.nested(loop=True):
            for name, start, extent, kwargs in loops:
                var = Var(name, extent.dtype)
                self.extents[id(var)] = extent
                self.keep.append(var)
                self.scope.define(name, var if is_const(start, 0) else binary("+", var, start))
                annotations = self.attempt(node, plain_attrs, kwargs.get("annotations") or {})
                made.append(For(var, extent, SeqStmt(()), kind, kwargs.get("thread"), annotations))
            body = self.suite(node.body)
        for loop in reversed(made):
            body = For(loop.var, loop.extent, body, kind, loop.thread, loop.annotations)
        return body

    # -- with

    def _stmt_With(self, node: ast.With) -> Stmt | None:
        item = node.items[0]
        call, path = item.context_expr, self.called(item.context_expr)
        target = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else "x"
        if len(node.items) == 1 and isinstance(call, ast.Call) and path is not None:
            if path in _BLOCK:
                return self._block(node, call)
            if path == "T.init":
                self.block.init = self.nested(node.body)
                return None
            if path == "T.LetStmt":
                return self._scoped(node, self._let_stmt(self.operand(call), target))
            if path == "T.decl_buffer":
                return self._scoped(node, self._decl_buffer(call, target))
        raise self.error(call, f"expected T.block, T.init, T.LetStmt or T.decl_buffer; got {ast.unparse(call)}")

    def _scoped(self, node: ast.With, define: Callable[[], Cover]) -> Stmt:
        with self.scope.nested():
            cover = define()
            return cover(self.suite(node.body))

    def _block(self, node: ast.With, call: ast.Call) -> Stmt:
        args = self.arguments(call)[0]
        self.blocks.append(BlockFrame(str(args[0]) if args else ""))
        body = self.nested(node.body)
        return self.attempt(node, self.blocks.pop().realize, body)

    # -- definitions and stores

    def _let_stmt(self, value_node: ast.expr, name: str, dtype: str | None = None) -> Callable[[], Cover]:
        value = self.expr(value_node, dtype)
        if dtype is not None and value.dtype != dtype:
            raise self.error(value_node, f"{name!r} is declared {dtype}; got {describe(value)}")

        def define() -> Cover:
            var = Var(name, value.dtype)
            self.scope.define(name, var)
            return lambda body: LetStmt(var, value, body)

        return define

    def _decl_buffer(self, node: ast.Call, name: str) -> Callable[[], Cover]:
        made = self.buffer_from(node, name, *self.arguments(node))

        def define() -> Cover:
            self.scope.define(name, made)
            return lambda body: Allocate(made, body)

        return define

    def _stmt_AnnAssign(self, node: ast.AnnAssign) -> Stmt | Cover | None:
        dtype = self._dtype_of_annotation(node.annotation)
        if not isinstance(node.target, ast.Name) or node.value is None or dtype is None:
            raise self.error(node, f"expected name: T.<dtype> = value; got {ast.unparse(node)}")
        return self._let_stmt(node.value, node.target.id, dtype)()

    def _stmt_Assign(self, node: ast.Assign) -> Stmt | Cover | None:
        target, path = node.targets[0], self.called(node.value)
        if isinstance(target, ast.Subscript):
            return self._store(target, node.value, None)
        names = names_of(target)
        if path is not None and path.startswith("T.axis."):
            self.axis(node.value, path, names)  # type: ignore[arg-type]
            return None
        if len(names) != 1:
            raise self.error(node, f"expected one name on the left; got {ast.unparse(target)}")
        return self._define(node, names[0].id, path)

    def _define(self, node: ast.Assign, name: str, path: str | None) -> Cover | None:
        value = node.value
        if isinstance(value, ast.Call) and path is not None:
            if is_symbol_declaration(value, path):
                return None
            declare = {"T.match_buffer": self._match_buffer, **dict.fromkeys(_ALLOC_BUFFER, self.alloc_buffer)}.get(
                path
            )
            if declare is not None:
                declare(value, name)
                return None
            if path == "T.decl_buffer":
                return self._decl_buffer(value, name)()
        return self._assign_value(node, name)

    def _assign_value(self, node: ast.Assign, name: str) -> Cover | None:
        if self.scope.is_loop_carried(name):
            hint = f'keep it in a buffer: {name} = T.alloc_buffer((1,), dtype, scope="local")'
            raise self.error(node, f"{name!r} is defined outside this loop; a scalar cannot be updated", hint)
        value = self.value(node.value)
        if isinstance(value, PrimExpr):
            return self._let_stmt(node.value, name)()
        self.scope.define(name, value)
        return None

    def _stmt_AugAssign(self, node: ast.AugAssign) -> Stmt:
        if not isinstance(node.target, ast.Subscript):
            raise self.error(node, "only buffer elements can be updated")
        return self._store(node.target, node.value, node)

    def _store(self, target: ast.Subscript, value_node: ast.expr, update: ast.AugAssign | None) -> Stmt:
        buffer = self.buffer(target.value)
        if update is not None:
            load = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
            value_node = ast.copy_location(ast.BinOp(load, update.op, value_node), update)
        indices = self.indices(target, buffer)
        if not all(isinstance(i, PrimExpr) for i in indices):
            raise self.error(target, "a store writes one element; got a slice")
        value = self.expr(value_node, buffer.dtype)
        if value.dtype != buffer.dtype:
            if dt.is_float(value.dtype) or dt.is_float(buffer.dtype):
                hint = f'write T.Cast("{buffer.dtype}", ...)'
                message = f"buffer {buffer.name!r} holds {buffer.dtype}; got {describe(value)}"
                raise self.error(value_node, message, hint)
            value = cast(buffer.dtype, value)
        return BufferStore(buffer, value, tuple(indices))

    def _stmt_Expr(self, node: ast.Expr) -> Stmt | None:
        call, path = node.value, self.called(node.value)
        if isinstance(call, ast.Constant):
            return None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            macro = self.scope.find(call.func.id)[1]
            if isinstance(macro, Macro):
                return self._expanded(call, macro)
        if isinstance(call, ast.Call) and path is not None:
            declare = self.declaration(path)
            if declare is not None:
                declare(call)
                return None
            if path == "T.func_attr":
                self.attrs.update(self.attempt(node, plain_attrs, self.value(self.operand(call))))
                return None
            if path == "T.evaluate":
                return Evaluate(self.expr(self.operand(call)))
        return Evaluate(self.expr(call))

    def _expanded(self, node: ast.Call, macro: Macro) -> Stmt:
        """Expand a call of a macro to its statements, with its parameters bound to the arguments."""
        args, kwargs = self.arguments(node)
        outer = self.source, self.scope
        given = self.attempt(node, macro.bind, args, kwargs)
        self.source, self.scope = macro.source, Scope(macro.around)
        try:
            return self.macro_body(macro, given)
        finally:
            self.source, self.scope = outer

    def macro_body(self, macro: Macro, given: Mapping[str, Any]) -> Stmt:
        """Parse the body of a macro; ``self.source`` and ``self.scope`` are those of the macro."""
        for name, value in given.items():
            self.scope.define(name, value)
        return self.suite(macro.node.body)


def names_of(target: ast.expr) -> list[ast.Name]:
    """The names in an assignment target; empty when it contains anything but names."""
    items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [n for n in items if isinstance(n, ast.Name)] if all(isinstance(n, ast.Name) for n in items) else []


def is_symbol_declaration(node: ast.expr, path: str) -> bool:
    """Whether a call declares a symbolic size: ``T.int64()``."""
    return isinstance(node, ast.Call) and path.removeprefix("T.") in DTYPES and not node.args


def declare_symbols(parser: Any, node: ast.FunctionDef) -> None:
    """Create the symbolic sizes that the body declares (``n = T.int64()``), since the signature may use them."""
    for stmt in _statements(node):
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            path = parser.called(stmt.value)
            if path and is_symbol_declaration(stmt.value, path):
                parser.scope.symbol(stmt.targets[0].id, path.removeprefix("T."))


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    """All statements of a body, including nested ones."""
    for stmt in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
        yield stmt
        yield from _statements(stmt)


def _as_size(value: Any) -> PrimExpr:
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, int) or hasattr(value, "__index__"):
        return IntImm(int(value))
    raise TypeError(f"expected an integer size, got {describe(value)}")
