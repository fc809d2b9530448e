"""Errors of the CUDA driver: their text, with advice, raised by the library's entries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ...codegen import llvm_ir as ll
from ...codegen.host.code import external, field, function
from ...codegen.host.contexts import FAILED
from ...codegen.loops import for_range
from ...codegen.values import I8, I32, I64, PTR, VOID, i32, i64
from .driver import Driver, constant_table

TEXT_BYTES = 512

_LOST = (
    "the context is lost, start the process again; with CUDA_LAUNCH_BLOCKING=1 the error names the kernel, and "
    "compute-sanitizer finds its fault"
)
ADVICE: Mapping[int, str] = {
    2: "free memory on the GPU: end other programs, or take fewer or shorter sequences",
    3: "a forked process cannot use CUDA: start processes by spawn",
    35: "the driver is older than the library needs: install a newer one",
    100: "this machine has no CUDA device, or CUDA_VISIBLE_DEVICES hides it",
    209: "compile the library for this GPU",
    218: "the driver refuses the code: install a newer driver, or compile for this GPU with ptxas",
    222: "the driver is older than the library's PTX: install a newer one, or compile for this GPU with ptxas",
    **dict.fromkeys((700, 702, 710, 714, 715, 716, 717, 718, 719), _LOST),
    701: "the kernel needs more registers or shared memory than this GPU has: compile for it",
}
"""CUresult -> advice (cuda.h, enum cudaError_enum)."""


class Faults:
    """Defines, in a host module, the text of the last failure of this thread and functions that write it."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self.module, self.errors = driver.module, driver.errors
        self.text = ll.GlobalVariable(self.module, ll.ArrayType(I8, TEXT_BYTES), "mlc_cuda_problem")
        self.text.storage_class, self.text.linkage = "thread_local", "internal"
        self.text.initializer = ll.Constant(self.text.value_type, None)

    def write(self, b: ll.IRBuilder, message: str, *args: ll.Value) -> None:
        """Emit code that writes the text; ``message`` is a printf format."""
        snprintf = external(self.module, "snprintf", I32, [PTR, I64, PTR], variadic=True)
        b.call(snprintf, [self.text, i64(TEXT_BYTES), self.errors.text(message), *args])

    @cached_property
    def describe(self) -> ll.Function:
        """``void describe(i32 status, ptr what, ptr detail)``: write the text for a driver status."""
        fn, b = function(self.module, "mlc_cuda_describe", VOID, [I32, PTR, PTR])
        status, what, detail = fn.args
        slots = [b.alloca(PTR, name) for name in ("text", "name", "advice")]
        for slot, unknown in zip(slots, ("unknown error", "?", ""), strict=True):
            b.store(self.errors.text(unknown), slot)
        self.driver.call(b, "cuGetErrorString", status, slots[0])
        self.driver.call(b, "cuGetErrorName", status, slots[1])
        rows = [[i64(code), self.errors.text(f"; {advice}")] for code, advice in ADVICE.items()]
        table = constant_table(self.module, "mlc_cuda_advice", rows)

        def compare(i: ll.Value) -> None:
            row = field(b, table, b.mul(i, i64(16)))
            with b.if_then(b.icmp_unsigned("==", b.trunc(b.load(row, typ=I64), I32), status)):
                b.store(b.load(field(b, row, 8), typ=PTR), slots[2])

        for_range(b, "row", i64(0), i64(len(rows)), compare)
        text, name, advice = (b.load(slot, typ=PTR) for slot in slots)
        is_empty = b.icmp_unsigned("==", b.load(detail, typ=I8), ll.Constant(I8, 0))
        colon = b.select(is_empty, self.errors.text(""), self.errors.text(": "))
        self.write(b, "%s: %s (%s)%s%s%s", what, text, name, advice, colon, detail)
        b.ret_void()
        return fn

    @cached_property
    def fail(self) -> ll.Function:
        """``i32 fail(ptr context, i32 status, ptr what)``: raise the error of a status and mark the call as failed."""
        fn, b = function(self.module, "mlc_cuda_fail", I32, [PTR, I32, PTR])
        context, status, what = fn.args
        b.store(i32(1), field(b, context, FAILED))
        b.call(self.describe, [status, what, self.errors.text("")])
        self.errors.fail(b, "RuntimeError", "%s", self.text)
        return fn

    def check(self, b: ll.IRBuilder, context: ll.Value, status: ll.Value, what: str) -> None:
        """Emit ``fail`` for a status other than 0."""
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.call(self.fail, [context, status, self.errors.text(what)])
