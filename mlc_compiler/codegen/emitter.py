"""State of code emission: the builder, values of variables, addresses of buffers, the vectorized loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..ir import dtype as dt
from ..ir.expr import Call, PrimExpr, Var
from ..ir.simplify import Analyzer
from ..ir.visitor import substitute, walk
from ..target import CAPABILITIES, Target
from ..tir.nodes import BufferLoad
from . import llvm_ir as ll
from . import values as v
from .arithmetic import CodegenError
from .conversions import convert

Emitted = TypeVar("Emitted")


@dataclass
class Lanes:
    """The vectorized loop being emitted: its variable and number of lanes."""

    var: Var
    count: int


class Emitter:
    """The state of code emission at the builder's position.

    env, buffers: identity of a variable or buffer -> value or base pointer. target: selects instructions; None suffices
    for integer arithmetic.
    """

    def __init__(self, builder: ll.IRBuilder, target: Target | None = None):
        self.b = builder
        self.target = target
        self.capabilities = frozenset(c for c in CAPABILITIES if target is not None and target.has(c))
        self.env: dict[int, ll.Value] = {}
        self.buffers: dict[int, ll.Value] = {}
        self.lanes: Lanes | None = None
        self.vector_vars: set[int] = set()
        self.vector_indices: dict[Var, PrimExpr] = {}  # integer variables that depend on the lane, by arithmetic only
        self.mask: ll.Value | None = None
        self.analyzer = Analyzer()

    def __call__(self, e: PrimExpr) -> ll.Value:
        """The value of an expression."""
        raise CodegenError(f"no code for {e!r}")

    def define(self, var: Var, expr: PrimExpr) -> None:
        """Bind ``var`` to the value of ``expr`` for the following code."""
        self.env[id(var)] = value = self(expr)
        self.analyzer.let(var, expr)
        if v.lanes_of(value) > 1:
            self.vector_vars.add(id(var))
            if dt.is_int(expr.dtype) and not any(isinstance(n, BufferLoad | Call) for n in walk(expr)):
                self.vector_indices[var] = substitute(expr, self.vector_indices)

    def convert(self, value: ll.Value, source: str, to: str) -> ll.Value:
        return convert(self.b, value, source, to, "convert_float16" in self.capabilities)

    def under(self, mask: ll.Value, emit: Callable[[], Emitted]) -> Emitted:
        """Call ``emit`` with loads and stores limited to the lanes of ``mask``; returns its result."""
        outer = self.mask
        self.mask = mask if outer is None else self.b.and_(outer, mask)
        result = emit()
        self.mask = outer
        return result
