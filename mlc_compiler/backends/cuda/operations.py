"""Functions that a library exports for the memory of a context's device, so that a caller needs no CUDA package.

They take integers (addresses, numbers of bytes) after the context, and run on its stream as graph functions do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...codegen import llvm_ir as ll
from ...codegen.host.code import field, function
from ...codegen.host.contexts import Operation
from ...codegen.values import I8, I32, I64, PTR, VOID, i32
from .context import ASYNCHRONOUS, STREAM
from .faults import Faults

Emit = Callable[..., ll.Value | None]
"""``emit(b, context, frame, *arguments)``: returns the status of the driver's call, or None without one."""


class DeviceOperations:
    """Defines the operations in a host module. synchronize: ``void (ptr context)``, waits for the stream."""

    def __init__(self, faults: Faults, synchronize: ll.Function):
        self.faults, self.module, self.driver = faults, faults.module, faults.driver
        self.synchronize = synchronize

    def __iter__(self) -> Iterator[Operation]:
        returning = {"device_alloc", "device_alloc_host", "device_free_bytes"}
        for name, (parameters, emit) in self._rows().items():
            yield Operation(name, parameters, self._job(name, len(parameters), emit), name in returning)

    def _rows(self) -> Mapping[str, tuple[tuple[str, ...], Emit]]:
        copy = ("to", "from", "nbytes")
        return {
            "device_alloc": (("nbytes",), lambda b, _, frame, n: self.driver.call(b, "cuMemAlloc_v2", frame, n)),
            "device_free": (("address",), lambda b, _, __, at: self.driver.call(b, "cuMemFree_v2", at)),
            "device_alloc_host": (("nbytes",), self._alloc_host),
            "device_free_host": (("address",), self._free_host),
            "device_upload": (copy, self._upload),
            "device_download": (copy, self._download),
            "device_copy": (copy, self._copy),
            "device_fill": (("to", "byte", "nbytes"), self._fill),
            "device_free_bytes": ((), self._free_bytes),
            "device_synchronize": ((), lambda b, context, _: b.call(self.synchronize, [context]) and None),
            "device_set_asynchronous": (("flag",), self._set_asynchronous),
        }

    def _job(self, name: str, count: int, emit: Emit) -> ll.Function:
        fn, b = function(self.module, f"{name}.job", VOID, [PTR, PTR])
        context, frame = fn.args
        arguments = [b.load(field(b, frame, 8 * i), typ=I64) for i in range(count)]
        status = emit(b, context, frame, *arguments)
        if status is not None:
            self.faults.check(b, context, status, name)
        b.ret_void()
        return fn

    def _stream(self, b: ll.IRBuilder, context: ll.Value) -> ll.Value:
        return b.load(field(b, context, STREAM), typ=PTR)

    def _alloc_host(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, nbytes: ll.Value) -> ll.Value:
        return self.driver.call(b, "cuMemHostAlloc", frame, nbytes, i32(0))

    def _free_host(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, address: ll.Value) -> ll.Value:
        return self.driver.call(b, "cuMemFreeHost", b.inttoptr(address, PTR))

    def _upload(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, *copy: ll.Value) -> ll.Value:
        to, source, nbytes = copy
        stream = self._stream(b, context)
        return self.driver.call(b, "cuMemcpyHtoDAsync_v2", to, b.inttoptr(source, PTR), nbytes, stream)

    def _download(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, *copy: ll.Value) -> None:
        to, source, nbytes = copy
        stream = self._stream(b, context)
        status = self.driver.call(b, "cuMemcpyDtoHAsync_v2", b.inttoptr(to, PTR), source, nbytes, stream)
        self.faults.check(b, context, status, "device_download")
        b.call(self.synchronize, [context])

    def _copy(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, *copy: ll.Value) -> ll.Value:
        return self.driver.call(b, "cuMemcpyDtoDAsync_v2", *copy, self._stream(b, context))

    def _fill(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, *fill: ll.Value) -> ll.Value:
        to, byte, nbytes = fill
        value = b.zext(b.trunc(byte, I8), I32)
        return self.driver.call(b, "cuMemsetD8Async", to, value, nbytes, self._stream(b, context))

    def _free_bytes(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value) -> ll.Value:
        return self.driver.call(b, "cuMemGetInfo_v2", frame, b.alloca(I64, "total"))

    def _set_asynchronous(self, b: ll.IRBuilder, context: ll.Value, frame: ll.Value, flag: ll.Value) -> None:
        b.store(b.trunc(flag, I32), field(b, context, ASYNCHRONOUS))
