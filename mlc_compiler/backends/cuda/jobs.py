"""Jobs of graph functions on a CUDA device: ``void job(ptr context, ptr frame)`` calls the host functions in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from ...codegen import llvm_ir as ll
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import field
from ...codegen.host.contexts import ARGUMENT, FAILED
from ...codegen.host.dlpack import CUDA_DEVICE
from ...codegen.host.jobs import JobEmitter, constant_data
from ...codegen.host.packed_calls import PackedCalls, TensorArgument
from ...codegen.values import I32, PTR, VOID, i32
from ...ir.module import IRModule
from ...ir.visitor import walk
from ...relax.nodes import Constant, Expr, Function
from .context import CONSTANTS
from .graphs import CAPTURE

JOB_TYPE = ll.FunctionType(VOID, [PTR, PTR])
_ALIGNMENT = 256  # of cuMemAlloc


class Constants:
    """The constant tensors of a module's graph functions: one block of memory on the device.

    At its end is the memory for scratch buffers that are zero before and after each kernel (scope ``ZEROED``).
    """

    def __init__(self, mod: IRModule):
        self._offsets: dict[bytes, int] = {}
        self._block = bytearray()
        for func in mod.of_type(Function).values():
            for node in _constants(func):
                self._add(_bytes(node.data))
        self.zeroed = len(self._block)
        self._block += bytes(max((f.attrs.get("zeroed_bytes", 0) for f in mod.of_type(Function).values()), default=0))

    def _add(self, raw: bytes) -> None:
        if raw not in self._offsets:
            self._offsets[raw] = len(self._block)
            self._block += raw + bytes(-len(raw) % _ALIGNMENT)

    @property
    def nbytes(self) -> int:
        return len(self._block)

    def data(self, module: ll.Module) -> ll.Value:
        """The address of the block in the library."""
        return constant_data(module, np.frombuffer(bytes(self._block), np.uint8))

    def offset(self, constant: Constant) -> int:
        """The offset of a constant in the block."""
        return self._offsets[_bytes(constant.data)]


class DeviceJob(JobEmitter):
    """Emits the job of a graph function. synchronize: ``void (ptr context)``, waits for the context's stream."""

    def __init__(
        self,
        fn: ll.Function,
        func: Function,
        packed: PackedCalls,
        kernels: Mapping[str, ll.Function],
        constants: Constants,
        synchronize: ll.Function,
    ):
        super().__init__(fn, func, packed, kernels)
        self.constants, self.synchronize = constants, synchronize

    def kernel_call(self, name: str, args: list[ll.Value]) -> None:
        self.call(name, [self.context, *args])

    def argument(self, arg: Expr) -> ll.Value:
        if isinstance(arg, Constant):
            return field(self.b, self._constants_base, self.constants.offset(arg))
        return super().argument(arg)

    def zeroed(self, offset: int) -> ll.Value:
        return field(self.b, self._constants_base, self.constants.zeroed + offset)

    @cached_property
    def _constants_base(self) -> ll.Value:
        with self.b.goto_entry_block():
            return self.b.load(field(self.b, self.context, CONSTANTS), typ=PTR)

    def packed_call(self, name: str, args: list[TensorArgument | ll.Value]) -> None:
        """Emit a call of a registered function with tensors on the device, after the previous kernels have ended."""
        if self.func.attrs.get(CAPTURE):
            raise CodegenError(f"a graph function with the attribute {CAPTURE} calls the registered function {name!r}")
        b = self.b
        b.call(self.synchronize, [self.context])
        self._leave_if_failed()
        device = i32(CUDA_DEVICE), b.load(field(b, self.context, ARGUMENT), typ=I32)
        status = self.packed.emit(b, self.exprs, name, args, device)
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.store(i32(1), field(b, self.context, FAILED))
        self._leave_if_failed()

    def _leave_if_failed(self) -> None:
        b = self.b
        with b.if_then(b.icmp_unsigned("!=", b.load(field(b, self.context, FAILED), typ=I32), i32(0)), likely=False):
            b.ret_void()


def _constants(func: Function) -> Iterator[Constant]:
    return (node for binding in func.bindings for node in walk(binding.value) if isinstance(node, Constant))


def _bytes(data: np.ndarray) -> bytes:
    return np.ascontiguousarray(data).tobytes()
