"""Lift scratch buffers that threads share, or that are too large for the stack, to parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import dtype as dt
from ..ir.expr import IntImm, Var
from ..ir.visitor import free_vars, nodes_of
from ..tir.calling import scalar_parameters
from ..tir.leading_axes import LeadingAxes
from ..tir.nodes import PARALLEL, PRIVATE, THREAD, ZEROED, Allocate, Buffer, For, PrimFunc, Stmt
from .base import FunctionPass

MAX_STACK_BYTES = 1 << 18  # per buffer; thread stacks have a few MiB
ON_CHIP = ("shared", "warp")


@dataclass(frozen=True)
class LiftAllocs(FunctionPass):
    """Lift allocations of scope ``global`` or ``local`` to trailing buffer parameters, counted by ``num_scratch``.

    Lifts allocations around whole parallel loops or GPU threads, and those of symbolic or large size; inside a
    parallel loop they become one buffer with a slice per iteration, inside GPU threads one with a slice per
    thread. Allocations of scope ``ZEROED`` are always lifted and keep their scope. Needs: lowered tensor functions.
    ``PlanMemory`` places the scratch buffers in the workspace, or in zeroed memory.
    """

    name = "lift-allocs"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return lift_allocs(func)


def lift_allocs(func: PrimFunc) -> PrimFunc:
    """Apply :class:`LiftAllocs` to one function."""
    kinds = {n.kind for n in nodes_of(func.body, For)}
    lift = _Lift(sizes={id(v) for v in scalar_parameters(func)}, kinds=kinds)
    body = lift(func.body)
    if not lift.lifted:
        return func
    scalars = [p for p in func.params if isinstance(p, Var)]
    params: tuple[Buffer | Var, ...] = (*func.buffers, *lift.lifted, *scalars)
    return replace(func, params=params, body=body, attrs={**func.attrs, "num_scratch": len(lift.lifted)})


@dataclass
class _Lift(LeadingAxes):
    """Removes allocations. sizes: the ``id`` of variables that a parameter's shape may use.

    kinds: the kinds of the function's loops.
    """

    sizes: set[int] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    lifted: list[Buffer] = field(default_factory=list)
    around: tuple[For, ...] = ()  # the outermost enclosing parallel loop, or all enclosing loops over GPU threads

    def rewrite_For(self, node: For) -> Stmt:
        if node.kind != THREAD and (node.kind != PARALLEL or self.around):
            return self.rewrite_children(node)
        outside = self.around
        self.around = (*outside, node)
        result = self.rewrite_children(node)
        self.around = outside
        return result

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        buffer = node.buffer
        lead = tuple(loop.extent for loop in self.around)
        known = all(id(v) in self.sizes for v in free_vars((lead, buffer.shape)))
        if buffer.scope in ON_CHIP or not known or not (self._is_shared(node) or _is_large(buffer)):
            return self.rewrite_children(node)
        scope = ZEROED if buffer.scope == ZEROED else "global"
        whole = Buffer(buffer.name, (*lead, *buffer.shape), buffer.dtype, scope)
        self.lifted.append(whole)
        self.parts[id(buffer)] = (whole, tuple(loop.var for loop in self.around))
        return self(node.body)

    def _is_shared(self, node: Allocate) -> bool:
        """Whether several threads use a buffer; not one of scope ``PRIVATE``, or of ``local`` in a GPU block."""
        if node.buffer.scope == ZEROED:
            return True
        if node.buffer.scope == PRIVATE:
            return False
        if node.buffer.scope == "local" and any(loop.kind == THREAD for loop in self.around):
            return False
        wanted = self.kinds & ({THREAD} if self.around else {THREAD, PARALLEL})
        return bool(wanted) and any(n.kind in wanted for n in nodes_of(node.body, For))


def _is_large(buffer: Buffer) -> bool:
    count = dt.nbytes(buffer.dtype)
    for size in buffer.shape:
        if not isinstance(size, IntImm):
            return True
        count *= size.value
    return count > MAX_STACK_BYTES
