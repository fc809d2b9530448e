"""Lookup and replacement of statements in a tensor function's statement tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mlc_errors import MLCError

from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.naming import unique_name
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, free_vars, nodes_of
from ..nodes import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
)


class ScheduleError(MLCError):
    """A step that is illegal, or whose block or loop does not exist."""


def _body(stmt: For | While | LetStmt | Allocate) -> tuple[Stmt, ...]:
    return (stmt.body,)


_SUB_STATEMENTS: dict[type[Stmt], Callable[[Any], tuple[Stmt, ...]]] = {
    SeqStmt: lambda stmt: stmt.stmts,
    For: _body,
    While: _body,
    LetStmt: _body,
    Allocate: _body,
    BlockRealize: lambda stmt: (stmt.block.body,),
    IfThenElse: lambda s: (s.then_case,) if s.else_case is None else (s.then_case, s.else_case),
}
"""The function that returns the direct children that are statements, by class of statement."""


def sub_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct children of a statement that are statements."""
    children = _SUB_STATEMENTS.get(type(stmt))
    return () if children is None else children(stmt)


def paths(root: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """The path from the root to every statement, in pre-order."""
    stack: list[tuple[Stmt, ...]] = [(root,)]
    while stack:
        path = stack.pop()
        yield path
        stack.extend((*path, s) for s in reversed(sub_statements(path[-1])))


def path_to(root: Stmt, match: Callable[[Stmt], bool]) -> tuple[Stmt, ...] | None:
    """The path from the root to the first statement that matches, or None."""
    if match(root):
        return (root,)
    for stmt in sub_statements(root):
        found = path_to(stmt, match)
        if found is not None:
            return (root, *found)
    return None


def block_path(func: PrimFunc, name: str) -> tuple[Stmt, ...]:
    path = path_to(func.body, lambda s: isinstance(s, BlockRealize) and s.block.name == name)
    if path is None:
        raise ScheduleError(f"no block {name!r}; the function has {', '.join(block_names(func))}")
    return path


def find_block(func: PrimFunc, name: str) -> BlockRealize:
    return block_path(func, name)[-1]  # type: ignore[return-value]


def block_names(func: PrimFunc) -> list[str]:
    """Names of all blocks but the root, in order of execution."""
    return [s.block.name for s in statements(func.body) if isinstance(s, BlockRealize) and s.block.name != "root"]


def loops_above(path: tuple[Stmt, ...]) -> list[For]:
    """The loops between the innermost enclosing block and the end of a path, outermost first."""
    loops: list[For] = []
    for stmt in path[:-1]:
        if isinstance(stmt, BlockRealize):
            loops = []
        elif isinstance(stmt, For):
            loops.append(stmt)
    return loops


def scope_of(path: tuple[Stmt, ...]) -> BlockRealize | None:
    """The innermost block that encloses the end of a path."""
    return next((s for s in reversed(path[:-1]) if isinstance(s, BlockRealize)), None)


def find_loop(func: PrimFunc, var: Var) -> For:
    return loop_path(func, var)[-1]  # type: ignore[return-value]


def loop_path(func: PrimFunc, var: Var) -> tuple[Stmt, ...]:
    path = path_to(func.body, lambda s: isinstance(s, For) and s.var is var)
    if path is None:
        raise ScheduleError(f"loop {var.name!r} is no longer part of the function (it was split, fused or removed)")
    return path


def parent_of(func: PrimFunc, stmt: Stmt) -> tuple[Stmt, ...]:
    """The path from the root to the parent of a statement."""
    path = path_to(func.body, lambda s: any(c is stmt for c in sub_statements(s)))
    assert path is not None
    return path


def statements(root: Stmt) -> Iterator[Stmt]:
    """All statements in pre-order, except those in the ``init`` of blocks."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack.extend(reversed(sub_statements(stmt)))


def loops_in(root: Stmt) -> list[For]:
    return [s for s in statements(root) if isinstance(s, For)]


def has_loop(func: PrimFunc, var: Var) -> bool:
    return any(lp.var is var for lp in loops_in(func.body))


def child_blocks(stmt: Stmt) -> list[str]:
    """The blocks directly inside a loop or block, in order of execution."""
    names: list[str] = []
    stack = list(reversed(sub_statements(stmt)))
    while stack:
        item = stack.pop()
        if isinstance(item, BlockRealize):
            names.append(item.block.name)
        else:
            stack.extend(reversed(sub_statements(item)))
    return names


class _Replace(Rewriter):
    def __init__(self, changes: Mapping[int, Stmt | None]):
        self.changes = changes

    def __call__(self, node: Any) -> Any:
        if id(node) in self.changes:
            return self.changes[id(node)]
        return super().__call__(node) if type(node) in _SUB_STATEMENTS else node

    def rewrite_SeqStmt(self, node: SeqStmt) -> Stmt | None:
        stmts = [self(s) for s in node.stmts]
        if all(a is b for a, b in zip(stmts, node.stmts, strict=True)):
            return node
        kept = [s for s in stmts if s is not None]
        return seq(*kept) if kept else None

    def _around(self, node: Any) -> Any:
        """Rewrite a statement that has a body; None when its body was removed."""
        body = self(node.body)
        if body is None:
            return None
        return node if body is node.body else replace(node, body=body)

    rewrite_For = rewrite_While = rewrite_LetStmt = rewrite_Allocate = _around

    def rewrite_BlockRealize(self, node: BlockRealize) -> BlockRealize | None:
        block = self._around(node.block)
        if block is None:
            return None
        return node if block is node.block else replace(node, block=block)


def replace_stmts(func: PrimFunc, changes: Mapping[Stmt, Stmt | None]) -> PrimFunc:
    """Replace statements, by identity, in a function; None removes one, and enclosing statements left empty."""
    return replace(func, body=_Replace({id(k): v for k, v in changes.items()})(func.body))


def replace_in(stmt: Stmt, changes: Mapping[Stmt, Stmt]) -> Stmt:
    """The statement with each key of ``changes`` (by identity) replaced by its value."""
    return _Replace({id(old): new for old, new in changes.items()})(stmt)


def root_of(func: PrimFunc) -> BlockRealize:
    body = func.body
    if not (isinstance(body, BlockRealize) and body.block.name == "root"):
        raise ScheduleError("the function has no root block: it was lowered already, or written without blocks")
    return body


def with_allocs(func: PrimFunc, add: tuple[Buffer, ...] = (), drop: tuple[Buffer, ...] = ()) -> PrimFunc:
    """The function with intermediate buffers added to and removed from the root block."""
    root = root_of(func)
    gone = {id(b) for b in drop}
    allocs = tuple(b for b in root.block.alloc_buffers if id(b) not in gone) + add
    return replace(func, body=replace(root, block=replace(root.block, alloc_buffers=allocs)))


def unique_block_name(func: PrimFunc, base: str) -> str:
    return unique_name(base, set(block_names(func)))


def unique_buffer_name(func: PrimFunc, base: str) -> str:
    buffers = [*func.buffers, *(b for block in nodes_of(func.body, Block) for b in block.alloc_buffers)]
    return unique_name(base, {b.name for b in buffers})


def _touched(block: Block, kind: type[BufferLoad] | type[BufferStore]) -> set[int]:
    """The ``id`` of each buffer that a block's ``init`` and body load (or store, by ``kind``)."""
    return {id(n.buffer) for n in nodes_of((block.init, block.body), kind)}


def producers(func: PrimFunc, name: str) -> list[str]:
    """The other blocks that write buffers which a block reads."""
    return _related(func, find_block(func, name).block, BufferLoad, BufferStore)


def consumers(func: PrimFunc, name: str) -> list[str]:
    """The other blocks that read buffers which a block writes."""
    return _related(func, find_block(func, name).block, BufferStore, BufferLoad)


def _related(func: PrimFunc, block: Block, kind: type, other_kind: type) -> list[str]:
    """The other blocks whose accesses of ``other_kind`` share a buffer with the block's accesses of ``kind``."""
    own = _touched(block, kind)
    others = [n for n in block_names(func) if n != block.name]
    return [n for n in others if own & _touched(find_block(func, n).block, other_kind)]


def analyzer_at(path: tuple[Stmt, ...]) -> Analyzer:
    """An analyzer with the ranges of all loop, block and let variables along a path."""
    analyzer = Analyzer()
    for stmt in path:
        if isinstance(stmt, For):
            analyzer.bind(stmt.var, stmt.extent)
        elif isinstance(stmt, BlockRealize):
            for it in stmt.block.iter_vars:
                analyzer.bind(it.var, it.extent)
        elif isinstance(stmt, LetStmt):
            analyzer.let(stmt.var, stmt.value)
    return analyzer


def depends_on_loops(expr: PrimExpr, func: PrimFunc) -> bool:
    """Whether an expression mentions variables other than sizes and scalar parameters of the function."""
    known = {id(v) for b in func.buffers for v in free_vars(b.shape)} | {id(p) for p in func.params}
    return any(id(v) not in known for v in free_vars(expr))


def is_output(func: PrimFunc, buffer: Buffer) -> bool:
    return any(p is buffer for p in func.params)


def single_store(block: Block) -> BufferStore:
    if not isinstance(block.body, BufferStore):
        raise ScheduleError(f"block {block.name!r} does not consist of one store")
    return block.body


def true() -> PrimExpr:
    return IntImm(1, "bool")
