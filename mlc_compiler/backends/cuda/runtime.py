"""Contexts on a CUDA device: a stream, the loaded kernels, constants, the workspace and recorded graphs.

A call runs on the caller's stream if the TVM FFI has one for the device (``TVMFFIEnvGetStream``), and returns when
its work is enqueued. Else it runs on the context's own stream and waits for it, unless ``device_set_asynchronous`` has
been called; ``device_synchronize`` and ``device_download`` wait. The own stream is a blocking stream: CUDA orders it
after work that was enqueued on the device's default stream before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...codegen import llvm_ir as ll
from ...codegen.emit import exported
from ...codegen.host.code import Require, external, field, function, is_one_of
from ...codegen.host.contexts import ARGUMENT, FAILED, HEAD_BYTES, ContextArgument, HostRuntime, Operation
from ...codegen.host.dlpack import CUDA_DEVICE, CUDA_HOST_DEVICE, CUDA_MANAGED_DEVICE, DL_DEVICE, DL_DEVICE_ID
from ...codegen.host.frames import frame_of
from ...codegen.host.module import HostModule
from ...codegen.statements import declare_kernel
from ...codegen.values import I32, I64, PTR, VOID, i32, i64, is_null
from ...ir.module import IRModule
from ...relax.nodes import Function
from ...tir.nodes import PrimFunc
from .context import ASYNCHRONOUS, CONSTANTS, CONTEXT, DEVICE, OWN_STREAM, STREAM
from .driver import Driver
from .emitter import ALIGNMENT
from .faults import Faults
from .graphs import GraphCache, GraphEmitter, is_recorded
from .host_functions import HOST_PARAMETERS, HostEmitter, Launcher
from .jobs import JOB_TYPE, Constants, DeviceJob
from .launches import KERNEL, Images, Kernel
from .loading import Loader
from .opening import Opener
from .operations import DeviceOperations

MAX_DEVICES = 256


class CudaRuntime(HostRuntime):
    """Contexts on a device; graph functions call the host functions of ``mod``, which launch ``kernels``.

    images: the code of each module of kernels; ``Kernel.module`` is an index into it.
    """

    argument = ContextArgument("device", 0, MAX_DEVICES - 1, "the system refused memory, or too many contexts are open")
    tensors_on_host = False
    alignment = ALIGNMENT

    def __init__(self, host: HostModule, mod: IRModule, images: Sequence[Images], kernels: Mapping[str, Kernel]):
        self.driver = Driver(host)
        self.faults = Faults(self.driver)
        self.launcher = Launcher(self.faults, kernels)
        self.loader = Loader(self.faults, self.launcher, images)
        self.constants = Constants(mod)
        self.caches = _graph_caches(mod, self.loader.end)
        self.context_bytes = max([self.loader.end, *(cache.end for cache in self.caches.values())])
        self.current_stream = host.errors.optional("TVMFFIEnvGetStream", PTR, [I32, I32])
        self.graphs = GraphEmitter(self.faults)
        self.hosts = {n: f for n, f in mod.of_type(PrimFunc).items() if not f.attrs.get(KERNEL)}
        self.functions = {n: declare_kernel(host.module, f, n, HOST_PARAMETERS) for n, f in self.hosts.items()}
        super().__init__(host)

    def define(self) -> None:
        self.synchronize = self._define_synchronize()
        self.enter, self.leave = self._define_enter(), self._define_leave()
        self.memory, self.release = self._define_memory(), self._define_release()
        self.stop = self._define_stop()
        self.start = self._define_start()
        for name, func in self.hosts.items():
            HostEmitter(self.functions[name], self.host.target, self.launcher).function(func)

    def emit_job(self, name: str, func: Function) -> ll.Function:
        fn = ll.Function(self.module, JOB_TYPE, f"{name}.job")
        fn.linkage = "internal"
        DeviceJob(fn, func, self.packed, self.functions, self.constants, self.synchronize).emit()
        return self.graphs.emit(fn, self.caches[name]) if name in self.caches else fn

    def execute(self, b: ll.IRBuilder, context: ll.Value, job: ll.Value, frame: ll.Value) -> None:
        status = b.call(self.enter, [context])
        with b.if_then(b.icmp_signed("==", status, i32(0)), likely=True):
            b.call_pointer(job, JOB_TYPE, [context, frame])
            b.call(self.leave, [context])

    def operations(self) -> Iterable[Operation]:
        return DeviceOperations(self.faults, self.synchronize)

    def require_device(self, b: ll.IRBuilder, context: ll.Value, tensor: ll.Value, require: Require) -> None:
        """Require tensors on the context's device, in managed memory, or in pinned memory of the host."""
        kind, index = (b.load(field(b, tensor, offset), typ=I32) for offset in (DL_DEVICE, DL_DEVICE_ID))
        reachable = is_one_of(b, kind, CUDA_DEVICE, CUDA_HOST_DEVICE, CUDA_MANAGED_DEVICE)
        advice = "copy it there first, as device_upload, or x.cuda() of torch, does"
        require(reachable, "ValueError", f"lies on device type %d; expected a tensor on a CUDA device: {advice}", kind)
        ordinal = b.load(field(b, context, ARGUMENT), typ=I32)
        here = b.or_(b.icmp_unsigned("==", index, ordinal), b.not_(is_one_of(b, kind, CUDA_DEVICE)))
        require(here, "ValueError", "lies on CUDA device %d; the context is on device %d", index, ordinal)

    def refuse(self, b: ll.IRBuilder, what: str) -> None:
        self.host.errors.fail(b, "RuntimeError", f"{what}: %s", self.faults.text)

    # -- calls --------------------------------------------------------------------------------------------------

    def _push(self, b: ll.IRBuilder, context: ll.Value) -> ll.Value:
        return self.driver.call(b, "cuCtxPushCurrent_v2", b.load(field(b, context, CONTEXT), typ=PTR))

    def _pop(self, b: ll.IRBuilder) -> None:
        with b.goto_entry_block():
            popped = b.alloca(PTR, "popped")
        self.driver.call(b, "cuCtxPopCurrent_v2", popped)

    def _define_synchronize(self) -> ll.Function:
        """``void synchronize(ptr context)``: wait for the call's stream; an error becomes that of the call."""
        fn, b = function(self.module, "mlc_cuda_synchronize", VOID, [PTR])
        context = fn.args[0]
        status = self.driver.call(b, "cuStreamSynchronize", b.load(field(b, context, STREAM), typ=PTR))
        with b.if_then(b.icmp_unsigned("==", b.load(field(b, context, FAILED), typ=I32), i32(0))):
            self.faults.check(b, context, status, "running the kernels")
        b.ret_void()
        return fn

    def _define_enter(self) -> ll.Function:
        """``i32 enter(ptr context)``: make the context current and choose the stream of a call; 0, or -1."""
        fn, b = function(self.module, "mlc_cuda_enter", I32, [PTR])
        context = fn.args[0]
        status = self._push(b, context)
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.ret(b.call(self.faults.fail, [context, status, self.faults.errors.text("making the context current")]))
        own = b.load(field(b, context, OWN_STREAM), typ=PTR)
        stream_at = field(b, context, STREAM)
        b.store(own, stream_at)
        with b.if_then(b.not_(self.host.errors.is_missing(b, self.current_stream))):
            ordinal = b.load(field(b, context, ARGUMENT), typ=I32)
            given = b.call(self.current_stream, [i32(CUDA_DEVICE), ordinal])
            b.store(b.select(is_null(b, given), own, given), stream_at)
        b.ret(i32(0))
        return fn

    def _define_leave(self) -> ll.Function:
        """``void leave(ptr context)``: wait for the context's own stream, if it was used and calls are synchronous."""
        fn, b = function(self.module, "mlc_cuda_leave", VOID, [PTR])
        context = fn.args[0]
        own, used = (b.ptrtoint(b.load(field(b, context, at), typ=PTR), I64) for at in (OWN_STREAM, STREAM))
        waits = b.icmp_unsigned("==", b.load(field(b, context, ASYNCHRONOUS), typ=I32), i32(0))
        with b.if_then(b.and_(waits, b.icmp_unsigned("==", own, used))):
            b.call(self.synchronize, [context])
        self._pop(b)
        b.ret_void()
        return fn

    # -- memory -------------------------------------------------------------------------------------------------

    def allocate_workspace(self, b: ll.IRBuilder, context: ll.Value, nbytes: ll.Value) -> ll.Value:
        return b.call(self.memory, [context, nbytes])

    def free_workspace(self, b: ll.IRBuilder, context: ll.Value, workspace: ll.Value) -> None:
        b.call(self.release, [context, workspace])

    def _define_memory(self) -> ll.Function:
        """``ptr memory(ptr context, i64 nbytes)``: allocate memory of the device; null when there is not enough."""
        fn, b = function(self.module, "mlc_cuda_memory", PTR, [PTR, I64])
        slot = b.alloca(PTR, "address")
        self._push(b, fn.args[0])
        status = self.driver.call(b, "cuMemAlloc_v2", slot, fn.args[1])
        self._pop(b)
        succeeded = b.icmp_signed("==", status, i32(0))
        b.ret(b.select(succeeded, b.load(slot, typ=PTR), ll.Constant(PTR, None)))
        return fn

    def _define_release(self) -> ll.Function:
        """``void release(ptr context, ptr address)``: free memory of the device, after the work that uses it."""
        fn, b = function(self.module, "mlc_cuda_release", VOID, [PTR, PTR])
        context, address = fn.args
        with b.if_then(is_null(b, address)):
            b.ret_void()
        self._push(b, context)
        self.driver.call(b, "cuMemFree_v2", b.ptrtoint(address, I64))
        self._pop(b)
        b.ret_void()
        return fn

    # -- start and stop -----------------------------------------------------------------------------------------

    def _define_start(self) -> ll.Function:
        """``i32 start(ptr context, i32 device)``: 1, or 0 with the reason in the faults' text."""
        opener = Opener(self.faults, self.loader, self.constants)
        fn, b = function(self.module, "mlc_cuda_start", I32, [PTR, I32])
        context = fn.args[0]
        fields = field(b, context, HEAD_BYTES)
        memset = external(self.module, "memset", PTR, [PTR, I32, I64])
        b.call(memset, [fields, i32(0), i64(self.context_bytes - HEAD_BYTES)])
        opened = b.call(opener.open, list(fn.args))
        with b.if_then(b.not_(is_null(b, b.load(field(b, context, CONTEXT), typ=PTR)))):
            self._pop(b)
        with b.if_then(b.icmp_signed("!=", opened, i32(0))):
            b.ret(i32(1))
        b.call(self.stop, [context])
        b.ret(i32(0))
        return fn

    def _define_stop(self) -> ll.Function:
        """``void stop(ptr context)``: release the resources that ``start`` has created, also after a failed start."""
        fn, b = function(self.module, "mlc_cuda_stop", VOID, [PTR])
        context = fn.args[0]
        with b.if_then(is_null(b, b.load(field(b, context, CONTEXT), typ=PTR))):
            b.ret_void()
        self._push(b, context)
        stream = b.load(field(b, context, OWN_STREAM), typ=PTR)
        constants = b.load(field(b, context, CONSTANTS), typ=I64)
        with b.if_then(b.not_(is_null(b, stream))):
            self.driver.call(b, "cuStreamSynchronize", stream)
        for cache in self.caches.values():
            self.graphs.destroy(b, context, cache)
        with b.if_then(b.icmp_unsigned("!=", constants, i64(0))):
            self.driver.call(b, "cuMemFree_v2", constants)
        self.loader.unload(b, context)
        with b.if_then(b.not_(is_null(b, stream))):
            self.driver.call(b, "cuStreamDestroy_v2", stream)
        self._pop(b)
        self.driver.call(b, "cuDevicePrimaryCtxRelease_v2", b.load(field(b, context, DEVICE), typ=I32))
        b.store(ll.Constant(PTR, None), field(b, context, CONTEXT))
        b.ret_void()
        return fn


def _graph_caches(mod: IRModule, offset: int) -> dict[str, GraphCache]:
    """The caches of the graph functions whose calls are recorded, one after the other from ``offset`` on."""
    caches: dict[str, GraphCache] = {}
    for name, func in exported(mod).items():
        if is_recorded(func):
            caches[name] = GraphCache(frame_of(func), offset)
            offset = caches[name].end
    return caches
