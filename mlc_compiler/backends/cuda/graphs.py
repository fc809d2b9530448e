"""CUDA graphs: the launches of a call are recorded when it is made a second time, and replayed from then on.

The launches of a call depend on its frame (addresses, numbers, sizes), on the addresses in tables among its arguments,
and on the address of the workspace. These are the key of a graph. A function keeps ``CAPACITY`` keys; a new one
replaces the oldest. Calls on a stream of the caller, who may be recording it, are not recorded.

The attribute ``cuda.graph`` says whether a graph function is recorded; without it, it is when it calls kernels only.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen import llvm_ir as ll
from ...codegen.host.code import external, field, function
from ...codegen.host.contexts import FAILED, WORKSPACE
from ...codegen.host.frames import Frame, tensor_infos
from ...codegen.loops import for_range
from ...codegen.values import I32, I64, PTR, VOID, i32, i64, is_null
from ...relax.nodes import Call, ExternFunc, Function
from .context import OWN_STREAM, STREAM
from .faults import Faults

CAPTURE = "cuda.graph"
CAPACITY = 16
_THREAD_LOCAL = 1  # CUstreamCaptureMode: other threads may go on using the driver


@dataclass(frozen=True)
class GraphCache:
    """A function's graphs in a context: from ``offset`` on, a count, then CUgraphExec and key of each.

    A key without a graph belongs to a call that was made once.
    """

    frame: Frame
    offset: int

    @property
    def tables(self) -> list[tuple[int, int]]:
        """Frame index and length of each table of addresses."""
        return [(slot.index, len(tensor_infos(slot.var))) for slot in self.frame.slots if slot.is_table]

    @property
    def key_words(self) -> int:
        """64-bit words of a key."""
        return 1 + self.frame.length + sum(length for _, length in self.tables)

    @property
    def entry_bytes(self) -> int:
        return 8 + 8 * self.key_words

    @property
    def end(self) -> int:
        """The offset after the cache."""
        return self.offset + 8 + CAPACITY * self.entry_bytes


class GraphEmitter:
    """Defines jobs that record and replay other jobs, ``void job(ptr context, ptr frame)``."""

    def __init__(self, faults: Faults):
        self.faults, self.module, self.driver = faults, faults.module, faults.driver
        self.compare = external(self.module, "memcmp", I32, [PTR, PTR, I64])
        self.copy = external(self.module, "memcpy", PTR, [PTR, PTR, I64])

    def emit(self, job: ll.Function, cache: GraphCache) -> ll.Function:
        """Define the job that calls ``job``, records it, or replays it."""
        fn, b = function(self.module, f"{job.name}.graph", VOID, [PTR, PTR])
        context, frame = fn.args
        own, used = (b.load(field(b, context, at), typ=I64) for at in (OWN_STREAM, STREAM))
        with b.if_then(b.icmp_unsigned("!=", own, used)):
            b.call(job, [context, frame])
            b.ret_void()
        key = self._key(b, context, frame, cache)
        entries, size = field(b, context, cache.offset + 8), i64(8 * cache.key_words)

        def look(i: ll.Value) -> None:
            entry = field(b, entries, b.mul(i, i64(cache.entry_bytes)))
            differs = b.call(self.compare, [field(b, entry, 8), key, size])
            with b.if_then(b.icmp_signed("==", differs, i32(0))):
                with b.if_then(is_null(b, b.load(entry, typ=PTR))):
                    b.store(self._record(b, job, context, frame), entry)
                self._launch(b, context, b.load(entry, typ=PTR))
                b.ret_void()

        for_range(b, "graph", i64(0), i64(CAPACITY), look)
        entry = field(b, entries, b.mul(self._next(b, field(b, context, cache.offset)), i64(cache.entry_bytes)))
        self._drop(b, entry)
        b.call(self.copy, [field(b, entry, 8), key, size])
        b.call(job, [context, frame])
        b.ret_void()
        return fn

    def destroy(self, b: ll.IRBuilder, context: ll.Value, cache: GraphCache) -> None:
        """Emit the destruction of a function's graphs."""
        for_range(
            b,
            "graph",
            i64(0),
            i64(CAPACITY),
            lambda i: self._drop(b, field(b, context, b.add(b.mul(i, i64(cache.entry_bytes)), i64(cache.offset + 8)))),
        )

    def _key(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, cache: GraphCache) -> ll.Value:
        key = b.alloca(ll.ArrayType(I64, cache.key_words), "key", align=8)
        b.store(b.load(field(b, context, WORKSPACE), typ=I64), key)
        b.call(self.copy, [field(b, key, 8), frame, i64(8 * cache.frame.length)])
        end = 8 + 8 * cache.frame.length
        for index, length in cache.tables:
            table = b.load(field(b, frame, 8 * index), typ=PTR)
            b.call(self.copy, [field(b, key, end), table, i64(8 * length)])
            end += 8 * length
        return key

    def _next(self, b: ll.IRBuilder, count_at: ll.Value) -> ll.Value:
        """The index of the entry to fill, round-robin."""
        count = b.load(count_at, typ=I64)
        b.store(b.add(count, i64(1)), count_at)
        return b.urem(count, i64(CAPACITY))

    def _drop(self, b: ll.IRBuilder, entry: ll.Value) -> None:
        old = b.load(entry, typ=PTR)
        with b.if_then(b.not_(is_null(b, old))):
            self.driver.call(b, "cuGraphExecDestroy", old)
            b.store(ll.Constant(PTR, None), entry)

    def _launch(self, b: ll.IRBuilder, context: ll.Value, recorded: ll.Value) -> None:
        stream = b.load(field(b, context, STREAM), typ=PTR)
        self.faults.check(b, context, self.driver.call(b, "cuGraphLaunch", recorded, stream), "replaying a graph")

    def _record(self, b: ll.IRBuilder, job: ll.Function, context: ll.Value, frame: ll.Value) -> ll.Value:
        """Emit code that records the launches of a job as a CUgraphExec, and returns from the function on failure."""
        with b.goto_entry_block():
            graph, recorded = (b.alloca(PTR, name) for name in ("graph", "recorded"))
        stream = b.load(field(b, context, STREAM), typ=PTR)
        self._require(b, context, self.driver.call(b, "cuStreamBeginCapture_v2", stream, i32(_THREAD_LOCAL)))
        b.call(job, [context, frame])
        self._require(b, context, self.driver.call(b, "cuStreamEndCapture", stream, graph))
        made = self.driver.call(b, "cuGraphInstantiateWithFlags", recorded, b.load(graph, typ=PTR), i64(0))
        self.driver.call(b, "cuGraphDestroy", b.load(graph, typ=PTR))
        self._require(b, context, made)
        return b.load(recorded, typ=PTR)

    def _require(self, b: ll.IRBuilder, context: ll.Value, status: ll.Value) -> None:
        """Emit a return from the job if this status or an earlier one is an error."""
        failed_at = field(b, context, FAILED)
        with b.if_then(b.icmp_unsigned("==", b.load(failed_at, typ=I32), i32(0)), likely=True):
            self.faults.check(b, context, status, "recording a graph")
        with b.if_then(b.icmp_unsigned("!=", b.load(failed_at, typ=I32), i32(0)), likely=False):
            b.ret_void()


def is_recorded(func: Function) -> bool:
    """Whether the calls of a planned graph function are recorded."""
    registered = any(isinstance(b.value, Call) and isinstance(b.value.target, ExternFunc) for b in func.bindings)
    return bool(func.attrs.get(CAPTURE, not registered))
