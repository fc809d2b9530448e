"""Lift scratch buffers that threads share, or that are too large for the stack, to parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import dtype as dt
from ..ir.expr import Call, IntImm, PrimExpr, Var
from ..ir.module import IRModule
from ..ir.visitor import Rewriter, free_vars, walk
from ..tir.calling import scalar_parameters
from ..tir.nodes import PARALLEL, Allocate, Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt
from .base import Pass

MAX_STACK_BYTES = 1 << 18  # per buffer; thread stacks have a few MiB


@dataclass(frozen=True)
class LiftAllocs(Pass):
    """Lift allocations to trailing buffer parameters, counted by the attribute ``num_scratch``.

    Lifted are those around whole parallel loops, and those whose size is symbolic or large; inside of a parallel loop
    they become one buffer with a part for each iteration. Needs: lowered tensor functions. ``PlanMemory`` places the
    scratch buffers in the workspace.
    """

    name = "lift-allocs"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: lift_allocs(f) for name, f in mod.of_type(PrimFunc).items()})


def lift_allocs(func: PrimFunc) -> PrimFunc:
    """One function; see :class:`LiftAllocs`."""
    lift = _Lift({id(v) for v in scalar_parameters(func)})
    body = lift(func.body)
    if not lift.lifted:
        return func
    scalars = [p for p in func.params if isinstance(p, Var)]
    params: tuple[Buffer | Var, ...] = (*func.buffers, *lift.lifted, *scalars)
    return replace(func, params=params, body=body, attrs={**func.attrs, "num_scratch": len(lift.lifted)})


@dataclass
class _Lift(Rewriter):
    """Removes allocations; ``sizes``: identities of the variables that a parameter's shape may use."""

    sizes: set[int]
    lifted: list[Buffer] = field(default_factory=list)
    team_loop: For | None = None  # the outermost enclosing parallel loop; its body runs on one thread
    parts: dict[int, tuple[Buffer, tuple[Var, ...]]] = field(default_factory=dict)

    def rewrite_For(self, node: For) -> Stmt:
        if node.kind != PARALLEL or self.team_loop is not None:
            return self.rewrite_children(node)
        self.team_loop = node
        result = self.rewrite_children(node)
        self.team_loop = None
        return result

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        loop, buffer = self.team_loop, node.buffer
        shared = loop is None and any(isinstance(n, For) and n.kind == PARALLEL for n in walk(node.body))
        lead = () if loop is None else (loop.extent,)
        known = all(id(v) in self.sizes for v in free_vars((lead, buffer.shape)))
        if not known or not (shared or _is_large(buffer)):
            return self.rewrite_children(node)
        whole = Buffer(buffer.name, (*lead, *buffer.shape), buffer.dtype)
        self.lifted.append(whole)
        self.parts[id(buffer)] = (whole, () if loop is None else (loop.var,))
        return self(node.body)

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferLoad(whole, (*part, *node.indices))

    def rewrite_BufferStore(self, node: BufferStore) -> Stmt:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferStore(whole, node.value, (*part, *node.indices))

    def rewrite_Call(self, node: Call) -> PrimExpr:
        """``address_of(load, *extents)``: a lifted buffer has a leading axis, of extent 1 in the box."""
        load, *extents = node.args or (node,)
        if node.op != "address_of" or not isinstance(load, BufferLoad) or id(load.buffer) not in self.parts:
            return self.rewrite_children(node)
        lead = [IntImm(1) for _ in self.parts[id(load.buffer)][1]]
        return replace(node, args=(self(load), *lead, *extents))


def _is_large(buffer: Buffer) -> bool:
    count = dt.nbytes(buffer.dtype)
    for size in buffer.shape:
        if not isinstance(size, IntImm):
            return True
        count *= size.value
    return count > MAX_STACK_BYTES
