"""Planned graph functions to native code: the job that the team runs, and the entry in the TVM FFI ABI.

The job of a graph function is ``void job(ptr team, i32 thread, i32 threads, ptr frame)``. The frame is an array of
64-bit values: data pointers or values of the arguments, then the symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from llvmlite import ir as ll

from ..ir import dtype as dt
from ..ir.expr import PrimExpr, as_expr
from ..ir.expr import Var as SizeVar
from ..ir.module import GlobalVar
from ..ir.visitor import free_vars
from ..relax.nodes import (
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    PrimStructInfo,
    PrimValue,
    StringImm,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from . import values as v
from .expressions import CodegenError, ExprEmitter
from .kernels import call_barrier
from .packed_calls import PackedCalls, TensorArgument
from .team import FAILED, WORKSPACE, field, store_atomic
from .values import F64, I8, I32, I64, PTR, VOID, i32, i64


@dataclass(frozen=True)
class Slot:
    """A parameter's place in the frame: a tensor, a table of data pointers (a tuple of tensors), or a scalar."""

    var: Var
    index: int

    @property
    def is_table(self) -> bool:
        return isinstance(self.var.struct_info, TupleStructInfo)

    @property
    def scalar(self) -> str | None:
        """The dtype of a scalar."""
        info = self.var.struct_info
        return info.dtype if isinstance(info, PrimStructInfo) else None

    @property
    def value(self) -> PrimExpr | None:
        """What the value of a scalar is known as in sizes and arguments."""
        info = self.var.struct_info
        return info.value if isinstance(info, PrimStructInfo) else None

    @property
    def symbol(self) -> SizeVar | None:
        """The variable that stands for the value of a scalar."""
        return self.value if isinstance(self.value, SizeVar) else None


@dataclass(frozen=True)
class Frame:
    """The layout of a graph function's frame: one slot for each parameter, then the sizes that no scalar gives."""

    slots: tuple[Slot, ...]
    sizes: tuple[SizeVar, ...]

    @property
    def length(self) -> int:
        return len(self.slots) + len(self.sizes)

    @property
    def symbols(self) -> tuple[SizeVar, ...]:
        """All symbols that a call gives a value."""
        return (*(slot.symbol for slot in self.slots if slot.symbol is not None), *self.sizes)


def frame_of(func: Function) -> Frame:
    """The frame of a planned function. Raises CodegenError for parameters that cannot be passed."""
    slots = tuple(Slot(p, i) for i, p in enumerate(func.params))
    shapes = [size for s in slots if s.scalar is None for info in tensor_infos(s.var) for size in info.shape or ()]
    given = {id(s.symbol) for s in slots if s.symbol is not None}
    told = {id(size) for size in shapes if isinstance(size, SizeVar)} | given
    sizes: dict[int, SizeVar] = {}
    for var in free_vars(shapes):
        if id(var) not in told:
            raise CodegenError(f"the size {var.name!r} is no argument's size on any axis, so a call cannot tell it")
        sizes.setdefault(id(var), var)
    return Frame(slots, tuple(v for k, v in sizes.items() if k not in given))


def read_size(b: ll.IRBuilder, address: ll.Value, dtype: str) -> ll.Value:
    """A scalar from a frame, a shape or the arguments of a call, where it takes eight bytes."""
    to = v.value_type(dtype)
    if dt.is_float(dtype):
        number = b.load(address, typ=F64)
        return number if to == F64 else b.fptrunc(number, to)
    value = b.load(address, typ=I64)
    return value if to == I64 else b.trunc(value, to)


