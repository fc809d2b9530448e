"""Emit host functions, which launch kernels on the stream of a context, as LLVM code.

A host function is ``void host(ptr context, buffers…, scalars…)``. Its buffers are addresses on the device, which it
passes on and never reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ...codegen import llvm_ir as ll
from ...codegen import values as v
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import field, function
from ...codegen.host.contexts import FAILED
from ...codegen.statements import StmtEmitter
from ...codegen.values import I32, I64, PTR, VOID, i32, i64
from ...ir.expr import Call, PrimExpr
from ...ir.visitor import walk
from ...target import Target
from ...tir.calling import flat_index
from ...tir.nodes import Allocate, BufferLoad, BufferStore, Evaluate, Stmt
from .context import FUNCTIONS, STREAM
from .driver import constant_table
from .faults import Faults
from .launches import Kernel, LaunchCall, TensorMapArgument
from .machine import STATIC_SHARED_BYTES
from .tensor_maps import TensorMaps

HOST_PARAMETERS = (("context", PTR),)

# Byte offsets in CUlaunchConfig, and 64-bit words in CUlaunchAttribute (cuda.h).
_CONFIG_SHARED, _CONFIG_STREAM, _CONFIG_ATTRIBUTES, _CONFIG_COUNT, _CONFIG_BYTES = 24, 32, 40, 48, 56
_ATTRIBUTE_WORDS = 9  # the id, then the value
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_MOST_BLOCKS = (1 << 32) - 1


class Launcher:
    """Defines the launch of a library's kernels in its host module."""

    def __init__(self, faults: Faults, kernels: Mapping[str, Kernel]):
        self.faults, self.kernels = faults, kernels
        self.tensor_maps = TensorMaps(faults)
        self._numbers = {name: i for i, name in enumerate(kernels)}

    def number(self, name: str) -> int:
        """The index of a kernel in the context's table of functions."""
        return self._numbers[name]

    @cached_property
    def table(self) -> ll.Value:
        """A constant row for each kernel: symbol, index of the module, shared memory, whether it has PDL."""
        rows = [
            [self.faults.errors.text(k.launch.name), i64(k.module), i64(k.launch.shared_bytes), i64(int(k.launch.pdl))]
            for k in self.kernels.values()
        ]
        return constant_table(self.faults.module, "mlc_cuda_kernels", rows)

    @cached_property
    def launch(self) -> ll.Function:
        """``void launch(ptr context, i64 kernel, ptr sizes, i32 shared bytes, ptr parameters)``

        sizes: int64 [6], grid and block. Launches nothing if the call has failed or the grid is empty. Requests dynamic
        shared memory only above the limit of static shared memory, which the kernel declares itself.
        """
        fn, b = function(self.faults.module, "mlc_cuda_launch", VOID, [PTR, I64, PTR, I32, PTR])
        context, kernel, sizes, shared, parameters = fn.args
        config = b.alloca(ll.ArrayType(I64, _CONFIG_BYTES // 8), "config", align=8)
        with b.if_then(b.icmp_unsigned("!=", b.load(field(b, context, FAILED), typ=I32), i32(0)), likely=False):
            b.ret_void()
        for axis in range(6):
            size = b.load(field(b, sizes, 8 * axis), typ=I64)
            with b.if_then(b.icmp_signed("<=", size, i64(0))):
                b.ret_void()
            fits = b.icmp_unsigned("<=", size, i64(_MOST_BLOCKS))
            b.store(b.trunc(b.select(fits, size, i64(_MOST_BLOCKS)), I32), field(b, config, 4 * axis))
        row = field(b, self.table, b.mul(kernel, i64(32)))
        declared = b.icmp_unsigned("<=", shared, i32(STATIC_SHARED_BYTES))
        b.store(b.select(declared, i32(0), shared), field(b, config, _CONFIG_SHARED))
        b.store(b.load(field(b, context, STREAM), typ=PTR), field(b, config, _CONFIG_STREAM))
        b.store(self._programmatic, field(b, config, _CONFIG_ATTRIBUTES))
        b.store(b.load(field(b, row, 24), typ=I64), field(b, config, _CONFIG_COUNT))
        code = b.load(field(b, context, b.add(b.mul(kernel, i64(8)), i64(FUNCTIONS))), typ=PTR)
        null = ll.Constant(PTR, None)
        status = self.faults.driver.call(b, "cuLaunchKernelEx", config, code, parameters, null)
        with b.if_then(b.icmp_unsigned("!=", status, i32(0)), likely=False):
            b.call(self.faults.fail, [context, status, b.load(row, typ=PTR)])
        b.ret_void()
        return fn

    @cached_property
    def _programmatic(self) -> ll.Value:
        """The launch attribute of PDL; the configuration's count says whether it applies."""
        words = [_PROGRAMMATIC_STREAM_SERIALIZATION, 1, *[0] * (_ATTRIBUTE_WORDS - 2)]
        return constant_table(self.faults.module, "mlc_cuda_programmatic", [[i64(word) for word in words]])


class HostEmitter(StmtEmitter):
    """Emits a host function."""

    def __init__(self, fn: ll.Function, target: Target, launcher: Launcher):
        super().__init__(fn, target)
        self.launcher = launcher

    def body(self, stmt: Stmt) -> None:
        _require_no_access(stmt, self.fn.name)
        self.emit(stmt)

    def emit_Evaluate(self, stmt: Evaluate) -> None:
        launch = LaunchCall.match(stmt.value)
        if launch is None:
            super().emit_Evaluate(stmt)
        else:
            self._launch(launch)

    def _launch(self, launch: LaunchCall) -> None:
        if launch.kernel not in self.launcher.kernels:
            known = ", ".join(self.launcher.kernels) or "none"
            raise CodegenError(f"{self.fn.name} launches {launch.kernel!r}; the kernels of the library are {known}")
        count = len(launch.args)
        b, memory = self.b, self._parameters(count)
        for i, arg in enumerate(launch.args):
            b.store(self._parameter(arg, field(b, memory, 8 * i)), field(b, memory, 8 * (count + i)))
        with b.goto_entry_block():
            grid = b.alloca(ll.ArrayType(I64, 6), "sizes", align=8)
        for axis, size in enumerate((*launch.grid, *launch.block)):
            b.store(self.index(size), field(b, grid, 8 * axis))
        nbytes = self.expr.convert(self.expr(launch.shared_bytes), launch.shared_bytes.dtype, "int32")
        number = i64(self.launcher.number(launch.kernel))
        b.call(self.launcher.launch, [self.fn.args[0], number, grid, nbytes, field(b, memory, 8 * count)])

    def _parameters(self, count: int) -> ll.Value:
        """Memory for ``count`` values of eight bytes, then their addresses."""
        with self.b.goto_entry_block():
            return self.b.alloca(ll.ArrayType(I64, 2 * count), "parameters", align=8)

    def _parameter(self, arg: PrimExpr, slot: ll.Value) -> ll.Value:
        """The address of an argument's value: ``slot``, to which it is stored, or a tensor map."""
        tensor_map = TensorMapArgument.match(arg)
        if tensor_map is not None:
            return self._tensor_map(tensor_map)
        if isinstance(arg, Call) and arg.op == "address_of":
            load = arg.args[0]
            assert isinstance(load, BufferLoad)
            self.b.store(self._address(load), slot)
        else:
            self.b.store(v.to_memory(self.b, self.expr(arg), arg.dtype), slot)
        return slot

    def _tensor_map(self, arg: TensorMapArgument) -> ll.Value:
        sizes = [*map(self.index, (arg.height, arg.width)), i64(arg.rows)]
        address, dtype = self._address(arg.first), arg.first.dtype
        return self.launcher.tensor_maps.emit(self.b, self.fn.args[0], address, sizes, dtype)

    def _address(self, load: BufferLoad) -> ll.Value:
        return self.expr.address(load.buffer, self.expr(flat_index(load.buffer, load.indices)))


def _require_no_access(stmt: Stmt, name: str) -> None:
    """Raise CodegenError for a host function that reads or writes elements, which lie on the device."""
    nodes = list(walk(stmt))
    passed = {id(n.args[0]) for n in nodes if isinstance(n, Call) and n.op == "address_of"}
    for node in nodes:
        if isinstance(node, BufferStore | Allocate) or (isinstance(node, BufferLoad) and id(node) not in passed):
            raise CodegenError(
                f"{name} accesses {node.buffer.name!r} outside of a kernel",
                hint="bind the loops to blockIdx and threadIdx",
            )
