"""Horizontal reductions of a SIMD register."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import PrimExpr
from ....script import T


def add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a + b``"""
    return a + b


@T.macro
def halve(fold, lanes, combine):
    """Tree reduction of ``fold`` into ``fold[0]``; ``lanes`` is 2, 4, 8 or 16."""
    if lanes >= 16:
        for i in T.vectorized(8):
            fold[i] = combine(fold[i], fold[i + 8])
    if lanes >= 8:
        for i in T.vectorized(4):
            fold[i] = combine(fold[i], fold[i + 4])
    if lanes >= 4:
        for i in T.vectorized(2):
            fold[i] = combine(fold[i], fold[i + 2])
    fold[0] = combine(fold[0], fold[1])
