"""What is known while code is emitted: where to, values of variables, addresses of buffers, the vectorized loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from llvmlite import ir as ll

from ..ir.expr import PrimExpr, Var
from ..ir.simplify import Analyzer
from ..target import Target
from . import values as v
from .arithmetic import CodegenError
from .conversions import convert

PORTABLE = Target("cpu", "", "generic", "", 128, 16)

Emitted = TypeVar("Emitted")


@dataclass
class Lanes:
    """The vectorized loop being emitted: its variable and number of lanes."""

    var: Var
    count: int


class Emitter:
    """The state of emission at the builder's position. ``env``: values of variables; ``buffers``: base pointers."""

    def __init__(self, builder: ll.IRBuilder, target: Target = PORTABLE):
        self.b = builder
        self.target = target
        self.env: dict[int, ll.Value] = {}
        self.buffers: dict[int, ll.Value] = {}
        self.lanes: Lanes | None = None
        self.vector_vars: set[int] = set()
        self.mask: ll.Value | None = None
        self.analyzer = Analyzer()

    def __call__(self, e: PrimExpr) -> ll.Value:
        """The value of an expression."""
        raise CodegenError(f"no code for {e!r}")

    def define(self, var: Var, expr: PrimExpr) -> None:
        """``var`` stands for the value of ``expr`` from here on."""
        self.env[id(var)] = value = self(expr)
        self.analyzer.let(var, expr)
        if v.lanes_of(value) > 1:
            self.vector_vars.add(id(var))

    def convert(self, value: ll.Value, source: str, to: str) -> ll.Value:
        return convert(self.b, value, source, to, self.target.has("f16c"))

    def under(self, mask: ll.Value, emit: Callable[[], Emitted]) -> Emitted:
        """Emit with loads and stores limited to the lanes of ``mask``."""
        outer = self.mask
        self.mask = mask if outer is None else self.b.and_(outer, mask)
        result = emit()
        self.mask = outer
        return result
