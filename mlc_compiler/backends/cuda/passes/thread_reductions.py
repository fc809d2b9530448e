"""Reductions over threads: partial results in registers, combined by shuffles and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from mlc_errors import MLCError

from ....ir import dtype as dt
from ....ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, as_expr, binary, cast, const, max_value, min_value
from ....ir.visitor import Rewriter, substitute, uses, walk
from ....passes.base import FunctionPass
from ....tir.nodes import (
    THREAD,
    UNROLLED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    seq,
)
from ....tir.schedule.access import update_operand
from ....tir.schedule.legality import REDUCES
from ....tir.threads import BLOCK_AXES, THREAD_AXES, is_bound, launch_extents, rewrite_kernels, thread_loops
from ..instructions.operands import SHORT
from ..machine import WARP

SHUFFLED = ("float32", "int32", "uint32")


@dataclass(frozen=True)
class ThreadReductions(FunctionPass):
    """Combine the results of reduction loops that ``Schedule.bind`` bound to ``threadIdx.x``.

    Each thread reduces its iterations into registers. Lanes of a warp exchange these by shuffles, warps through shared
    memory; then every thread has the result. The loops over threads of such a kernel become one loop around all its
    statements, which all threads run. The number of threads must be a power of two, and the block consist of whole
    warps. Needs: lowered tensor functions.
    """

    name = "thread-reductions"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return thread_reductions(func, name)


def thread_reductions(func: PrimFunc, name: str) -> PrimFunc:
    """Rewrite one function; see :class:`ThreadReductions`."""

    def rewrite(nest: For) -> Stmt:
        if not any(REDUCES in loop.annotations for loop in thread_loops(nest)):
            return nest
        return _inside_blocks(nest, lambda body: _Kernel(nest, name).rewrite(body))

    return replace(func, body=rewrite_kernels(func, rewrite))


def _inside_blocks(stmt: Stmt, rewrite: Callable[[Stmt], Stmt]) -> Stmt:
    """Rewrite the statement inside of the loops over blocks."""
    if is_bound(stmt, BLOCK_AXES):
        return replace(stmt, body=_inside_blocks(stmt.body, rewrite))
    return rewrite(stmt)


class _Kernel(Rewriter):
    def __init__(self, nest: For, function: str):
        self.function = function
        self.extents = launch_extents(nest)
        self.threads = {axis: Var(axis.replace("Idx.", "_")) for axis in self.extents}
        self.shared: list[Buffer] = []
        for loop in thread_loops(nest):
            if REDUCES in loop.annotations:
                self._check(loop)

    def _check(self, loop: For) -> None:
        size = loop.extent.value if isinstance(loop.extent, IntImm) else 0
        whole = loop.thread == THREAD_AXES[0] and size == self.extents[THREAD_AXES[0]]
        if not whole or size & (size - 1) or prod(self.extents.values()) % WARP:
            raise MLCError(
                f"loop {loop.var.name!r} reduces over {size} threads of {loop.thread}; expected all threads of "
                f"{THREAD_AXES[0]}, a power of two, in a block of whole warps",
                where=[f"function {self.function!r}"],
            )

    def rewrite(self, body: Stmt) -> Stmt:
        """The body in one loop over each axis of threads, inside the allocations of shared memory."""
        result = self(body)
        for axis, extent in self.extents.items():
            var = self.threads[axis]
            result = For(var, const(extent, var.dtype), result, THREAD, axis)
        for buffer in self.shared:
            result = Allocate(buffer, result)
        return result

    def __call__(self, node: Any) -> Any:
        return node if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        if node.buffer.scope != "shared":
            return self.rewrite_children(node)
        self.shared.append(node.buffer)
        return self(node.body)

    def rewrite_For(self, node: For) -> Stmt:
        if node.thread not in THREAD_AXES:
            return self.rewrite_children(node)
        thread, extent = self.threads[node.thread], self.extents[node.thread]
        inside = substitute(node.body, {node.var: cast(node.var.dtype, thread)})
        if REDUCES in node.annotations:
            return self._reduced(replace(node, body=inside), thread)
        body = self(inside)
        is_whole = isinstance(node.extent, IntImm) and node.extent.value == extent
        return body if is_whole else IfThenElse(thread < cast(thread.dtype, node.extent), body)

    # -- reductions

    def _reduced(self, loop: For, thread: Var) -> Stmt:
        """The iterations of one thread, then the exchange of the partial results."""
        sums = _accumulators(loop.body, thread)
        result = _Swap({id(a.buffer): a.part for a in sums})(self(loop.body))
        result = seq(*(a.start() for a in sums), result)
        for a in sums:
            result = Allocate(a.part, seq(result, self._combined(a.part, a.op, thread), a.finish()))
        return result

    def _combined(self, part: Buffer, op: str, thread: Var) -> Stmt:
        """Statements after which every thread has the result of all threads in ``part``."""
        threads = self.extents[THREAD_AXES[0]]
        within = _shuffles(part, op, min(threads, WARP))
        if threads <= WARP:
            return within
        warps = threads // WARP
        others = [axis for axis in self.extents if axis != THREAD_AXES[0]]
        shape = (*(as_expr(self.extents[a]) for a in others), IntImm(warps), *part.shape)
        shared = Buffer(f"{part.name}_warps", shape, part.dtype, "shared")
        self.shared.append(shared)
        lead = tuple(self.threads[axis] for axis in others)

        def put(e: tuple[PrimExpr, ...]) -> Stmt:
            return BufferStore(shared, part[e], (*lead, thread // WARP, *e))

        def take(e: tuple[PrimExpr, ...]) -> Stmt:
            return BufferStore(part, shared[(*lead, thread % warps, *e)], e)

        first_lane = IfThenElse((thread % WARP) == const(0, thread.dtype), _each(part, put))
        return seq(within, first_lane, _each(part, take), _shuffles(part, op, warps))


@dataclass(frozen=True)
class _Accumulator:
    """A buffer that the threads reduce into with ``op``. part: a thread's partial result."""

    buffer: Buffer
    part: Buffer
    op: str

    def start(self) -> Stmt:
        return _each(self.part, lambda e: BufferStore(self.part, _neutral(self.op, self.part.dtype), e))

    def finish(self) -> Stmt:
        return _each(self.part, lambda e: BufferStore(self.buffer, binary(self.op, self.buffer[e], self.part[e]), e))


