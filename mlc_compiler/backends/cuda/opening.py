"""Opening a context: the driver, the device, its CUDA context, a stream, the kernels and the constants."""

from __future__ import annotations

from ...codegen import llvm_ir as ll
from ...codegen.host.code import field, function
from ...codegen.values import I32, I64, PTR, i32, i64
from .context import CONSTANTS, CONTEXT, DEVICE, OWN_STREAM
from .faults import TEXT_BYTES, Faults
from .jobs import Constants
from .loading import Loader


class Opener:
    """Defines in a host module ``open``: ``i32 open(ptr context, i32 device)``.

    It fills the fields of a context, which must be 0 before, and leaves the CUDA context in ``CONTEXT`` current.
    Returns 1, or 0 with the reason in the faults' text and only some fields filled.
    """

    def __init__(self, faults: Faults, loader: Loader, constants: Constants):
        self.faults, self.loader, self.constants = faults, loader, constants
        self.driver, self.module = faults.driver, faults.module
        self.open = self._define()

    def _define(self) -> ll.Function:
        fn, b = function(self.module, "mlc_cuda_open", I32, [PTR, I32])
        context, ordinal = fn.args
        self._require_zero(b, b.call(self.driver.resolve, [self.faults.text, i64(TEXT_BYTES)]))
        self._require(b, self.driver.call(b, "cuInit", i32(0)), "starting CUDA")
        self._find_device(b, context, ordinal)
        self._make_current(b, context)
        made = self.driver.call(b, "cuStreamCreate", field(b, context, OWN_STREAM), i32(0))
        self._require(b, made, "making a stream")
        self._require_zero(b, b.call(self.loader.load, [context]))
        if self.constants.nbytes:
            self._copy_constants(b, context)
        b.ret(i32(1))
        return fn

    def _find_device(self, b: ll.IRBuilder, context: ll.Value, ordinal: ll.Value) -> None:
        count = b.alloca(I32, "count")
        self._require(b, self.driver.call(b, "cuDeviceGetCount", count), "counting the devices")
        available = b.load(count, typ=I32)
        with b.if_then(b.icmp_signed(">=", ordinal, available), likely=False):
            self.faults.write(b, "there is no device %d; this machine has %d CUDA devices", ordinal, available)
            b.ret(i32(0))
        self._require(b, self.driver.call(b, "cuDeviceGet", field(b, context, DEVICE), ordinal), "finding the device")

    def _make_current(self, b: ll.IRBuilder, context: ll.Value) -> None:
        slot, device = b.alloca(PTR, "made"), b.load(field(b, context, DEVICE), typ=I32)
        self._require(b, self.driver.call(b, "cuDevicePrimaryCtxRetain", slot, device), "making a context")
        made = b.load(slot, typ=PTR)
        self._require(b, self.driver.call(b, "cuCtxPushCurrent_v2", made), "making a context")
        b.store(made, field(b, context, CONTEXT))

    def _copy_constants(self, b: ll.IRBuilder, context: ll.Value) -> None:
        size, at = i64(self.constants.nbytes), field(b, context, CONSTANTS)
        self._require(b, self.driver.call(b, "cuMemAlloc_v2", at, size), "memory for constants")
        data, stream = self.constants.data(self.module), b.load(field(b, context, OWN_STREAM), typ=PTR)
        copied = self.driver.call(b, "cuMemcpyHtoDAsync_v2", b.load(at, typ=I64), data, size, stream)
        self._require(b, copied, "copying constants")
        self._require(b, self.driver.call(b, "cuStreamSynchronize", stream), "copying constants")

    def _require(self, b: ll.IRBuilder, status: ll.Value, what: str) -> None:
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.call(self.faults.describe, [status, self.faults.errors.text(what), self.faults.errors.text("")])
            b.ret(i32(0))

    def _require_zero(self, b: ll.IRBuilder, status: ll.Value) -> None:
        """Emit a return of 0 if a step has failed, which has written the faults' text."""
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.ret(i32(0))
