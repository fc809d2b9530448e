"""Calls from a graph function to C functions that are linked in, or else to functions registered by name in
the process (``TVMFFIFunctionGetGlobal``).

Thread 0 makes the call while the others wait. Tensors are passed as objects that borrow the caller's memory during
the call. Errors of the function propagate to the caller of the library's entry, which runs on the same thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...relax.nodes import TensorStructInfo
from .. import llvm_ir as ll
from .. import values as v
from ..arithmetic import CodegenError
from ..expressions import ExprEmitter
from ..loops import while_loop
from ..values import I8, I32, I64, PTR, VOID, i32, i64, is_null
from .code import external, field, function
from .dlpack import (
    ANY_BYTES,
    CPU_DEVICE,
    DL_BYTES,
    DL_DEVICE,
    DL_DEVICE_ID,
    DL_DTYPE,
    DL_NDIM,
    DL_SHAPE,
    DL_STRIDES,
    MANAGED_BYTES,
    MANAGED_DELETER,
    TYPE_DLTENSOR,
    TYPE_FLOAT,
    TYPE_INT,
    TYPE_OBJECT,
    TYPE_STRING,
    TYPE_TENSOR,
    dl_dtype,
)
from .errors import ErrorReporter


@dataclass(frozen=True)
class TensorArgument:
    """A tensor as an argument: its address, shape and dtype."""

    data: ll.Value
    info: TensorStructInfo


class PackedCalls:
    """Emits calls of ``mlc_call_packed``, which is defined in the module on first use.

    linked: the names of C functions that are linked in.
    """

    def __init__(self, module: ll.Module, errors: ErrorReporter):
        self.module = module
        self.errors = errors
        self.linked: frozenset[str] = frozenset()

    @cached_property
    def call(self) -> ll.Function:
        """``i32 call(ptr name, i64 length, ptr args, i32 count)``: 0, or -1 with an error raised."""
        self.lookup = self.errors.optional("TVMFFIFunctionGetGlobal", I32, [PTR, PTR])
        self.invoke = self.errors.optional("TVMFFIFunctionCall", I32, [PTR, PTR, I32, PTR])
        self.from_dlpack = self.errors.optional("TVMFFITensorFromDLPack", I32, [PTR, I32, I32, PTR])
        self.release = self.errors.optional("TVMFFIObjectDecRef", I32, [PTR])
        self.own = self._define_own()
        self.drop = self._define_drop()
        return self._define_call()

    def emit(
        self,
        b: ll.IRBuilder,
        exprs: ExprEmitter,
        name: str,
        args: Sequence[TensorArgument | ll.Value],
        device: tuple[ll.Value, ll.Value] = (i32(CPU_DEVICE), i32(0)),
    ) -> ll.Value:
        """Emit the call of the function ``name``; returns its status, an i32 that is 0 on success.

        args: tensors, numbers, and the addresses of C strings. device: DLPack's type and index of the tensors' device.
        """
        if name in self.linked:
            return self._call_linked(b, name, [self._c_argument(b, exprs, arg, device) for arg in args])
        with b.goto_entry_block():
            array = b.alloca(ll.ArrayType(I64, 2 * max(len(args), 1)), "args", align=16)
        for i, arg in enumerate(args):
            slot = field(b, array, ANY_BYTES * i)
            if isinstance(arg, TensorArgument):
                self._store_any(b, slot, TYPE_DLTENSOR, self._dltensor(b, exprs, arg, device))
            elif isinstance(arg.type, ll.PointerType):
                self._store_any(b, slot, TYPE_STRING, arg)
            elif isinstance(arg.type, ll.IntType):
                self._store_any(b, slot, TYPE_INT, arg if arg.type == I64 else b.sext(arg, I64))
            else:
                self._store_any(b, slot, TYPE_FLOAT, arg if arg.type == v.F64 else b.fpext(arg, v.F64))
        size = i64(len(name.encode()))
        return b.call(self.call, [self.errors.text(name), size, array, i32(len(args))])

    def _call_linked(self, b: ll.IRBuilder, name: str, args: list[ll.Value]) -> ll.Value:
        """Call a C function, which returns 0; any other number is an error."""
        types = [a.type for a in args]
        called = external(self.module, name, I32, types)
        if list(called.function_type.args) != types:
            raise CodegenError(f"the linked function {name!r} is called with arguments of different kinds")
        status = b.call(called, args)
        return b.call(self._check_linked, [status, self.errors.text(name)])

    @cached_property
    def _check_linked(self) -> ll.Function:
        """``i32 check(i32 status, ptr name)``: 0, or -1 with an error raised."""
        fn, b = function(self.module, "mlc_check_linked", I32, [I32, PTR])
        with b.if_then(b.icmp_signed("!=", fn.args[0], i32(0)), likely=False):
            self.errors.fail(b, "RuntimeError", "the linked function %s returned %d", fn.args[1], fn.args[0])
        b.ret(i32(0))
        return fn

    def _c_argument(
        self, b: ll.IRBuilder, exprs: ExprEmitter, arg: TensorArgument | ll.Value, device: tuple[ll.Value, ll.Value]
    ) -> ll.Value:
        """A tensor as the address of its DLTensor, integers and floats as int64_t and double."""
        if isinstance(arg, TensorArgument):
            return self._dltensor(b, exprs, arg, device)
        if isinstance(arg.type, ll.IntType) and arg.type != I64:
            return b.sext(arg, I64)
        return b.fpext(arg, v.F64) if isinstance(arg.type, ll.HalfType | ll.FloatType) else arg

    def _store_any(self, b: ll.IRBuilder, slot: ll.Value, kind: int, value: ll.Value) -> None:
        b.store(i64(kind), slot)
        b.store(value, field(b, slot, 8))

    def _dltensor(
        self, b: ll.IRBuilder, exprs: ExprEmitter, arg: TensorArgument, device: tuple[ll.Value, ll.Value]
    ) -> ll.Value:
        sizes = arg.info.shape or ()
        with b.goto_entry_block():
            tensor = b.alloca(ll.ArrayType(I64, DL_BYTES // 8), "tensor", align=8)
            shape = b.alloca(ll.ArrayType(I64, max(len(sizes), 1)), "shape", align=8)
        for axis, size in enumerate(sizes):
            b.store(exprs(size), field(b, shape, 8 * axis))
        b.store(ll.Constant(ll.ArrayType(I64, DL_BYTES // 8), None), tensor)
        b.store(arg.data, tensor)
        for offset, part in zip((DL_DEVICE, DL_DEVICE_ID), device, strict=True):
            b.store(part, field(b, tensor, offset))
        for offset, number in ((DL_NDIM, len(sizes)), (DL_DTYPE, dl_dtype(arg.info.dtype))):
            b.store(i32(number), field(b, tensor, offset))
        b.store(shape, field(b, tensor, DL_SHAPE))
        return tensor

    # -- helper functions ---------------------------------------------------------------------------------------

    def _define_own(self) -> ll.Function:
        """``i32 own(ptr any)``: replace the DLTensor of an argument by a tensor object over the same data."""
        fn, b = function(self.module, "mlc_own_tensor", I32, [PTR])
        tensor = b.load(field(b, fn.args[0], 8), typ=PTR)
        ndim = b.zext(b.load(field(b, tensor, DL_NDIM), typ=I32), I64)
        row = b.mul(ndim, i64(8))
        size = b.add(i64(MANAGED_BYTES), b.mul(row, i64(2)))
        managed = b.call(external(self.module, "malloc", PTR, [I64]), [size])
        with b.if_then(is_null(b, managed), likely=False):
            self.errors.fail(b, "RuntimeError", "no memory for the arguments of a registered function")
        copy = external(self.module, "memcpy", PTR, [PTR, PTR, I64])
        shape = field(b, managed, MANAGED_BYTES)
        strides = field(b, shape, row)
        b.call(copy, [managed, tensor, i64(DL_BYTES)])
        b.call(copy, [shape, b.load(field(b, tensor, DL_SHAPE), typ=PTR), row])
        b.store(shape, field(b, managed, DL_SHAPE))
        b.store(strides, field(b, managed, DL_STRIDES))
        self._fill_strides(b, shape, strides, ndim)
        release = external(self.module, "free", VOID, [PTR])
        b.store(ll.Constant(PTR, None), field(b, managed, DL_BYTES))
        b.store(release, field(b, managed, MANAGED_DELETER))
        made = b.alloca(PTR, "object")
        no = i32(0)
        status = b.call(self.from_dlpack, [managed, no, no, made])
        with b.if_then(b.icmp_signed("==", status, no), likely=True):
            self._store_any(b, fn.args[0], TYPE_TENSOR, b.load(made, typ=PTR))
        b.ret(status)
        return fn

    def _fill_strides(self, b: ll.IRBuilder, shape: ll.Value, strides: ll.Value, ndim: ll.Value) -> None:
        def fill(left: ll.Value, stride: ll.Value) -> list[ll.Value]:
            axis = b.sub(left, i64(1))
            b.store(stride, b.gep(strides, [axis], source_etype=I64))
            size = b.load(b.gep(shape, [axis], source_etype=I64), typ=I64)
            return [axis, b.mul(stride, size)]

        while_loop(b, "strides", [ndim, i64(1)], lambda left, _: b.icmp_unsigned("!=", left, i64(0)), fill)

    def _define_drop(self) -> ll.Function:
        """``i32 drop(ptr any)``: release the object that an argument or result holds, if it is one."""
        fn, b = function(self.module, "mlc_drop_any", I32, [PTR])
        kind = b.load(fn.args[0], typ=I32)
        with b.if_then(b.icmp_signed(">=", kind, i32(TYPE_OBJECT))):
            b.call(self.release, [b.load(field(b, fn.args[0], 8), typ=PTR)])
        b.ret(i32(0))
        return fn

    def _define_call(self) -> ll.Function:
        fn, b = function(self.module, "mlc_call_packed", I32, [PTR, I64, PTR, I32])
        name, length, args, count = fn.args
        message = "%s is a function registered by name: that needs tvm_ffi in the process"
        with b.if_then(self.errors.is_missing(b, self.lookup), likely=False):
            self.errors.fail(b, "RuntimeError", message, name)
        pair = ll.ArrayType(I64, 2)
        bytes_, found, result = (b.alloca(pair, n, align=16) for n in ("name", "found", "result"))
        zeros = ll.Constant(pair, None)
        b.store(name, bytes_)
        b.store(length, field(b, bytes_, 8))
        b.store(zeros, found)
        b.store(zeros, result)
        b.call(self.lookup, [bytes_, found])
        handle = b.load(found, typ=PTR)
        with b.if_then(is_null(b, handle), likely=False):
            self.errors.fail(b, "ValueError", "no function is registered as %s; see register_func", name)
        status = b.alloca(I32, "status")
        b.store(self._for_each(b, args, count, TYPE_DLTENSOR, self.own), status)
        with b.if_then(b.icmp_signed("==", b.load(status, typ=I32), i32(0))):
            b.store(b.call(self.invoke, [handle, args, count, result]), status)
        b.call(self.drop, [result])
        self._for_each(b, args, count, TYPE_TENSOR, self.drop)
        b.call(self.release, [handle])
        b.ret(b.load(status, typ=I32))
        return fn

    def _for_each(self, b: ll.IRBuilder, args: ll.Value, count: ll.Value, kind: int, do: ll.Function) -> ll.Value:
        """Call ``do(any)`` for the arguments of a type index while it returns 0; returns the last status."""
        zero = i32(0)

        def visit(i: ll.Value, status: ll.Value) -> list[ll.Value]:
            slot = b.gep(args, [b.mul(b.sext(i, I64), i64(ANY_BYTES))], source_etype=I8)
            before = b.block
            with b.if_then(b.icmp_signed("==", b.load(slot, typ=I32), i32(kind))):
                answer = b.call(do, [slot])
                end = b.block
            new = b.phi(I32)
            new.add_incoming(status, before)
            new.add_incoming(answer, end)
            return [b.add(i, i32(1)), new]

        def more(i: ll.Value, status: ll.Value) -> ll.Value:
            return b.and_(b.icmp_signed("<", i, count), b.icmp_signed("==", status, zero))

        return while_loop(b, "each", [zero, zero], more, visit)[1]
