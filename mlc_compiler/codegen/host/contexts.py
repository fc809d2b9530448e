"""Contexts: the execution state of a library's functions, behind handles that the library validates.

A context is a block of memory: the head below, then the fields of the back end (workers, a device). Its handle is a
serial number and a slot of the library's table of contexts. The memory of a context is never freed, only reused, so
that an invalid handle, or that of a destroyed context, can be rejected without reading freed memory.

A forked process inherits its parent's contexts without their workers: its first call starts them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from ...relax.nodes import Function
from .. import llvm_ir as ll
from ..loops import for_range
from ..values import I32, I64, PTR, i32, i64, is_null
from .code import Require, external, field, function, is_one_of, store_atomic
from .dlpack import CPU_DEVICE, CUDA_HOST_DEVICE, DL_DEVICE
from .module import HostModule
from .packed_calls import PackedCalls

# Byte offsets of the head's fields. Fields written by different threads are on different cache lines.
HANDLE, SERIAL = 0, 8
FAILED = 16  # the number of the external call that failed in this run; 0: none
PROCESS = 20  # pid of the process that started the context; ADOPTING while a forked process restarts it
ARGUMENT = 24  # the argument of context_create
WORKSPACE, WORKSPACE_BYTES = 32, 40
BUSY = 64
HEAD_BYTES = 128

MAX_CONTEXTS = 1024
SLOT_BITS = 16
FREE, CHANGING = 0, -1  # values of HANDLE: the slot is free; the context is being started or stopped
ADOPTING = -1

# Error codes of ``run`` and ``destroy``.
BUSY_CONTEXT, NO_MEMORY, CALL_FAILED, NO_CONTEXT, NOT_STARTED = -1, -2, -3, -4, -5


@dataclass(frozen=True)
class ContextArgument:
    """The integer argument of ``context_create``. refused: error message for a context that cannot be created."""

    name: str
    minimum: int
    maximum: int
    refused: str


DeviceCheck = Callable[[ll.IRBuilder, ll.Value, ll.Value, Require], None]
"""``check(b, context, tensor, require)``: emits the check that kernels can access the memory of a DLTensor."""


def require_host(b: ll.IRBuilder, context: ll.Value, tensor: ll.Value, require: Require) -> None:
    """The ``DeviceCheck`` for host memory."""
    device = b.load(field(b, tensor, DL_DEVICE), typ=I32)
    on_host = is_one_of(b, device, CPU_DEVICE, CUDA_HOST_DEVICE)
    require(on_host, "ValueError", "lies on device type %d; expected a CPU tensor", device)


@dataclass(frozen=True)
class Operation:
    """A function on a context that the back end exports; it takes integers and returns an integer or nothing.

    job: ``void job(ptr context, ptr frame)`` reads the int64 arguments from the frame and stores its result in the
    first entry.
    """

    name: str
    parameters: tuple[str, ...]
    job: ll.Function
    returns: bool = False


class HostRuntime(ABC):
    """The run-time part of a library's host code: contexts, and graph functions that run in them.

    Back ends derive from it. ``define`` defines the functions ``start``: ``i32 (ptr context, i32 argument)``, 0 on
    failure, and ``stop``: ``void (ptr context)``. tensors_on_host: whether kernels take tensors in host memory.
    alignment: required of tensors, in bytes, besides that of their elements. device_texts: the library's code for
    devices other than the host, by file suffix (``sm_80.ptx``). metadata: the entries of the library's metadata that
    describe that code.
    """

    argument: ClassVar[ContextArgument]
    context_bytes: int
    tensors_on_host: ClassVar[bool] = True
    alignment: ClassVar[int] = 1
    device_texts: Mapping[str, str] = MappingProxyType({})
    metadata: Mapping[str, Any] = MappingProxyType({})

    start: ll.Function
    stop: ll.Function

    def __init__(self, host: HostModule):
        self.host = host
        self.module = host.module
        self.packed = PackedCalls(host.module, host.errors)
        self.table = ll.GlobalVariable(self.module, ll.ArrayType(PTR, MAX_CONTEXTS), "mlc_contexts")
        self.table.linkage = "internal"
        self.table.initializer = ll.Constant(self.table.value_type, None)
        self.define()
        self.allocate = self._define_allocate()
        self.create = self._define_create()
        self.find = self._define_find()
        self.destroy = self._define_destroy()
        self.adopt = self._define_adopt()
        self.run = self._define_run()

    @abstractmethod
    def define(self) -> None:
        """Define ``start``, ``stop`` and their helpers."""

    @abstractmethod
    def emit_job(self, name: str, func: Function) -> ll.Function:
        """Define the job of a planned graph function; ``execute`` takes its address."""

    @abstractmethod
    def execute(self, b: ll.IRBuilder, context: ll.Value, job: ll.Value, frame: ll.Value) -> None:
        """Emit the synchronous execution of a job in a context."""

    def further_modules(self) -> Iterable[str]:
        """LLVM modules of functions that the host module calls, as text."""
        return ()

    def operations(self) -> Iterable[Operation]:
        """Define the functions on contexts that the back end exports."""
        return ()

    def require_device(self, b: ll.IRBuilder, context: ll.Value, tensor: ll.Value, require: Require) -> None:
        """The ``DeviceCheck`` of tensor arguments."""
        require_host(b, context, tensor, require)

    def refuse(self, b: ll.IRBuilder, what: str) -> None:
        """Emit the error for a context that ``start`` could not start, and a return from the function being built."""
        self.host.errors.fail(b, "RuntimeError", f"{what}: {self.argument.refused}")

    # -- memory -------------------------------------------------------------------------------------------------

    def allocate_workspace(self, b: ll.IRBuilder, context: ll.Value, nbytes: ll.Value) -> ll.Value:
        """Emit the allocation of a workspace; null when it fails. nbytes: a multiple of 64."""
        return b.call(external(self.module, "aligned_alloc", PTR, [I64, I64]), [i64(64), nbytes])

    def free_workspace(self, b: ll.IRBuilder, context: ll.Value, workspace: ll.Value) -> None:
        """Emit the release of a workspace, which may be null."""
        b.call(external(self.module, "free", ll.VoidType(), [PTR]), [workspace])

    def _drop_workspace(self, b: ll.IRBuilder, context: ll.Value) -> None:
        b.store(ll.Constant(PTR, None), field(b, context, WORKSPACE))
        b.store(i64(0), field(b, context, WORKSPACE_BYTES))

    def _grow_workspace(self, b: ll.IRBuilder, context: ll.Value, needed: ll.Value) -> None:
        size_at, memory_at = field(b, context, WORKSPACE_BYTES), field(b, context, WORKSPACE)
        with b.if_then(b.icmp_unsigned(">", needed, b.load(size_at, typ=I64)), likely=False):
            self.free_workspace(b, context, b.load(memory_at, typ=PTR))
            rounded = b.and_(b.add(needed, i64(63)), i64(-64))
            memory = self.allocate_workspace(b, context, rounded)
            b.store(memory, memory_at)
            b.store(rounded, size_at)
            with b.if_then(is_null(b, memory)):
                b.store(i64(0), size_at)
                self._leave(b, context, i32(NO_MEMORY))

    # -- processes ----------------------------------------------------------------------------------------------

    def _process(self, b: ll.IRBuilder) -> ll.Value:
        """The pid of this process."""
        return b.call(external(self.module, "getpid", I32, []), [])

    def _forget(self, b: ll.IRBuilder, context: ll.Value) -> None:
        """Reset the state inherited from the parent process: a running call, and the workspace."""
        self._drop_workspace(b, context)
        for offset in (FAILED, BUSY):
            store_atomic(b, i32(0), field(b, context, offset))

    def _define_adopt(self) -> ll.Function:
        """``i32 adopt(ptr context)``: restart a context created before a fork; 0 or an error of ``run``."""
        fn, b = function(self.module, "mlc_context_adopt", I32, [PTR])
        context, process_at = fn.args[0], field(b, fn.args[0], PROCESS)
        owner = b.load_atomic(process_at, "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("==", owner, self._process(b)), likely=True):
            b.ret(i32(0))
        claim = b.cmpxchg(process_at, owner, i32(ADOPTING), "acq_rel", "monotonic")
        is_first = b.and_(b.extract_value(claim, 1), b.icmp_unsigned("!=", owner, i32(ADOPTING)))
        with b.if_then(b.not_(is_first)):
            b.ret(i32(BUSY_CONTEXT))
        self._forget(b, context)
        started = b.call(self.start, [context, b.load(field(b, context, ARGUMENT), typ=I32)])
        with b.if_then(b.icmp_unsigned("==", started, i32(0))):
            store_atomic(b, owner, process_at)
            b.ret(i32(NOT_STARTED))
        store_atomic(b, self._process(b), process_at)
        b.ret(i32(0))
        return fn

    # -- the table ----------------------------------------------------------------------------------------------

    def _entry_of(self, b: ll.IRBuilder, slot: ll.Value) -> ll.Value:
        return b.gep(self.table, [slot], source_etype=PTR)

    def _define_allocate(self) -> ll.Function:
        """``ptr allocate(ptr entry)``: the context of a table entry, allocated on first use; null when that fails."""
        fn, b = function(self.module, "mlc_context_allocate", PTR, [PTR])
        found = b.load_atomic(fn.args[0], "acquire", 8, typ=PTR)
        with b.if_then(b.not_(is_null(b, found))):
            b.ret(found)
        size = -(-self.context_bytes // 64) * 64
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
        """``i64 create(i32 argument)``: the handle of a context; 0 without memory or free slots, or NOT_STARTED."""
        fn, b = function(self.module, "mlc_context_create", I64, [I32])

        def attempt(slot: ll.Value) -> None:
            context = b.call(self.allocate, [self._entry_of(b, slot)])
            with b.if_then(is_null(b, context)):
                b.ret(i64(0))
            claim = b.cmpxchg(field(b, context, HANDLE), i64(FREE), i64(CHANGING), "acq_rel", "monotonic")
            with b.if_then(b.extract_value(claim, 1)):
                self._start(b, context, slot, fn.args[0])

        for_range(b, "slot", i64(0), i64(MAX_CONTEXTS), attempt)
        b.ret(i64(0))
        return fn

    def _start(self, b: ll.IRBuilder, context: ll.Value, slot: ll.Value, argument: ll.Value) -> None:
        store_atomic(b, i32(0), field(b, context, FAILED))
        b.store(argument, field(b, context, ARGUMENT))
        started = b.call(self.start, [context, argument])
        with b.if_then(b.icmp_unsigned("==", started, i32(0))):
            store_atomic(b, i64(FREE), field(b, context, HANDLE))
            b.ret(i64(NOT_STARTED))
        store_atomic(b, self._process(b), field(b, context, PROCESS))
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
        """``i32 destroy(ptr context, i64 handle)``: 0, BUSY_CONTEXT while a call runs, NO_CONTEXT when it is destroyed.

        The workers of a context created before a fork belong to the parent process and are not joined here.
        """
        fn, b = function(self.module, "mlc_context_destroy", I32, [PTR, I64])
        context, handle = fn.args
        owner = b.load_atomic(field(b, context, PROCESS), "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("!=", owner, self._process(b)), likely=False):
            self._forget(b, context)
            swap = b.cmpxchg(field(b, context, HANDLE), handle, i64(FREE), "acq_rel", "monotonic")
            b.ret(b.select(b.extract_value(swap, 1), i32(0), i32(NO_CONTEXT)))
        busy = b.atomic_rmw("xchg", field(b, context, BUSY), i32(1), "acquire")
        with b.if_then(b.icmp_unsigned("!=", busy, i32(0))):
            b.ret(i32(BUSY_CONTEXT))
        claim = b.cmpxchg(field(b, context, HANDLE), handle, i64(CHANGING), "acq_rel", "monotonic")
        with b.if_then(b.not_(b.extract_value(claim, 1))):
            self._leave(b, context, i32(NO_CONTEXT))
        self.free_workspace(b, context, b.load(field(b, context, WORKSPACE), typ=PTR))
        b.call(self.stop, [context])
        self._drop_workspace(b, context)
        store_atomic(b, i32(0), field(b, context, BUSY))
        store_atomic(b, i64(FREE), field(b, context, HANDLE))
        b.ret(i32(0))
        return fn

    # -- calls --------------------------------------------------------------------------------------------------

    def _define_run(self) -> ll.Function:
        """``i32 run(ptr context, i64 handle, ptr job, ptr frame, i64 workspace bytes)``: 0 or an error above."""
        fn, b = function(self.module, "mlc_context_run", I32, [PTR, I64, PTR, PTR, I64])
        context, handle, job, frame, needed = fn.args
        adopted = b.call(self.adopt, [context])
        with b.if_then(b.icmp_signed("<", adopted, i32(0)), likely=False):
            b.ret(adopted)
        busy = b.atomic_rmw("xchg", field(b, context, BUSY), i32(1), "acquire")
        with b.if_then(b.icmp_unsigned("!=", busy, i32(0))):
            b.ret(i32(BUSY_CONTEXT))
        current = b.load_atomic(field(b, context, HANDLE), "acquire", 8, typ=I64)
        with b.if_then(b.icmp_unsigned("!=", current, handle), likely=False):
            self._leave(b, context, i32(NO_CONTEXT))
        self._grow_workspace(b, context, needed)
        self.execute(b, context, job, frame)
        failed = b.load(field(b, context, FAILED), typ=I32)
        b.store(i32(0), field(b, context, FAILED))
        self._leave(b, context, b.select(b.icmp_unsigned("==", failed, i32(0)), i32(0), i32(CALL_FAILED)))
        return fn

    def _leave(self, b: ll.IRBuilder, context: ll.Value, status: ll.Value) -> None:
        store_atomic(b, i32(0), field(b, context, BUSY))
        b.ret(status)


def _below(b: ll.IRBuilder, value: ll.Value, limit: int) -> ll.Value:
    return b.icmp_signed("<", value, i64(limit))
