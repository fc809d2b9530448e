"""Emit planned graph functions as jobs: native code that a call runs, binding by binding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np

from ...ir.expr import as_expr
from ...ir.module import GlobalVar
from ...relax.nodes import (
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    Op,
    PrimValue,
    StringImm,
    TensorStructInfo,
    TupleGetItem,
)
from .. import llvm_ir as ll
from ..arithmetic import CodegenError
from ..expressions import ExprEmitter
from ..values import I8, I64, PTR, i64, width_of
from .code import field
from .contexts import WORKSPACE
from .frames import Slot, frame_of, read_size
from .packed_calls import PackedCalls, TensorArgument

_PLACES = ("builtin.alloc_tensor", "builtin.zeroed_tensor", "reshape")  # operators that give tensors their addresses


class JobEmitter(ABC):
    """Emits the job of a graph function: ``fn``, whose first argument is a context and whose last is a frame.

    kernels: LLVM functions of tensor functions, by name. Back ends implement the calls of kernels and of registered
    functions.
    """

    def __init__(self, fn: ll.Function, func: Function, packed: PackedCalls, kernels: Mapping[str, ll.Function]):
        self.fn = fn
        self.func = func
        self.packed = packed
        self.kernels = kernels
        self.places = {id(b.var): b.value for b in func.bindings if _is_place(b.value)}
        self.context, self.frame = fn.args[0], fn.args[-1]
        self.b = ll.IRBuilder(fn.append_basic_block("entry"))
        self.exprs = ExprEmitter(self.b)
        self.pointers: dict[int, ll.Value] = {}
        self.entries: dict[tuple[int, int], ll.Value] = {}

    @abstractmethod
    def kernel_call(self, name: str, args: list[ll.Value]) -> None:
        """Emit the call of a tensor function on addresses and numbers."""

    @abstractmethod
    def packed_call(self, name: str, args: list[TensorArgument | ll.Value]) -> None:
        """Emit a call of a registered function, and a return from the job if it fails."""

    def call(self, name: str, args: Sequence[ll.Value]) -> None:
        """Emit the call of a kernel; integers are converted to the widths of its parameters."""
        kernel = self.kernels[name]
        self.b.call(kernel, [self._resized(a, t) for a, t in zip(args, kernel.function_type.args, strict=True)])

    def _resized(self, value: ll.Value, to: ll.Type) -> ll.Value:
        if not isinstance(to, ll.IntType) or value.type == to:
            return value
        return self.b.trunc(value, to) if width_of(value.type) > to.width else self.b.sext(value, to)

    def builtin(self, name: str) -> None:
        """Emit an operation of the back end, such as a barrier."""
        raise CodegenError(f"no code for the graph call {name!r}")

    def zeroed(self, offset: int) -> ll.Value:
        """The address of zeroed scratch memory, which kernels leave zero; ``offset``: in that of the context."""
        raise CodegenError("the back end keeps no zeroed memory for scratch buffers")

    def emit(self) -> None:
        """Emit the body of the job."""
        frame = frame_of(self.func)
        for slot in frame.slots:
            self._load_slot(slot)
        for i, var in enumerate(frame.sizes):
            self.exprs.env[id(var)] = read_size(self.b, self._frame_entry(len(frame.slots) + i), var.dtype)
        self.workspace = self.b.load(field(self.b, self.context, WORKSPACE), typ=PTR)
        for binding in self.func.bindings:
            self._binding(binding.value)
        self.b.ret_void()

    def _frame_entry(self, index: int) -> ll.Value:
        return self.b.gep(self.frame, [i64(index)], source_etype=I64)

    def _load_slot(self, slot: Slot) -> None:
        address = self._frame_entry(slot.index)
        if slot.scalar is None:
            self.pointers[id(slot.var)] = self.b.load(address, typ=PTR)
            return
        value = read_size(self.b, address, slot.scalar)
        self.pointers[id(slot.var)] = value
        if slot.symbol is not None:
            self.exprs.env[id(slot.symbol)] = value

    def _binding(self, value: Expr) -> None:
        if not isinstance(value, Call):
            raise CodegenError(f"a planned function holds only calls; found {type(value).__name__}")
        target = value.target
        if isinstance(target, GlobalVar):
            self.kernel_call(target.name, [self.argument(a) for a in value.args])
        elif isinstance(target, ExternFunc):
            self.packed_call(target.name, [self._packed_argument(a) for a in value.args])
        elif not _is_place(value):
            self.builtin(target.name)

    def _packed_argument(self, arg: Expr) -> TensorArgument | ll.Value:
        if isinstance(arg, StringImm):
            return self.packed.errors.text(arg.value)
        value, info = self.argument(arg), arg.struct_info
        return TensorArgument(value, info) if isinstance(info, TensorStructInfo) else value

    def argument(self, arg: Expr) -> ll.Value:
        """The address of a tensor, or the value of a number."""
        if isinstance(arg, PrimValue):
            return self.exprs(arg.value)
        if isinstance(arg, Constant):
            return constant_data(self.b.module, arg.data)
        if isinstance(arg, TupleGetItem):
            return self._table_entry(arg)
        if id(arg) not in self.pointers:
            self.pointers[id(arg)] = self._place(self.places[id(arg)])
        return self.pointers[id(arg)]

    def _place(self, call: Call) -> ll.Value:
        """The address that a binding gives to a tensor."""
        assert isinstance(call.target, Op)
        if call.target.name == "reshape":
            return self.argument(call.args[0])
        if call.target.name == "builtin.zeroed_tensor":
            return self.zeroed(call.attrs["offset"])
        return self.b.gep(self.workspace, [self.exprs(as_expr(call.attrs["offset"]))], source_etype=I8)

    def _table_entry(self, item: TupleGetItem) -> ll.Value:
        key = (id(item.tuple_value), item.index)
        if key not in self.entries:
            table = self.pointers[id(item.tuple_value)]
            address = self.b.gep(table, [i64(item.index)], source_etype=I64)
            self.entries[key] = self.b.load(address, typ=PTR)
        return self.entries[key]


def _is_place(value: Expr) -> TypeGuard[Call]:
    return isinstance(value, Call) and isinstance(value.target, Op) and value.target.name in _PLACES


def constant_data(module: ll.Module, data: np.ndarray) -> ll.Value:
    """The address of a constant tensor in the library's read-only data; equal constants share memory."""
    raw = np.ascontiguousarray(data).tobytes()
    constants = module.attached.setdefault("constants", {})
    found: ll.GlobalVariable | None = constants.get(raw)
    if found is None:
        array = ll.ArrayType(I8, len(raw))
        found = ll.GlobalVariable(module, array, f"constant.{len(constants)}")
        found.initializer = ll.Constant(array, bytearray(raw))
        found.global_constant, found.linkage, found.align = True, "internal", 64
        constants[raw] = found
    return found
