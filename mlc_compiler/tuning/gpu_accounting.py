"""Counts the work of functions scheduled for a GPU, without compiling or running them.

The kernels are lowered, and their accesses are counted from the loops around them. Addresses are computed for all
threads of the first block in the first iteration of each loop, and each access counts as often as a thread executes
it. A load counts once for the innermost loops in which it is invariant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ..backends import backend_of
from ..backends.cuda.emitter import shared_bytes
from ..backends.cuda.machine import SECTOR, WARP, Gpu
from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, Cast, FloatImm, IntImm, PrimExpr, Select, Var
from ..ir.module import IRModule
from ..ir.visitor import children, walk
from ..optimization import Optimization
from ..passes.lower_blocks import LowerBlocks
from ..pipeline import run_passes
from ..target import Target
from ..tir.calling import flat_index
from ..tir.intrinsics import find_tensor_intrin, written_buffers
from ..tir.nodes import (
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    While,
)
from ..tir.threads import BLOCK_AXES, THREAD_AXES, is_bound, launch_extents, sync_scope
from .gpu_prediction import GpuAccount, KernelAccount
from .record import MAIN
from .sizes import OTHER_SIZE

Array = np.ndarray[Any, Any]
LARGEST_ACCESS = 16  # bytes of an access of a thread
MEMORY_LATENCY, SHARED_LATENCY, BARRIER_LATENCY = 600, 30, 30  # clocks
SPECIAL_INSTRUCTIONS = 8  # issue slots of a function such as exp: 16 lanes of a multiprocessor compute it
SIMPLE_CALLS = ("fma", "if_then_else")  # one issue slot
LOOP_INSTRUCTIONS = 2  # of an iteration of a loop that is not unrolled: add, compare and branch


def kernels_of(func: PrimFunc, target: Target) -> PrimFunc:
    """Lower a function scheduled for a GPU to nests of loops over blocks and threads, with barriers."""
    passes = [LowerBlocks(), *backend_of(target).lowering(target, Optimization()).loops]
    return run_passes(IRModule({MAIN: func.with_attr("global_symbol", MAIN)}), passes).of_type(PrimFunc)[MAIN]


def gpu_account(func: PrimFunc, target: Target, sizes: Mapping[str, int]) -> GpuAccount:
    """Estimate the cost of a function scheduled for a GPU, for the given values of symbolic sizes."""
    lowered = kernels_of(func, target)
    kernels = list(_kernels(lowered.body, lowered, _Values(sizes)))
    launched = {number: kernel for number, kernel in enumerate(kernels) if kernel is not None}
    return GpuAccount(tuple(launched.values()), Gpu.of(target), tuple(launched))


def _kernels(stmt: Any, func: PrimFunc, values: _Values, is_taken: bool = True) -> Iterator[KernelAccount | None]:
    """The kernels of a function, which are outermost loops over blocks or threads; None for those in other branches."""
    if is_bound(stmt):
        yield _Kernel(stmt, func, values).account() if is_taken else None
    elif isinstance(stmt, IfThenElse):
        holds = bool(values(stmt.condition))
        yield from _kernels(stmt.then_case, func, values, is_taken and holds)
        if stmt.else_case is not None:
            yield from _kernels(stmt.else_case, func, values, is_taken and not holds)
    else:
        if isinstance(stmt, LetStmt):
            values.known[id(stmt.var)] = values(stmt.value)
        for child in children(stmt):
            yield from _kernels(child, func, values, is_taken)


# -- values of all threads ------------------------------------------------------------------------------------------

_OPERATIONS = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    ">>": np.right_shift,
    "<<": np.left_shift,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}


@dataclass
class _Values:
    """Evaluates integer expressions for all threads of a block. known: values of variables by ``id``."""

    sizes: Mapping[str, int]
    known: dict[int, Array | int] = field(default_factory=dict)

    def __call__(self, expr: PrimExpr) -> Any:
        match expr:
            case IntImm() | FloatImm():
                return expr.value
            case Var():
                return self.known.get(id(expr), self.sizes.get(expr.name, OTHER_SIZE))
            case Cast():
                return self(expr.value)
            case Select():
                return np.where(self(expr.condition), self(expr.true_value), self(expr.false_value))
            case BinaryOp() if expr.op in _OPERATIONS:
                a, b = self(expr.a), self(expr.b)
                return _OPERATIONS[expr.op](a, np.maximum(b, 1) if expr.op in ("//", "%") else b)
        return 0  # loaded from memory


# -- a kernel -------------------------------------------------------------------------------------------------------


@dataclass
class _Kernel:
    """Counts the work of a kernel.

    found: the counts so far. loops: those around the current statement without threads and blocks. active: the threads
    of a block that execute it. requested: bytes of device memory by buffer. numbers: index of each thread by axis.
    stored, synced: the buffers that loops write, and the loops with barriers.
    """

    nest: For
    func: PrimFunc
    values: _Values

    def __post_init__(self) -> None:
        extents = launch_extents(self.nest)
        count = prod(extents.values())
        self.found = KernelAccount(threads=count, shared_bytes=shared_bytes(replace(self.func, body=self.nest)))
        self.loops: tuple[For, ...] = ()
        self.active = np.ones(count, bool)
        self.requested: dict[int, tuple[Buffer, float]] = {}
        self.numbers: dict[str, Array] = {}
        stride = 1
        for axis, extent in extents.items():
            self.numbers[axis] = np.arange(count) // stride % extent
            stride *= extent
        loops = [n for n in walk(self.nest) if isinstance(n, For)]
        self.stored = {id(loop): written_buffers(loop.body) for loop in loops}
        self.synced = {id(loop) for loop in loops if any(map(sync_scope, walk(loop.body)))}

    def account(self) -> KernelAccount:
        self.visit(self.nest)
        self.found.memory_bytes = sum(min(nbytes, self._nbytes(buffer)) for buffer, nbytes in self.requested.values())
        return self.found

    def _nbytes(self, buffer: Buffer) -> float:
        return float(prod(float(np.max(self.values(size))) for size in buffer.shape) * dt.nbytes(buffer.dtype))

    # -- statements

    def visit(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._loop(stmt)
            case IfThenElse():
                self._expression(stmt.condition)
                self._branches(stmt)
            case LetStmt():
                self._expression(stmt.value)
                self.values.known[id(stmt.var)] = self.values(stmt.value)
                self.visit(stmt.body)
            case Allocate():
                self._allocate(stmt.buffer)
                self.visit(stmt.body)
            case BufferStore():
                self._expression(stmt.value)
                self._access(stmt.buffer, stmt.indices, 1, is_store=True)
                self._wait(stmt)
            case Evaluate() if isinstance(stmt.value, Call):
                self._call(stmt.value)
            case While():
                self.visit(stmt.body)
            case _:
                for child in children(stmt):
                    self.visit(child)

    def _loop(self, loop: For) -> None:
        if loop.thread in THREAD_AXES:
            number = self.numbers[str(loop.thread)]
            self._inside(loop, number, number < np.max(self.values(loop.extent)))
        elif loop.thread in BLOCK_AXES:
            self.found.blocks *= self._extent(loop)
            self._inside(loop, 0, self.active)
        else:
            outside, self.loops = self.loops, (*self.loops, loop)
            self._inside(loop, 0, self.active)
            self.loops = outside
            if loop.kind == SERIAL:
                self._issue(LOOP_INSTRUCTIONS * self._count(self.loops) * self._extent(loop))

    def _inside(self, loop: For, value: Array | int, active: Array) -> None:
        outside, self.active = self.active, self.active & active
        self.values.known[id(loop.var)] = value
        self.visit(loop.body)
        self.active = outside

    def _branches(self, stmt: IfThenElse) -> None:
        """Visit the branches with the threads that take them; a condition on a loop variable counts as true."""
        loops = {id(loop.var) for loop in self.loops}
        varies = any(id(n) in loops for n in walk(stmt.condition))
        outside, taken = self.active, np.asarray(varies or self.values(stmt.condition), bool)
        for branch, active in ((stmt.then_case, outside & taken), (stmt.else_case, outside & ~taken)):
            self.active = active
            if branch is not None and active.any():
                self.visit(branch)
        self.active = outside

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.scope not in ("local", "warp"):
            return
        nbytes = int(self._nbytes(buffer))
        if self._has_variable_indices(buffer):
            self.found.local_bytes += nbytes
        else:
            self.found.registers += -(-nbytes // 4)

    def _has_variable_indices(self, buffer: Buffer) -> bool:
        """Whether an index of a buffer depends on a loop that is not unrolled."""
        serial = {id(n.var) for n in walk(self.nest) if isinstance(n, For) and n.kind == SERIAL}
        uses = (n for n in walk(self.nest) if isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer)
        return any(id(v) in serial for use in uses for v in walk(use.indices))

    # -- instructions

    def _expression(self, expr: PrimExpr) -> None:
        """Count the operations and loads of an expression. A multiplication in an addition is one instruction."""
        fused = {
            id(part) for n in walk(expr) if isinstance(n, BinaryOp) and n.op in "+-" for part in (n.a, n.b)
            if isinstance(part, BinaryOp) and part.op == "*"
        }  # fmt: skip
        for node in walk(expr):
            if isinstance(node, BufferLoad):
                self._access(node.buffer, node.indices, 1, is_store=False)
            elif isinstance(node, BinaryOp) and dt.is_float(node.a.dtype) and id(node) not in fused:
                self._issue(self._count(self.loops), is_float=True)
            elif isinstance(node, Call) and dt.is_float(node.dtype):
                slots = 1 if node.op in SIMPLE_CALLS else SPECIAL_INSTRUCTIONS
                self._issue(slots * self._count(self.loops), is_float=True)

    def _call(self, call: Call) -> None:
        """Count a barrier, or the accesses and operations of an instruction."""
        if not call.op.startswith("intrinsic."):
            self.found.waits += BARRIER_LATENCY * self._waits() * (sync_scope(Evaluate(call)) == "shared")
            return
        row = find_tensor_intrin(call.op.removeprefix("intrinsic."))
        self._issue(self._count(self.loops))
        if row.semantics is None:
            return
        for number, (operand, arg) in enumerate(zip(row.operands, call.args, strict=False)):
            load = arg.args[0] if isinstance(arg, Call) and arg.args else None
            if isinstance(load, BufferLoad):
                shared_by = 1 if operand.per_lane else row.lanes
                width = max(1, operand.shape[-1] if operand.per_lane else operand.elements // shared_by)
                self._access(load.buffer, load.indices, width, is_store=number < row.written)
        if row.lanes > 1 and row.accumulates:
            executed = self.active.sum() / row.lanes * self._count(self.loops)
            self.found.mma_flop += executed * _operations(row.function)

    def _issue(self, count: float, is_float: bool = False) -> None:
        """Count an instruction that each active thread executes ``count`` times."""
        warps = count * float(self._warps(self.active).any(axis=1).sum())
        self.found.instructions += warps
        self.found.float_instructions += warps if is_float else 0.0

    @staticmethod
    def _warps(per_thread: Array) -> Array:
        """Values of the threads by warp; missing threads are 0."""
        return np.pad(per_thread, (0, -len(per_thread) % WARP)).reshape(-1, WARP)

    def _extent(self, loop: For) -> int:
        return max(1, int(np.max(self.values(loop.extent))))

    def _count(self, loops: Sequence[For]) -> float:
        """Executions of a statement in loops by a thread; a vectorized loop is one."""
        return float(prod(self._extent(loop) for loop in loops if loop.kind != VECTORIZED))

    def _waits(self) -> float:
        """How often a thread reaches a statement: iterations of unrolled loops are in flight together."""
        return float(prod(self._extent(loop) for loop in self.loops if loop.kind == SERIAL))

    def _wait(self, stmt: BufferStore) -> None:
        """Count the clocks until the loads of a statement arrive, unless it only moves them to registers."""
        scopes = {n.buffer.scope for n in walk(stmt.value) if isinstance(n, BufferLoad)}
        moves = stmt.buffer.scope == "local" and not isinstance(stmt.value, BinaryOp)
        if moves or not self.active.any():
            return
        latency = MEMORY_LATENCY if "global" in scopes else SHARED_LATENCY if "shared" in scopes else 0
        self.found.waits += latency * self._waits()

    # -- accesses

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr], width: int, is_store: bool) -> None:
        """Count an access of ``width`` elements."""
        if buffer.scope not in ("global", "shared") or not self.active.any():
            return
        loops = self.loops if is_store else self._without_invariant(buffer, indices)
        item, offset = dt.nbytes(buffer.dtype), flat_index(buffer, indices)
        address = np.broadcast_to(self.values(offset), self.active.shape).astype(np.int64) * item
        lane, lanes = self._vector(offset, loops, width * item, item, address)
        executed = self._count([loop for loop in loops if loop is not lane])
        executed *= self._extent(lane) / lanes if lane is not None else 1.0
        nbytes = width * item * lanes
        self._issue(executed)
        if buffer.scope == "shared":
            self.found.shared_passes += executed * self._passes(address, nbytes)
            return
        sectors = self._sectors(address, nbytes)
        self.found.l2_bytes += executed * sectors * SECTOR
        _, before = self.requested.get(id(buffer), (buffer, 0.0))
        requested = executed * float(self.active.sum()) * nbytes * self.found.blocks
        self.requested[id(buffer)] = buffer, before + requested

    def _without_invariant(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[For, ...]:
        """The loops whose iterations load again: innermost loops in which a load is invariant run it once."""
        used = {id(n) for n in walk(indices)}
        kept: list[For] = []
        for position in reversed(range(len(self.loops))):
            loop = self.loops[position]
            if id(buffer) in self.stored[id(loop)] or id(loop) in self.synced:
                return (*self.loops[: position + 1], *kept)
            if id(loop.var) in used:
                kept.insert(0, loop)
                if loop.kind == SERIAL:
                    return (*self.loops[:position], *kept)
        return tuple(kept)

    def _vector(
        self, offset: PrimExpr, loops: Sequence[For], nbytes: int, item: int, address: Array
    ) -> tuple[For | None, int]:
        """The loop over adjacent elements that one access covers, and how many of them; None and 1 if there is none."""
        for loop in loops:
            if loop.kind not in (VECTORIZED, UNROLLED):
                continue
            self.values.known[id(loop.var)] = 1
            next_ = np.broadcast_to(self.values(offset), address.shape) * item
            self.values.known[id(loop.var)] = 0
            lanes = next((n for n in (8, 4, 2) if self._extent(loop) % n == 0 and n * nbytes <= LARGEST_ACCESS), 1)
            if np.all(next_ - address == nbytes):
                return loop, lanes
        return next((loop for loop in loops if loop.kind == VECTORIZED), None), 1

    def _sectors(self, address: Array, nbytes: int) -> float:
        """Sectors of device memory that the warps of a block access, each counted once per warp."""
        parts = -(-nbytes // SECTOR)
        keys = (np.arange(len(address)) // WARP << 44) | (address // SECTOR)
        return float(len(np.unique(keys[self.active]))) * parts

    def _passes(self, address: Array, nbytes: int) -> float:
        """Passes through the banks of shared memory; accesses of 8 and 16 bytes take 2 and 4, by parts of a warp."""
        parts = max(1, nbytes // 4)
        group = np.arange(len(address)) // max(1, WARP // parts)
        words = (address // 4)[:, None] + np.arange(parts)
        keys = np.unique(((group[:, None] << 44) | words)[self.active])
        banks = (keys >> 44) * WARP + keys % WARP
        per_bank = np.bincount(banks - banks.min() // WARP * WARP)
        return float(np.pad(per_bank, (0, -len(per_bank) % WARP)).reshape(-1, WARP).max(axis=1).sum())


def _operations(func: PrimFunc) -> float:
    """Operations of an instruction: those of its semantics, which are loops over blocks."""
    total = 0.0

    def visit(node: Any, count: int) -> None:
        nonlocal total
        if isinstance(node, For) and isinstance(node.extent, IntImm):
            count *= node.extent.value
        if isinstance(node, BufferStore):
            total += count * sum(isinstance(n, BinaryOp) and dt.is_float(n.a.dtype) for n in walk(node.value))
            return
        for child in children(node):
            visit(child, count)

    visit(func.body, 1)
    return total
