"""Reductions over empty axes: only their ``init`` is executed."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ..ir.expr import BinaryOp, PrimExpr, logical_and
from ..ir.visitor import free_vars
from ..tir.nodes import BlockRealize, For, SeqStmt, Stmt


def initialisations(stmt: Stmt, reduced: Set[int]) -> Stmt | None:
    """Keep only the ``init`` of reductions over ``reduced`` (``id`` of variables) in a statement; None without any."""
    if isinstance(stmt, SeqStmt):
        found = [s for s in (initialisations(item, reduced) for item in stmt.stmts) if s is not None]
        return SeqStmt(tuple(found)) if found else None
    if isinstance(stmt, For):
        body = initialisations(stmt.body, reduced)
        return None if body is None else replace(stmt, body=body)
    return _of_block(stmt, reduced) if isinstance(stmt, BlockRealize) else None


def _of_block(realize: BlockRealize, reduced: Set[int]) -> Stmt | None:
    block = realize.block
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    over = {id(it.var) for it, value in pairs if it.kind == "R" and _uses(value, reduced)}
    if any(it.kind != "R" and _uses(value, reduced) for it, value in pairs):
        return None
    body: Stmt | None = SeqStmt(()) if over and block.init is not None else None
    if block.init is None:
        body = initialisations(block.body, {*reduced, *over})
    if body is None:
        return None
    return replace(realize, predicate=_without(realize.predicate, reduced), block=replace(block, body=body))


def _without(condition: PrimExpr, variables: Set[int]) -> PrimExpr:
    """Remove the terms that depend on ``variables`` from a conjunction."""
    if isinstance(condition, BinaryOp) and condition.op == "and":
        return logical_and(_without(condition.a, variables), _without(condition.b, variables))
    return logical_and() if _uses(condition, variables) else condition


def _uses(expr: PrimExpr, variables: Set[int]) -> bool:
    return any(id(v) in variables for v in free_vars(expr))
