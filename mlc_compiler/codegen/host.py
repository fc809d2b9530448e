"""Planned graph functions to native code: the job that the team runs, and the entry in the TVM FFI ABI.

The job of a graph function is ``void job(ptr team, i32 thread, i32 threads, ptr frame)``. The frame is an array of
64-bit values: data pointers of the arguments, then the symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from llvmlite import ir as ll

from ..ir.expr import Var as SizeVar
from ..ir.module import GlobalVar
from ..ir.visitor import free_vars
from ..relax.nodes import (
    Call,
    Constant,
    Expr,
    Function,
    Op,
    PrimValue,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from . import values as v
from .expressions import CodegenError, ExprEmitter
from .kernels import BARRIER
from .team import WORKSPACE, field
from .values import I8, I32, I64, PTR, VOID


@dataclass(frozen=True)
class Slot:
    """A parameter's place in the frame: a tensor, or a table of data pointers (a tuple of tensors)."""

    var: Var
    index: int

    @property
    def is_table(self) -> bool:
        return isinstance(self.var.struct_info, TupleStructInfo)


@dataclass(frozen=True)
class Frame:
    """The layout of a graph function's frame: one slot for each parameter, then the sizes."""

    slots: tuple[Slot, ...]
    sizes: tuple[SizeVar, ...]

    @property
    def length(self) -> int:
        return len(self.slots) + len(self.sizes)


def frame_of(func: Function) -> Frame:
    """The frame of a planned function. CodegenError for parameters that are not tensors or tuples of them."""
    sizes: dict[int, SizeVar] = {}
    for param in func.params:
        for info in tensor_infos(param):
            for size in info.shape or ():
                for var in free_vars(size):
                    sizes.setdefault(id(var), var)
    return Frame(tuple(Slot(p, i) for i, p in enumerate(func.params)), tuple(sizes.values()))


def tensor_infos(param: Var) -> list[TensorStructInfo]:
    """The tensors of a parameter."""
    info = param.struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if not all(isinstance(f, TensorStructInfo) for f in fields):
        raise CodegenError(f"parameter {param.name!r} is not a tensor or a tuple of tensors")
    return list(fields)  # type: ignore[arg-type]


def emit_job(module: ll.Module, name: str, func: Function, kernels: Mapping[str, ll.Function]) -> ll.Function:
    """The native body of a planned graph function."""
    fn = ll.Function(module, ll.FunctionType(VOID, [PTR, I32, I32, PTR]), f"{name}.job")
    fn.linkage = "internal"
    _JobEmitter(fn, func, kernels).emit()
    return fn


class _JobEmitter:
    def __init__(self, fn: ll.Function, func: Function, kernels: Mapping[str, ll.Function]):
        self.fn = fn
        self.func = func
        self.kernels = kernels
        self.b = ll.IRBuilder(fn.append_basic_block("entry"))
        self.exprs = ExprEmitter(self.b)
        self.pointers: dict[int, ll.Value] = {}
        self.entries: dict[tuple[int, int], ll.Value] = {}

    def emit(self) -> None:
        b, frame = self.b, frame_of(self.func)
        for slot in frame.slots:
            address = b.gep(self.fn.args[3], [ll.Constant(I64, slot.index)], source_etype=I64)
            self.pointers[id(slot.var)] = b.load(address, typ=PTR)
        for i, var in enumerate(frame.sizes):
            address = b.gep(self.fn.args[3], [ll.Constant(I64, len(frame.slots) + i)], source_etype=I64)
            self.exprs.env[id(var)] = b.load(address, typ=I64)
        self.workspace = b.load(field(b, self.fn.args[0], WORKSPACE), typ=PTR)
        for binding in self.func.bindings:
            self._binding(binding.var, binding.value)
        b.ret_void()

    def _binding(self, var: Var, value: Expr) -> None:
        if not isinstance(value, Call):
            raise CodegenError(f"a planned function holds only calls; found {type(value).__name__}")
        if isinstance(value.target, GlobalVar):
            self._kernel_call(value)
        elif isinstance(value.target, Op) and value.target.name == "builtin.alloc_tensor":
            offset = ll.Constant(I64, int(value.attrs["offset"]))
            self.pointers[id(var)] = self.b.gep(self.workspace, [offset], source_etype=I8)
        elif isinstance(value.target, Op) and value.target.name == "builtin.barrier":
            v.intrinsic(self.b, BARRIER, [self.fn.args[0], self.fn.args[2]], VOID)
        else:
            raise CodegenError(f"no code for the graph call {value.target.name!r}")

    def _kernel_call(self, call: Call) -> None:
        kernel = self.kernels[call.target.name]
        args = [*self.fn.args[:3], *(self._argument(a) for a in call.args)]
        wanted = kernel.function_type.args
        args = [self._narrow(a, t) for a, t in zip(args, wanted, strict=True)]
        self.b.call(kernel, args)

    def _narrow(self, value: ll.Value, to: ll.Type) -> ll.Value:
        return self.b.trunc(value, to) if isinstance(to, ll.IntType) and value.type != to else value

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
            address = self.b.gep(table, [ll.Constant(I64, item.index)], source_etype=I64)
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
