"""Context handles: numbers that a library checks before it believes them.

A handle is a serial number and a slot of the library's table of contexts. The memory of a context is never given back,
only used again, so that an invented handle or one of a destroyed context is told from a live one without touching
memory that is not there.
"""

from __future__ import annotations

from llvmlite import ir as ll

from .team import (
    BUSY,
    CONTEXT_BYTES,
    HANDLE,
    PROCESS,
    SERIAL,
    TeamRuntime,
    external,
    field,
    function,
    store_atomic,
)
from .values import I32, I64, PTR, i32, i64, is_null

MAX_CONTEXTS = 1024
SLOT_BITS = 16
FREE, CHANGING = 0, -1  # what is in a context's handle field while it is nobody's, and while it starts or stops
BUSY_ERROR, GONE_ERROR = -1, -2


class ContextTable:
    """Defines the functions that make, find and end contexts in a module."""

    def __init__(self, module: ll.Module, team: TeamRuntime):
        self.module = module
        self.team = team
        self.table = ll.GlobalVariable(module, ll.ArrayType(PTR, MAX_CONTEXTS), "mlc_contexts")
        self.table.linkage = "internal"
        self.table.initializer = ll.Constant(self.table.value_type, None)
        self.table.type = PTR
        self.allocate = self._define_allocate()
        self.create = self._define_create()
        self.find = self._define_find()
        self.destroy = self._define_destroy()

    def _entry_of(self, b: ll.IRBuilder, slot: ll.Value) -> ll.Value:
        return b.gep(self.table, [slot], source_etype=PTR)

    def _define_allocate(self) -> ll.Function:
        """``ptr allocate(ptr entry)``: the context of a table entry, made when there is none; null without memory."""
        fn, b = function(self.module, "mlc_context_allocate", PTR, [PTR])
        found = b.load_atomic(fn.args[0], "acquire", 8, typ=PTR)
        with b.if_then(b.not_(is_null(b, found))):
            b.ret(found)
        size = -(-CONTEXT_BYTES // 64) * 64
        made = b.call(external(self.module, "aligned_alloc", PTR, [I64, I64]), [i64(64), i64(size)])
        with b.if_then(is_null(b, made)):
            b.ret(made)
        b.call(external(self.module, "memset", PTR, [PTR, I32, I64]), [made, i32(0), i64(size)])
        swap = b.cmpxchg(fn.args[0], ll.Constant(PTR, None), made, "acq_rel", "acquire")
        with b.if_then(b.extract_value(swap, 1)):
            b.ret(made)
        b.call(external(self.module, "free", ll.VoidType(), [PTR]), [made])
        b.ret(b.extract_value(swap, 0))
        return fn

    def _define_create(self) -> ll.Function:
        """``i64 create(i32 threads)``: the handle of a started context; 0 when memory, threads or slots are refused."""
        fn, b = function(self.module, "mlc_context_create", I64, [I32])
        before = b.block
        head, body, refused = (b.append_basic_block(n) for n in ("slot", "slot.try", "refused"))
        b.branch(head)
        b.position_at_end(head)
        slot = b.phi(I64)
        slot.add_incoming(i64(0), before)
        b.cbranch(b.icmp_unsigned("<", slot, i64(MAX_CONTEXTS)), body, refused)
        b.position_at_end(body)
        context = b.call(self.allocate, [self._entry_of(b, slot)])
        with b.if_then(is_null(b, context)):
            b.ret(i64(0))
        claim = b.cmpxchg(field(b, context, HANDLE), i64(FREE), i64(CHANGING), "acq_rel", "monotonic")
        with b.if_then(b.extract_value(claim, 1)):
            self._start(b, context, slot, fn.args[0])
        slot.add_incoming(b.add(slot, i64(1)), b.block)
        b.branch(head)
        b.position_at_end(refused)
        b.ret(i64(0))
        return fn

    def _start(self, b: ll.IRBuilder, context: ll.Value, slot: ll.Value, threads: ll.Value) -> None:
        started = b.call(self.team.start, [context, threads])
        with b.if_then(b.icmp_unsigned("==", started, i32(0))):
            store_atomic(b, i64(FREE), field(b, context, HANDLE))
            b.ret(i64(0))
        serial = b.add(b.load(field(b, context, SERIAL), typ=I64), i64(1))
        b.store(serial, field(b, context, SERIAL))
        handle = b.or_(b.shl(serial, i64(SLOT_BITS)), slot)
        store_atomic(b, handle, field(b, context, HANDLE))
        b.ret(handle)

    def _define_find(self) -> ll.Function:
        """``ptr find(i64 handle)``: the live context of a handle, or null."""
        fn, b = function(self.module, "mlc_context_find", PTR, [I64])
        handle, null = fn.args[0], ll.Constant(PTR, None)
        slot = b.and_(handle, i64((1 << SLOT_BITS) - 1))
        with b.if_then(b.or_(_below(b, handle, 1), b.not_(_below(b, slot, MAX_CONTEXTS)))):
            b.ret(null)
        context = b.load_atomic(self._entry_of(b, slot), "acquire", 8, typ=PTR)
        with b.if_then(is_null(b, context)):
            b.ret(null)
        current = b.load_atomic(field(b, context, HANDLE), "acquire", 8, typ=I64)
        b.ret(b.select(b.icmp_unsigned("==", current, handle), context, null))
        return fn

    def _define_destroy(self) -> ll.Function:
        """``i32 destroy(ptr context, i64 handle)``: 0, BUSY_ERROR while a call runs, GONE_ERROR when it is no more.

        The workers of a context that was made before a fork belong to the parent process: then nothing is ended here.
        """
        fn, b = function(self.module, "mlc_context_destroy", I32, [PTR, I64])
        context, handle = fn.args
        owner = b.load_atomic(field(b, context, PROCESS), "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("!=", owner, self.team.process(b)), likely=False):
            self.team.forget(b, context)
            swap = b.cmpxchg(field(b, context, HANDLE), handle, i64(FREE), "acq_rel", "monotonic")
            gone = i32(GONE_ERROR)
            b.ret(b.select(b.extract_value(swap, 1), i32(0), gone))
        busy = b.atomic_rmw("xchg", field(b, context, BUSY), i32(1), "acquire")
        with b.if_then(b.icmp_unsigned("!=", busy, i32(0))):
            b.ret(i32(BUSY_ERROR))
        claim = b.cmpxchg(field(b, context, HANDLE), handle, i64(CHANGING), "acq_rel", "monotonic")
        with b.if_then(b.not_(b.extract_value(claim, 1))):
            store_atomic(b, i32(0), field(b, context, BUSY))
            b.ret(i32(GONE_ERROR))
        b.call(self.team.stop, [context])
        store_atomic(b, i32(0), field(b, context, BUSY))
        store_atomic(b, i64(FREE), field(b, context, HANDLE))
        b.ret(i32(0))
        return fn


def _below(b: ll.IRBuilder, value: ll.Value, limit: int) -> ll.Value:
    return b.icmp_signed("<", value, i64(limit))
