"""Barriers between dependent tensor functions of a planned graph function."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from ..ir.expr import as_expr
from ..ir.module import GlobalVar, IRModule
from ..ir.simplify import key
from ..relax.nodes import Binding, BindingBlock, Call, Expr, ExternFunc, Function, Op, Var
from ..tir.intrinsics import written_buffers
from ..tir.nodes import PrimFunc
from .base import Pass


@dataclass(frozen=True)
class Access:
    """Bytes that a call touches: a whole parameter or a range of the workspace."""

    base: object
    begin: int
    end: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        if not (self.writes or other.writes) or self.base is not other.base:
            return False
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True)
class PlaceBarriers(Pass):
    """Insert ``R.builtin.barrier()`` before a call that depends on one made since the last barrier.

    Needs: planned functions. A call depends on another when one of them writes memory that the other touches; a call of
    a registered function depends on all before it, and is itself a barrier.
    """

    name = "place-barriers"

    def run(self, mod: IRModule) -> IRModule:
        written = {name: _written(f) for name, f in mod.of_type(PrimFunc).items()}
        return mod.updated({name: _place(f, written) for name, f in mod.of_type(Function).items()})


def _written(func: PrimFunc) -> list[bool]:
    stored = written_buffers(func.body)
    return [id(b) in stored for b in func.buffers]


def _place(func: Function, written: dict[str, list[bool]]) -> Function:
    workspace = _Workspace()
    pending: list[Access] = []
    result: list[Binding] = []
    for binding in func.bindings:
        call = binding.value
        if isinstance(call, Call) and isinstance(call.target, Op) and call.target.name == "builtin.alloc_tensor":
            workspace.add(binding.var, call)
        if isinstance(call, Call) and isinstance(call.target, GlobalVar | ExternFunc):
            is_packed = isinstance(call.target, ExternFunc)
            accesses = [] if is_packed else _accesses(call, written[call.target.name], workspace.ranges)
            if is_packed or any(a.conflicts(p) for a in accesses for p in pending):
                if pending:
                    result.append(Binding(Var("_", None), Call(Op("builtin.barrier"), ())))
                pending = []
            pending += accesses
        result.append(binding)
    return replace(func, blocks=(BindingBlock(tuple(result)),))


class _Workspace:
    """The ranges of the workspace that allocations name. Two symbolic offsets are one block or two that do not meet."""

    def __init__(self) -> None:
        self.ranges: dict[int, tuple[object, int, int]] = {}
        self.static = object()
        self.blocks: dict[Hashable, object] = {}

    def add(self, var: Var, call: Call) -> None:
        begin, size = call.attrs["offset"], call.attrs["nbytes"]
        if isinstance(size, int):
            self.ranges[id(var)] = (self.static, begin, begin + size)
        else:
            self.ranges[id(var)] = (self.blocks.setdefault(key(as_expr(begin)), object()), 0, 1)


def _accesses(call: Call, written: list[bool], ranges: dict[int, tuple[object, int, int]]) -> list[Access]:
    result = []
    for arg, writes in zip(call.args, written, strict=False):
        if isinstance(arg, Expr):
            base, begin, end = ranges.get(id(arg), (_identity(arg), 0, 1))
            result.append(Access(base, begin, end, writes))
    return result


def _identity(arg: Expr) -> object:
    """Parameters and constants are told apart as objects; fields of one packed parameter are never written."""
    return arg
