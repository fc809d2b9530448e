"""Printer of tensor functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..ir.expr import IntImm, Let, PrimExpr, Var, is_const
from ..ir.simplify import key
from ..ir.visitor import free_vars, walk
from ..tir.nodes import (
    SERIAL,
    Allocate,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    While,
    is_root,
)
from .expr_printer import ExprPrinter
from .lines import Lines
from .names import Names


def needs_root(body: Stmt, alloc_buffers: Sequence[Buffer]) -> bool:
    """Whether the parser wraps a function body in a root block: it has blocks or block-level buffers."""
    return bool(alloc_buffers) or any(isinstance(n, BlockRealize) for n in walk(body))


def has_implicit_root(func: PrimFunc) -> bool:
    """Whether the root block is the one that the parser would add; then only a comment is printed for it."""
    if not is_root(func.body):
        return False
    block, predicate = func.body.block, func.body.predicate  # type: ignore[attr-defined]
    plain = not (block.iter_vars or block.reads or block.writes or block.init or block.annotations)
    return plain and is_const(predicate, 1) and needs_root(block.body, block.alloc_buffers)


def bound_vars(node: Any) -> set[int]:
    """The ``id`` of each variable that a loop, block or let inside ``node`` binds."""
    return {id(n.var) for n in walk(node) if isinstance(n, For | IterVar | LetStmt | Let)}


class TIRPrinter:
    """Prints statements; a name is valid until the end of the suite that defines it."""

    def __init__(self, out: Lines, names: Names):
        self.out, self.names = out, names
        self.e = ExprPrinter(names)
        self._extents: dict[int, PrimExpr] = {}

    # -- functions

    def prim_func(self, func: PrimFunc, name: str) -> None:
        with self.names.scope():
            self._declare(func)
            self.out.add(_decorator(func))
            with self.out.block(f"def {name}({', '.join(self._param(p) for p in func.params)}):"):
                self._prologue(func, name)
                if has_implicit_root(func):
                    self.out.add('# with T.block("root"):')
                    self._alloc_buffers(func.body.block.alloc_buffers)  # type: ignore[attr-defined]
                    self.body(func.body.block.body)  # type: ignore[attr-defined]
                else:
                    self.body(func.body)

    def _declare(self, func: PrimFunc) -> None:
        params = {id(p) for p in func.params}
        for p in func.params:
            self.names.define(p)
        inner = bound_vars(func.body)
        shapes = [b.shape for b in func.buffers]
        free = free_vars([shapes, func.body], keep=lambda v: id(v) not in inner and id(v) not in params)
        self._symbols = [(v, self.names.define(v)) for v in free]
        self._matched = [b for b in func.buffers if free_vars(b.shape)]
        self._handles = {id(b): self.names.fresh(f"var_{self.names.of(b)}") for b in self._matched}

    def _param(self, param: Buffer | Var) -> str:
        if id(param) in self._handles:
            return f"{self._handles[id(param)]}: T.handle"
        if isinstance(param, Buffer):
            return f"{self.names.of(param)}: T.Buffer({self.e.buffer_type(param)})"
        return f"{self.names.of(param)}: T.{param.dtype}"

    def _prologue(self, func: PrimFunc, name: str) -> None:
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol" or v != name}
        if attrs:
            self.out.add(f"T.func_attr({self.e.attr(attrs)})")
        for var, symbol in self._symbols:
            self.out.add(f"{symbol} = T.{var.dtype}()")
        for buffer in self._matched:
            handle = self._handles[id(buffer)]
            self.out.add(f"{self.names.of(buffer)} = T.match_buffer({handle}, {self.e.buffer_type(buffer)})")

    # -- statement lists

    def body(self, stmt: Stmt) -> None:
        """Print the statements of a suite in a new scope."""
        with self.names.scope():
            self._suite(stmt)

    def _suite(self, stmt: Stmt) -> None:
        if not isinstance(stmt, SeqStmt):
            self._last(stmt)
            return
        several = len(stmt.stmts) > 1
        for s in stmt.stmts[: -1 if several else None]:
            self.stmt(s)
        if several:
            self._last(stmt.stmts[-1])
        else:
            self.out.add("pass")  # marks a sequence of one statement; the only text of an empty one

    def _last(self, stmt: Stmt) -> None:
        """Print the last statement of a suite. The body of a definition is the rest of the suite, not indented."""
        if isinstance(stmt, LetStmt):
            value = self.e.typed(stmt.value)
            self.out.add(f"{self.names.define(stmt.var)}: T.{stmt.var.dtype} = {value}")
            self._suite(stmt.body)
        elif isinstance(stmt, Allocate):
            declaration = f"T.decl_buffer({self.e.buffer_type(stmt.buffer)})"
            self.out.add(f"{self.names.define(stmt.buffer)} = {declaration}")
            self._suite(stmt.body)
        else:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        getattr(self, f"_{type(stmt).__name__}")(stmt)

    # -- statements

    def _SeqStmt(self, stmt: SeqStmt) -> None:
        for s in stmt.stmts:
            self.stmt(s)

    def _LetStmt(self, stmt: LetStmt) -> None:
        value = self.e.typed(stmt.value)
        with self.names.scope():
            name = self.names.define(stmt.var)
            with self.out.block(f"with T.LetStmt({value}) as {name}:"):
                self._suite(stmt.body)

    def _Allocate(self, stmt: Allocate) -> None:
        declaration = f"T.decl_buffer({self.e.buffer_type(stmt.buffer)})"
        with self.names.scope():
            name = self.names.define(stmt.buffer)
            with self.out.block(f"with {declaration} as {name}:"):
                self._suite(stmt.body)

    def _BufferStore(self, stmt: BufferStore) -> None:
        target = f"{self.names.of(stmt.buffer)}[{self.e.indices(stmt.indices)}]"
        plain = stmt.value.dtype == stmt.buffer.dtype
        self.out.add(f"{target} = {self.e.expr(stmt.value) if plain else self.e.typed(stmt.value)}")

    def _Evaluate(self, stmt: Evaluate) -> None:
        self.out.add(f"T.evaluate({self.e.expr(stmt.value)})")

    def _IfThenElse(self, stmt: IfThenElse, word: str = "if") -> None:
        with self.out.block(f"{word} {self.e.expr(stmt.condition)}:"):
            self.body(stmt.then_case)
        if isinstance(stmt.else_case, IfThenElse):
            self._IfThenElse(stmt.else_case, "elif")
        elif stmt.else_case is not None:
            with self.out.block("else:"):
                self.body(stmt.else_case)

    def _While(self, stmt: While) -> None:
        with self.out.block(f"while {self.e.expr(stmt.condition)}:"):
            self.body(stmt.body)

    def _For(self, stmt: For) -> None:
        loops = _grid(stmt)
        extents = [self.e.expr(loop.extent) for loop in loops]
        header = f"T.grid({', '.join(extents)})" if len(loops) > 1 else self._loop(stmt, extents[0])
        with self.names.scope():
            targets = [self.names.define(loop.var) for loop in loops]
            self._extents.update({id(loop.var): loop.extent for loop in loops})
            with self.out.block(f"for {', '.join(targets)} in {header}:"):
                self.body(loops[-1].body)

    def _loop(self, loop: For, extent: str) -> str:
        args = [extent]
        if loop.thread is not None:
            args.append(f"thread={json.dumps(loop.thread)}")
        if loop.annotations:
            args.append(f"annotations={self.e.attr(loop.annotations)}")
        plain = loop.kind == SERIAL and len(args) == 1
        return f"{'range' if plain else f'T.{loop.kind}'}({', '.join(args)})"

    # -- blocks

    def _BlockRealize(self, realize: BlockRealize) -> None:
        block = realize.block
        with self.out.block(f"with T.block({json.dumps(block.name)}):"), self.names.scope():
            self._axes(block.iter_vars, realize.iter_values)
            if not is_const(realize.predicate, 1):
                self.out.add(f"T.where({self.e.expr(realize.predicate)})")
            self.out.add(f"T.reads({', '.join(map(self.region, block.reads))})")
            self.out.add(f"T.writes({', '.join(map(self.region, block.writes))})")
            if block.annotations:
                self.out.add(f"T.block_attr({self.e.attr(block.annotations)})")
            self._alloc_buffers(block.alloc_buffers)
            if block.init is not None:
                with self.out.block("with T.init():"):
                    self.body(block.init)
            self.body(block.body)

    def _alloc_buffers(self, buffers: Sequence[Buffer]) -> None:
        for b in buffers:
            self.out.add(f"{self.names.define(b)} = T.alloc_buffer({self.e.buffer_type(b)})")

    def _axes(self, iter_vars: Sequence[IterVar], values: Sequence[PrimExpr]) -> None:
        texts = [self.e.expr(v) for v in values]
        run: list[tuple[IterVar, str]] = []
        for it, value, text in zip(iter_vars, values, texts):
            if self._is_whole_loop(it, value):
                run.append((it, text))
                continue
            self._remap(run)
            run = []
            self._axis(it, text)
        self._remap(run)

    def _is_whole_loop(self, it: IterVar, value: PrimExpr) -> bool:
        extent = self._extents.get(id(value))
        return extent is not None and it.var.dtype == value.dtype and key(extent) == key(it.extent)

    def _axis(self, it: IterVar, value: str) -> None:
        kind = "spatial" if it.kind == "S" else "reduce"
        self.out.add(f"{self.names.define(it.var)} = T.axis.{kind}({self.e.expr(it.extent)}, {value})")

    def _remap(self, run: list[tuple[IterVar, str]]) -> None:
        if len(run) == 1:
            self._axis(*run[0])
        elif run:
            kinds = "".join(it.kind for it, _ in run)
            values = ", ".join(value for _, value in run)
            targets = ", ".join(self.names.define(it.var) for it, _ in run)
            self.out.add(f'{targets} = T.axis.remap("{kinds}", [{values}])')

    def region(self, region: BufferRegion) -> str:
        items = ", ".join(map(self._range, region.region)) or "()"
        return f"{self.names.of(region.buffer)}[{items}]"

    def _range(self, r: Range) -> str:
        low, extent = r.min, r.extent
        if isinstance(extent, IntImm) and extent.value == 1 and extent.dtype == low.dtype:
            return self.e.expr(low)
        if is_const(low, 0):
            return f"{self.e.expr(low)}:{self.e.expr(extent)}"
        if isinstance(low, IntImm) and isinstance(extent, IntImm) and low.dtype == extent.dtype == "int64":
            return f"{low.value}:{low.value + extent.value}"
        return f"{self.e.expr(low)}:{self.e.sum(low, extent)}"


def _decorator(func: PrimFunc) -> str:
    options = [] if "global_symbol" in func.attrs else ["private=True"]
    if not is_root(func.body) and needs_root(func.body, ()):
        options.append("root=False")
    return f"@T.prim_func({', '.join(options)})" if options else "@T.prim_func"


def _grid(loop: For) -> list[For]:
    """The loops printed as one ``T.grid``: perfectly nested plain serial loops with independent extents."""
    loops = [loop]
    while isinstance(loops[-1].body, For) and all(_is_plain(x) for x in (loops[-1], loops[-1].body)):
        inner = loops[-1].body
        names = {id(x.var) for x in loops}
        if any(id(v) in names for v in free_vars(inner.extent)):
            break
        loops.append(inner)
    return loops


def _is_plain(loop: For) -> bool:
    return loop.kind == SERIAL and not loop.annotations and loop.thread is None