def widen(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    """A size as a 64-bit integer."""
    return value if value.type == I64 else b.sext(value, I64)


def tensor_infos(param: Var) -> list[TensorStructInfo]:
    """The tensors of a parameter."""
    info = param.struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if not all(isinstance(f, TensorStructInfo) for f in fields):
        raise CodegenError(f"parameter {param.name!r} is not a tensor or a tuple of tensors")
    return list(fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Callees:
    """What a job can call: the tensor functions of the module, and functions registered by name."""

    kernels: Mapping[str, ll.Function]
    packed: PackedCalls


def emit_job(module: ll.Module, name: str, func: Function, callees: Callees) -> ll.Function:
    """The native body of a planned graph function."""
    fn = ll.Function(module, ll.FunctionType(VOID, [PTR, I32, I32, PTR]), f"{name}.job")
    fn.linkage = "internal"
    _JobEmitter(fn, func, callees).emit()
    return fn


class _JobEmitter:
    def __init__(self, fn: ll.Function, func: Function, callees: Callees):
        self.fn = fn
        self.func = func
        self.callees = callees
        self.packed_calls = 0
        self.b = ll.IRBuilder(fn.append_basic_block("entry"))
        self.exprs = ExprEmitter(self.b)
        self.pointers: dict[int, ll.Value] = {}
        self.entries: dict[tuple[int, int], ll.Value] = {}

    def emit(self) -> None:
        b, frame = self.b, frame_of(self.func)
        for slot in frame.slots:
            self._load_slot(slot)
        for i, var in enumerate(frame.sizes):
            self.exprs.env[id(var)] = read_size(b, self._frame_entry(len(frame.slots) + i), var.dtype)
        self.workspace = b.load(field(b, self.fn.args[0], WORKSPACE), typ=PTR)
        for binding in self.func.bindings:
            self._binding(binding.var, binding.value)
        b.ret_void()

    def _frame_entry(self, index: int) -> ll.Value:
        return self.b.gep(self.fn.args[3], [i64(index)], source_etype=I64)

    def _load_slot(self, slot: Slot) -> None:
        address = self._frame_entry(slot.index)
        if slot.scalar is None:
            self.pointers[id(slot.var)] = self.b.load(address, typ=PTR)
            return
        value = read_size(self.b, address, slot.scalar)
        self.pointers[id(slot.var)] = value
        if slot.symbol is not None:
            self.exprs.env[id(slot.symbol)] = value

    def _binding(self, var: Var, value: Expr) -> None:
        if not isinstance(value, Call):
            raise CodegenError(f"a planned function holds only calls; found {type(value).__name__}")
        target = value.target
        if isinstance(target, GlobalVar):
            self._kernel_call(value)
        elif isinstance(target, ExternFunc):
            self._packed_call(target, value)
        elif target.name == "builtin.alloc_tensor":
            offset = self.exprs(as_expr(value.attrs["offset"]))
            self.pointers[id(var)] = self.b.gep(self.workspace, [offset], source_etype=I8)
        elif target.name == "reshape":
            self.pointers[id(var)] = self._argument(value.args[0])
        elif target.name == "builtin.barrier":
            call_barrier(self.b, self.fn.args[0], self.fn.args[2])
        else:
            raise CodegenError(f"no code for the graph call {target.name!r}")

    def _packed_call(self, target: ExternFunc, call: Call) -> None:
        """Thread 0 calls; all meet, and leave the job together when the call has failed."""
        self.packed_calls += 1
        b, number = self.b, i32(self.packed_calls)
        failed_at = field(b, self.fn.args[0], FAILED)
        args = [self._packed_argument(a) for a in call.args]
        with b.if_then(b.icmp_signed("==", self.fn.args[1], i32(0))):
            status = self.callees.packed.emit(b, self.exprs, target.name, args)
            with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
                store_atomic(b, number, failed_at)
        call_barrier(b, self.fn.args[0], self.fn.args[2])
        failed = b.load_atomic(failed_at, "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("==", failed, number), likely=False):
            b.ret_void()

    def _packed_argument(self, arg: Expr) -> TensorArgument | ll.Value:
        if isinstance(arg, StringImm):
            return self.callees.packed.errors.text(arg.value)
        value, info = self._argument(arg), arg.struct_info
        return TensorArgument(value, info) if isinstance(info, TensorStructInfo) else value

    def _kernel_call(self, call: Call) -> None:
        kernel = self.callees.kernels[call.target.name]
        args = [*self.fn.args[:3], *(self._argument(a) for a in call.args)]
        wanted = kernel.function_type.args
        args = [self._narrow(a, t) for a, t in zip(args, wanted, strict=True)]
        self.b.call(kernel, args)

    def _narrow(self, value: ll.Value, to: ll.Type) -> ll.Value:
        if not isinstance(to, ll.IntType) or value.type == to:
            return value
        return self.b.trunc(value, to) if value.type.width > to.width else self.b.sext(value, to)

    def _argument(self, arg: Expr) -> ll.Value:
        if isinstance(arg, PrimValue):
            return self.exprs(arg.value)
        if isinstance(arg, Constant):
            return constant_data(self.b.module, arg.data)
        if isinstance(arg, TupleGetItem):
            return self._table_entry(arg)
        return self.pointers[id(arg)]

    def _table_entry(self, item: TupleGetItem) -> ll.Value:
        key = (id(item.tuple_value), item.index)
        if key not in self.entries:
            table = self.pointers[id(item.tuple_value)]
            address = self.b.gep(table, [i64(item.index)], source_etype=I64)
            self.entries[key] = self.b.load(address, typ=PTR)
        return self.entries[key]


def constant_data(module: ll.Module, data: np.ndarray) -> ll.Value:
    """The address of a constant tensor in the library's read-only data; equal constants share one."""
    raw = np.ascontiguousarray(data).tobytes()
    found = _constants(module).get(raw)
    if found is None:
        array = ll.ArrayType(I8, len(raw))
        found = ll.GlobalVariable(module, array, f"constant.{len(_constants(module))}")
        found.initializer = ll.Constant(array, bytearray(raw))
        found.global_constant, found.linkage, found.align = True, "internal", 64
        found.type = PTR
        _constants(module)[raw] = found
    return found


def _constants(module: ll.Module) -> dict[bytes, ll.GlobalVariable]:
    if not hasattr(module, "mlc_constants"):
        module.mlc_constants = {}
    return module.mlc_constants
