"""Scratch memory that several threads share becomes a parameter of the tensor function."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.expr import Var
from ..ir.module import IRModule
from ..tir.nodes import Allocate, Buffer, LetStmt, PrimFunc, Stmt
from .base import Pass


@dataclass(frozen=True)
class LiftAllocs(Pass):
    """Move allocations around whole parallel loops to trailing parameters, counted by the attribute ``num_scratch``.

    Needs: lowered tensor functions. The memory plan gives the scratch buffers their place in the workspace.
    """

    name = "lift-allocs"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: lift_allocs(f) for name, f in mod.of_type(PrimFunc).items()})


def lift_allocs(func: PrimFunc) -> PrimFunc:
    """One function; see :class:`LiftAllocs`."""
    body, lifted = _strip(func.body)
    if not lifted:
        return func
    buffers = func.buffers
    scalars = [p for p in func.params if isinstance(p, Var)]
    params: tuple[Buffer | Var, ...] = (*buffers, *lifted, *scalars)
    return replace(func, params=params, body=body, attrs={**func.attrs, "num_scratch": len(lifted)})


def _strip(stmt: Stmt) -> tuple[Stmt, list[Buffer]]:
    if isinstance(stmt, Allocate):
        body, lifted = _strip(stmt.body)
        return body, [stmt.buffer, *lifted]
    if isinstance(stmt, LetStmt):
        body, lifted = _strip(stmt.body)
        return replace(stmt, body=body), lifted
    return stmt, []
