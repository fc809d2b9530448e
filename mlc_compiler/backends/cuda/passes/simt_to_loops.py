"""Turn kernels into ordinary loops, so that functions scheduled for a GPU run on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from mlc_errors import MLCError

from ....ir.expr import IntImm, PrimExpr, Var, cast, const
from ....ir.simplify import Analyzer
from ....ir.visitor import Rewriter, substitute, walk
from ....passes.base import FunctionPass
from ....passes.lower_blocks import Simplify
from ....tir.intrinsics import operands_of
from ....tir.leading_axes import LeadingAxes
from ....tir.nodes import (
    PARALLEL,
    SERIAL,
    Allocate,
    Buffer,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from ....tir.threads import (
    BLOCK_AXES,
    THREAD_AXES,
    VIRTUAL_AXES,
    is_bound,
    launch_extents,
    rewrite_kernels,
    sync_scope,
    thread_loops,
)
from ....tir.varying import Varying
from ..machine import WARP
from .fission import FirstParts, Fission, Parts
from .instruction_loops import instruction_loops, row_of

BLOCK_BARRIERS = ("cuda.barrier.sync", "cuda.mbarrier.wait")
"""Instructions after which a thread sees earlier writes of other threads; treated as barriers of the whole block."""


@dataclass(frozen=True)
class SimtToLoops(FunctionPass):
    """Replace blocks and threads of kernels by loops, which run one thread after the other between barriers.

    Blocks become a parallel loop. Loops over threads are distributed over the parts of a kernel between its barriers,
    and between instructions of several lanes, which become loops over their elements; a loop or condition around a
    barrier stays outside. Registers of a thread that live across a barrier get an axis of threads, fragments of a warp
    an axis of warps; shared buffers are allocated once per block. Asynchronous copies complete immediately.

    descending: run blocks and threads from the last to the first. A kernel whose results differ between both orders has
    a race, or adds floats in the order of the threads; equal results prove nothing.
    Needs: lowered tensor functions without virtual threads, barriers placed. Raises MLCError for a barrier in divergent
    control flow.
    """

    descending: bool = False

    name = "simt-to-loops"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        """Rewrite one function; ``name`` is for errors."""
        try:
            return replace(func, body=rewrite_kernels(func, lambda nest: _Kernel(nest, self.descending).loops()))
        except MLCError as error:
            error.where = (*error.where, f"function {name!r}")
            raise


class _Kernel:
    """Rewrites one kernel nest. threads: variable of each thread axis -> extent."""

    def __init__(self, nest: For, descending: bool):
        self.nest, self.descending = nest, descending
        self.extents = launch_extents(nest) or {"threadIdx.x": 1}
        dtypes = {str(lp.thread): lp.var.dtype for lp in thread_loops(nest)}
        self.axes = {axis: Var(axis[-1], dtypes.get(axis, "int64")) for axis in reversed(self.extents)}
        self.threads = {var: const(self.extents[axis], var.dtype) for axis, var in self.axes.items()}
        self.analyzer = Analyzer()
        self.wide: Parts = {}

    def loops(self) -> Stmt:
        """The kernel as loops over blocks and threads."""
        uniform = _Uniform(self.axes, self.extents)
        body = uniform(self.nest)
        varying = Varying(body, self.threads, lambda b: b.scope in ("local", "warp") or id(b) in uniform.private)
        body = self._blocks(body, uniform.hoisted, varying)
        return Simplify()(body)

    def _blocks(self, s: Stmt, hoisted: list[Buffer], varying: Varying) -> Stmt:
        """Loops over blocks, the outermost one parallel unless blocks add to the same elements."""
        if not is_bound(s, BLOCK_AXES):
            return self._allocated(s, hoisted, varying)
        adds = any(isinstance(n, Evaluate) and _adds_globally(n) for n in walk(s))
        kind = PARALLEL if s is self.nest or (is_bound(self.nest) and s.thread == self.nest.thread) else SERIAL
        self.analyzer.bind(s.var, s.extent)
        inner = self._blocks(s.body, hoisted, varying)
        return self._loop(replace(s, body=inner, thread=None, kind=SERIAL if adds else kind))

    def _allocated(self, s: Stmt, hoisted: list[Buffer], varying: Varying) -> Stmt:
        """The body of a block, with the block's buffers around it."""
        parts: dict[int, tuple[Buffer, tuple[PrimExpr, ...]]] = {}
        for buffer in hoisted:
            lanes = _fragment_lanes(s, buffer)
            lead = () if lanes is None else (const(-(-self._count() // lanes), "int64"),)
            whole = replace(buffer, shape=(*lead, *buffer.shape), scope="global")
            parts[id(buffer)] = (whole, () if lanes is None else (self._thread_number() // lanes,))
            if varying.depends(buffer):
                varying.found.add(id(whole))
        fission = Fission(
            self.threads, _ends_phase, self._region, lambda _: SeqStmt(()), varying, "threads of a block", self.wide
        )
        body = fission(LeadingAxes(parts)(s))
        for whole, _ in parts.values():
            body = Allocate(whole, body)
        return body

    def _count(self) -> int:
        return prod(self.extents.values())

    def _thread_number(self) -> PrimExpr:
        """The linear index of a thread in its block; x is the innermost axis."""
        number: PrimExpr = const(0, "int64")
        for var, extent in self.threads.items():
            number = number * extent + var
        return number

    # -- loops over threads

    def _loop(self, loop: For) -> For:
        """The loop, reversed if ``descending``."""
        if not self.descending:
            return loop
        var = Var(loop.var.name, loop.var.dtype)
        return replace(loop, var=var, body=substitute(loop.body, {loop.var: loop.extent - 1 - var}))

    def _region(self, s: Stmt) -> Stmt:
        """Wrap a statement without block barriers in loops over the threads of a block."""
        lanes = max((row.lanes for n in walk(s) if (row := row_of(n)) is not None), default=1)
        if lanes > 1 or any(sync_scope(n) == "warp" for n in walk(s)):
            return self._warps(s, max(lanes, WARP))
        s = _AloneInstructions(self.analyzer)(s)
        for var, extent in reversed(self.threads.items()):
            copy = Var(var.name, var.dtype)
            s = self._loop(For(copy, extent, substitute(s, {var: copy})))
        return s

    def _warps(self, s: Stmt, lanes: int) -> Stmt:
        """Wrap a statement in a loop over groups of ``lanes`` threads; fission at instructions of several lanes."""
        count = self._count()
        if count % lanes:
            raise MLCError(f"a block of {count} threads executes an instruction of {lanes} lanes together")
        group, lane = Var("warp"), Var("lane")
        self.analyzer.bind(group, count // lanes)
        self.analyzer.bind(lane, lanes)
        values: dict[Var, PrimExpr] = {}
        stride = 1
        for axis, var in reversed(self.axes.items()):
            number = cast(var.dtype, group) * lanes + cast(var.dtype, lane)
            values[var] = self.analyzer.simplify(number // stride % self.extents[axis])
            stride *= self.extents[axis]
        body = Simplify(self.analyzer)(substitute(s, values))
        varying = Varying(FirstParts(self.wide)(body), [lane], lambda b: b.scope in ("local", "warp"))
        fission = Fission(
            {lane: const(lanes, lane.dtype)},
            _is_collective,
            lambda part: self._lanes(part, lane, lanes),
            lambda cut: self._together(cut, lane, lanes),
            varying,
            "lanes of a warp",
            self.wide,
        )
        return self._loop(For(group, const(count // lanes, group.dtype), fission(body)))

    def _lanes(self, s: Stmt, lane: Var, lanes: int) -> Stmt:
        copy = Var(lane.name, lane.dtype)
        s = _AloneInstructions(self.analyzer)(s)
        return self._loop(For(copy, const(lanes, lane.dtype), substitute(s, {lane: copy})))

    def _together(self, s: Stmt, lane: Var, lanes: int) -> Stmt:
        """Expand an instruction of several lanes; if these are fewer than ``lanes``, once for each group of them."""
        row = row_of(s)
        if row is None:
            return SeqStmt(())
        assert isinstance(s, Evaluate)
        if row.lanes == lanes:
            return instruction_loops(s, lane, const(0, lane.dtype), self.analyzer)
        part = Var("part")
        self.analyzer.bind(part, lanes // row.lanes)
        inner = Var(lane.name, lane.dtype)
        self.analyzer.bind(inner, row.lanes)
        moved = substitute(s, {lane: part * row.lanes + inner})
        body = instruction_loops(moved, inner, const(0, inner.dtype), self.analyzer)
        return self._loop(For(part, const(lanes // row.lanes, part.dtype), body))


class _Uniform(Rewriter):
    """Removes loops over threads; those that not all threads of a block run become conditions.

    hoisted: the removed allocations of buffers that exist once per block or warp. private: identities of all other
    buffers.
    """

    def __init__(self, axes: dict[str, Var], extents: dict[str, int]):
        self.axes, self.extents = axes, extents
        self.hoisted: list[Buffer] = []
        self.private: set[int] = set()
        self.inside = False  # a loop over threads

    def rewrite_For(self, node: For) -> Stmt:
        if is_bound(node, VIRTUAL_AXES):
            raise MLCError(f"loop {node.var.name!r} is a virtual thread; run the pass virtual-threads first")
        if not is_bound(node, THREAD_AXES):
            return self.rewrite_children(node)
        outside, self.inside = self.inside, True
        var = self.axes[str(node.thread)]
        body = self(substitute(node.body, {node.var: var.astype(node.var.dtype)}))
        self.inside = outside
        assert isinstance(node.extent, IntImm)
        full = node.extent.value == self.extents[str(node.thread)]
        return body if full else IfThenElse(var < node.extent.value, body)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        scope = node.buffer.scope
        if scope in ("shared", "warp") or (scope == "global" and not self.inside):
            self.hoisted.append(node.buffer)
            return self(node.body)
        self.private.add(id(node.buffer))
        return self.rewrite_children(node)


class _AloneInstructions(Rewriter):
    """Expands instructions that a thread executes alone to loops."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer

    def rewrite_Evaluate(self, node: Evaluate) -> Stmt:
        if row_of(node) is None:
            return node
        return instruction_loops(node, None, const(0, "int64"), self.analyzer)


def _ends_phase(s: Stmt) -> bool:
    row = row_of(s)
    return sync_scope(s) == "shared" or (row is not None and row.name in BLOCK_BARRIERS)


def _is_collective(s: Stmt) -> bool:
    row = row_of(s)
    return sync_scope(s) == "warp" or (row is not None and row.lanes > 1)


def _adds_globally(s: Evaluate) -> bool:
    """Whether an instruction atomically updates an element of global memory, as several blocks may do."""
    row = row_of(s)
    if row is None or not (row.accumulates or row.update):
        return False
    return row.operands[0 if row.accumulates else 1].scope == "global"


def _fragment_lanes(s: Stmt, buffer: Buffer) -> int | None:
    """The number of threads that hold a fragment together; None for a buffer of the block."""
    if buffer.scope != "warp":
        return None
    rows = [(n, row_of(n)) for n in walk(s) if isinstance(n, Evaluate)]
    used = [row.lanes for n, row in rows if row is not None and any(b is buffer for b, _ in operands_of(n.value))]  # type: ignore[arg-type]
    return max(used, default=WARP)
