"""The CUDA driver API as compiled libraries use it: a table of functions, resolved when a context is created.

The functions come from ``libcuda.so.1``, or from a table of addresses, in the order of ``DRIVER``, that was passed to
the library's function ``void mlc_cuda_set_driver(ptr table)``. A null table restores ``libcuda.so.1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from ...codegen import llvm_ir as ll
from ...codegen.host.code import external, function
from ...codegen.host.module import HostModule
from ...codegen.loops import for_range
from ...codegen.values import I32, I64, PTR, VOID, i32, i64, is_null

LIBRARY = "libcuda.so.1"
SET_DRIVER = "mlc_cuda_set_driver"

# Parameters in C's order; i64 are sizes and addresses on the device. All return a CUresult, int.
_DECLARATIONS = """
cuInit(i32 flags)
cuGetErrorName(i32 error, ptr text)
cuGetErrorString(i32 error, ptr text)
cuDeviceGetCount(ptr count)
cuDeviceGet(ptr device, i32 ordinal)
cuDeviceGetAttribute(ptr value, i32 attribute, i32 device)
cuDevicePrimaryCtxRetain(ptr context, i32 device)
cuDevicePrimaryCtxRelease_v2(i32 device)
cuCtxPushCurrent_v2(ptr context)
cuCtxPopCurrent_v2(ptr context)
cuModuleLoadDataEx(ptr module, ptr image, i32 num_options, ptr options, ptr values)
cuModuleUnload(ptr module)
cuModuleGetFunction(ptr function, ptr module, ptr name)
cuFuncSetAttribute(ptr function, i32 attribute, i32 value)
cuMemGetInfo_v2(ptr free, ptr total)
cuMemAlloc_v2(ptr address, i64 nbytes)
cuMemFree_v2(i64 address)
cuMemHostAlloc(ptr pointer, i64 nbytes, i32 flags)
cuMemFreeHost(ptr pointer)
cuMemcpyHtoDAsync_v2(i64 to, ptr from, i64 nbytes, ptr stream)
cuMemcpyDtoHAsync_v2(ptr to, i64 from, i64 nbytes, ptr stream)
cuMemcpyDtoDAsync_v2(i64 to, i64 from, i64 nbytes, ptr stream)
cuMemsetD8Async(i64 to, i32 byte, i64 nbytes, ptr stream)
cuStreamCreate(ptr stream, i32 flags)
cuStreamDestroy_v2(ptr stream)
cuStreamSynchronize(ptr stream)
cuStreamBeginCapture_v2(ptr stream, i32 mode)
cuStreamEndCapture(ptr stream, ptr graph)
cuGraphInstantiateWithFlags(ptr executable, ptr graph, i64 flags)
cuGraphLaunch(ptr executable, ptr stream)
cuGraphExecDestroy(ptr executable)
cuGraphDestroy(ptr graph)
cuLaunchKernelEx(ptr config, ptr function, ptr parameters, ptr extra)
cuTensorMapEncodeTiled(ptr map, i32 type, i32 rank, i64 address, ptr sizes, ptr strides, ptr box, ptr steps, \
i32 interleave, i32 swizzle, i32 promotion, i32 fill)
"""


def _parsed(declaration: str) -> tuple[str, tuple[str, ...]]:
    name, _, parameters = declaration.rstrip(")").partition("(")
    return name, tuple(parameter.split()[0] for parameter in parameters.split(", "))


DRIVER: Mapping[str, tuple[str, ...]] = dict(map(_parsed, _DECLARATIONS.split("\n")[1:-1]))
"""Function name -> types of its parameters (``i32``, ``i64``, ``ptr``), in the order of the table."""

_TYPES = {"i32": I32, "i64": I64, "ptr": PTR}
_RTLD_NOW = 2
_NO_DRIVER = f"this machine has no NVIDIA driver ({LIBRARY}): install it, or start the container with access to GPUs"
_OLD_DRIVER = "the NVIDIA driver is too old: it has no function %s; install one for CUDA 12 or later"


class Driver:
    """The table of functions in a host module, and calls through it."""

    def __init__(self, host: HostModule):
        self.errors = host.errors
        self.module = host.module
        self.table = self._variable("mlc_cuda_driver", ll.ArrayType(PTR, len(DRIVER)))
        self.is_given = self._variable("mlc_cuda_driver_is_given", I32)
        self._define_set_driver()

    def call(self, b: ll.IRBuilder, name: str, *args: ll.Value) -> ll.Value:
        """Emit a call of a function of ``DRIVER``; returns its status, 0 on success."""
        pointer = b.load(self._entry(b, i64(list(DRIVER).index(name))), typ=PTR)
        return b.call_pointer(pointer, ll.FunctionType(I32, [_TYPES[kind] for kind in DRIVER[name]]), args)

    def _variable(self, name: str, kind: ll.Type) -> ll.GlobalVariable:
        variable = ll.GlobalVariable(self.module, kind, name)
        variable.linkage, variable.initializer = "internal", ll.Constant(kind, None)
        return variable

    def _entry(self, b: ll.IRBuilder, index: ll.Value) -> ll.Value:
        return b.gep(self.table, [index], source_etype=PTR)

    def _define_set_driver(self) -> None:
        fn = ll.Function(self.module, ll.FunctionType(VOID, [PTR]), SET_DRIVER)
        b = ll.IRBuilder(fn.append_basic_block("entry"))
        is_reset = is_null(b, fn.args[0])
        b.store(b.select(is_reset, i32(0), i32(1)), self.is_given)
        with b.if_then(b.not_(is_reset)):
            copy = external(self.module, "memcpy", PTR, [PTR, PTR, I64])
            b.call(copy, [self.table, fn.args[0], i64(8 * len(DRIVER))])
        b.ret_void()

    @cached_property
    def resolve(self) -> ll.Function:
        """``i32 resolve(ptr problem, i64 size)``: fill the table; 0, or -1 with the reason as text in ``problem``."""
        fn, b = function(self.module, "mlc_cuda_resolve", I32, [PTR, I64])
        snprintf = external(self.module, "snprintf", I32, [PTR, I64, PTR], variadic=True)
        lookup = external(self.module, "dlsym", PTR, [PTR, PTR])

        with b.if_then(b.icmp_unsigned("!=", b.load(self.is_given, typ=I32), i32(0))):
            b.ret(i32(0))
        opened = b.call(external(self.module, "dlopen", PTR, [PTR, I32]), [self.errors.text(LIBRARY), i32(_RTLD_NOW)])
        with b.if_then(is_null(b, opened)):
            b.call(snprintf, [*fn.args, self.errors.text(_NO_DRIVER)])
            b.ret(i32(-1))
        names = constant_table(self.module, "mlc_cuda_names", [[self.errors.text(name)] for name in DRIVER])

        def find(i: ll.Value) -> None:
            name = b.load(b.gep(names, [i], source_etype=PTR), typ=PTR)
            found = b.call(lookup, [opened, name])
            with b.if_then(is_null(b, found)):
                b.call(snprintf, [*fn.args, self.errors.text(_OLD_DRIVER), name])
                b.ret(i32(-1))
            b.store(found, self._entry(b, i))

        for_range(b, "function", i64(0), i64(len(DRIVER)), find)
        b.ret(i32(0))
        return fn


def constant_table(module: ll.Module, name: str, rows: Sequence[Sequence[ll.Value]]) -> ll.GlobalVariable:
    """A constant array of rows of 64-bit integers and addresses; the fields of a row follow each other."""
    fields = [value for row in rows for value in row]
    struct = ll.LiteralStructType([value.type for value in fields])
    table = ll.GlobalVariable(module, struct, name)
    table.linkage, table.global_constant, table.initializer = "internal", True, ll.Constant(struct, fields)
    return table