def _accumulators(body: Stmt, thread: Var) -> list[_Accumulator]:
    """The buffers allocated outside of a reduction that it updates, at indices that do not depend on the thread."""
    private = {id(n.buffer) for n in walk(body) if isinstance(n, Allocate)}
    found: dict[int, _Accumulator] = {}
    for store in (n for n in walk(body) if isinstance(n, BufferStore)):
        buffer, value = store.buffer, store.value
        if buffer.scope != "local" or id(buffer) in private or uses(store.indices, thread):
            continue
        assert isinstance(value, BinaryOp) and update_operand(store) is not None
        part = Buffer(f"{buffer.name}_part", buffer.shape, buffer.dtype, "local")
        found.setdefault(id(buffer), _Accumulator(buffer, part, value.op))
    return list(found.values())


class _Swap(Rewriter):
    """Replaces buffers by others of the same shape."""

    def __init__(self, buffers: Mapping[int, Buffer]):
        self.buffers = buffers

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(self.buffers.get(id(node.buffer), node.buffer), self(node.indices))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        buffer = self.buffers.get(id(node.buffer), node.buffer)
        return BufferStore(buffer, self(node.value), self(node.indices))


def _each(buffer: Buffer, stmt: Callable[[tuple[PrimExpr, ...]], Stmt]) -> Stmt:
    """``stmt(index)`` for every element of a small buffer."""
    loops = [(Var("e"), size) for size in buffer.shape]
    body = stmt(tuple(const(0, var.dtype) if _is_one(size) else var for var, size in loops))
    for var, size in reversed(loops):
        body = body if _is_one(size) else For(var, size, body, UNROLLED)
    return body


def _is_one(size: PrimExpr) -> bool:
    return isinstance(size, IntImm) and size.value == 1


def _neutral(op: str, dtype: str) -> PrimExpr:
    if op in ("min", "max"):
        return max_value(dtype) if op == "min" else min_value(dtype)
    return const(1 if op == "*" else 0, dtype)


def _shuffles(part: Buffer, op: str, lanes: int) -> Stmt:
    """Statements after which every lane of each group of ``lanes`` has the result of the group (butterfly)."""
    return _each(part, lambda e: seq(*(_exchange(part, e, op, distance) for distance in _distances(lanes))))


def _distances(lanes: int) -> Iterator[int]:
    while lanes > 1:
        lanes //= 2
        yield lanes


def _exchange(part: Buffer, e: tuple[PrimExpr, ...], op: str, distance: int) -> Stmt:
    """Combine an element with that of lane ``lane ^ distance``."""
    carrier, pieces = _pieces(part[e])
    mine, theirs = (Buffer(name, (IntImm(len(pieces)),), carrier, "local") for name in ("mine", "theirs"))
    stmts: list[Stmt] = [BufferStore(mine, piece, (IntImm(i),)) for i, piece in enumerate(pieces)]
    for i in range(len(pieces)):
        addresses = tuple(Call("address_of", (b[i],), "handle") for b in (theirs, mine))
        call = Call(f"intrinsic.cuda.shfl.xor.{SHORT[carrier]}", (*addresses, IntImm(distance)), "handle")
        stmts.append(Evaluate(call))
    received = _joined([theirs[i] for i in range(len(pieces))], part.dtype)
    stmts.append(BufferStore(part, binary(op, part[e], received), e))
    return Allocate(mine, Allocate(theirs, seq(*stmts)))


def _pieces(value: PrimExpr) -> tuple[str, list[PrimExpr]]:
    """Split a value into 32-bit numbers for shuffles; returns their dtype and the numbers."""
    dtype = value.dtype
    if dtype in SHUFFLED:
        return dtype, [value]
    if dt.bits(dtype) < 32:
        return ("float32", [cast("float32", value)]) if dt.is_float(dtype) else ("int32", [cast("int32", value)])
    bits = Call("reinterpret", (value,), "int64") if dt.is_float(dtype) else cast("int64", value)
    return "int32", [cast("int32", bits), cast("int32", bits >> const(32, "int64"))]


def _joined(pieces: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    """The inverse of ``_pieces``."""
    if len(pieces) == 1:
        return cast(dtype, pieces[0])
    low, high = (cast("int64", piece) for piece in pieces)
    bits = (high << const(32, "int64")) | (low & const(0xFFFFFFFF, "int64"))
    return Call("reinterpret", (bits,), dtype) if dt.is_float(dtype) else cast(dtype, bits)
