"""Argument checks of entries, as functions shared by all entries of a library."""

from __future__ import annotations

from functools import cached_property

from .. import llvm_ir as ll
from .. import values as v
from ..loops import while_loop
from ..values import F64, I8, I32, I64, PTR, i32, i64, is_null
from .code import Require, field, function, is_one_of
from .contexts import DeviceCheck, HostRuntime, require_host
from .dlpack import (
    DL_DTYPE,
    DL_NDIM,
    DL_OFFSET,
    DL_SHAPE,
    DL_STRIDES,
    OBJECT_HEADER_BYTES,
    TYPE_BOOL,
    TYPE_DLTENSOR,
    TYPE_FLOAT,
    TYPE_INT,
    TYPE_TENSOR,
)
from .errors import ErrorReporter
from .magnitude import LARGEST


class ArgumentChecks:
    """Defines the checks in a module. On failure, each raises an error and returns null or -1."""

    def __init__(self, module: ll.Module, errors: ErrorReporter, runtime: HostRuntime):
        self.module = module
        self.errors = errors
        self.runtime = runtime
        self.context = self._define_context()
        self.tensor = self._define_tensor("mlc_check_tensor", runtime.require_device, runtime.alignment)
        self.integer = self._define_integer()
        self.number = self._define_number()

    def _define_context(self) -> ll.Function:
        """``ptr check_context(ptr any, ptr function)``: the context of a first argument."""
        fn, b = function(self.module, "mlc_check_context", PTR, [PTR, PTR])
        null = ll.Constant(PTR, None)
        kind = b.load(fn.args[0], typ=I32)
        handle = b.load(field(b, fn.args[0], 8), typ=I64)
        create = f"context_create({self.runtime.argument.name})"
        message = f"%s: the first argument is not a context that is open; make one with {create}"
        with b.if_then(b.icmp_unsigned("!=", kind, i32(TYPE_INT))):
            self.errors.fail(b, "TypeError", message, fn.args[1], result=null)
        context = b.call(self.runtime.find, [handle])
        with b.if_then(is_null(b, context)):
            self.errors.fail(b, "TypeError", message, fn.args[1], result=null)
        b.ret(context)
        return fn

    def _requirement(self, b: ll.IRBuilder, fn: ll.Function, result: ll.Value) -> Require:
        """``require(condition, kind, message, …)`` for a check whose parameters 1 and 2 name function and argument."""

        def require(ok: ll.Value, kind: str, message: str, *extra: ll.Value) -> None:
            with b.if_then(b.not_(ok), likely=False):
                self.errors.fail(b, kind, f"%s: argument %s {message}", *fn.args[1:3], *extra, result=result)

        return require

    # -- scalars ------------------------------------------------------------------------------------------------

    def _define_integer(self) -> ll.Function:
        """``i32 check_integer(ptr any, ptr function, ptr name, i64 min, i64 max)``: 0 or -1."""
        fn, b = function(self.module, "mlc_check_integer", I32, [PTR, PTR, PTR, I64, I64])
        require = self._requirement(b, fn, i32(-1))
        kind = b.load(fn.args[0], typ=I32)
        value = b.load(field(b, fn.args[0], 8), typ=I64)
        require(is_one_of(b, kind, TYPE_INT, TYPE_BOOL), "TypeError", "is not an integer (type index %d)", kind)
        fits = b.and_(b.icmp_signed(">=", value, fn.args[3]), b.icmp_signed("<=", value, fn.args[4]))
        require(fits, "ValueError", "is %lld; expected %lld to %lld", value, fn.args[3], fn.args[4])
        b.ret(i32(0))
        return fn

    def _define_number(self) -> ll.Function:
        """``i32 check_number(ptr any, ptr function, ptr name, ptr result)``: store a float or integer as a double."""
        fn, b = function(self.module, "mlc_check_number", I32, [PTR, PTR, PTR, PTR])
        require = self._requirement(b, fn, i32(-1))
        kind = b.load(fn.args[0], typ=I32)
        is_number = is_one_of(b, kind, TYPE_INT, TYPE_BOOL, TYPE_FLOAT)
        require(is_number, "TypeError", "is not a number (type index %d)", kind)
        at = field(b, fn.args[0], 8)
        is_float = is_one_of(b, kind, TYPE_FLOAT)
        b.store(b.select(is_float, b.load(at, typ=F64), b.sitofp(b.load(at, typ=I64), F64)), fn.args[3])
        b.ret(i32(0))
        return fn

    # -- tensors ------------------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> ll.Function:
        """Like ``tensor``, for a table of addresses, which is in host memory."""
        if self.runtime.tensors_on_host:
            return self.tensor
        return self._define_tensor("mlc_check_table", require_host)

    def _define_tensor(self, name: str, require_device: DeviceCheck, alignment: int = 1) -> ll.Function:
        """``ptr check_tensor(ptr any, ptr function, ptr name, i32 ndim, i32 dtype, ptr dtype name, i32 itemsize,
        ptr context)``

        checks kind, device, rank, dtype, sizes, layout and alignment of an argument; returns its DLTensor, null on
        error.
        """
        fn, b = function(self.module, name, PTR, [PTR, PTR, PTR, I32, I32, PTR, I32, PTR])
        any_, _, _, ndim, dtype, dtype_name, itemsize, context = fn.args
        require = self._requirement(b, fn, ll.Constant(PTR, None))
        kind = b.load(any_, typ=I32)
        raw = b.load(field(b, any_, 8), typ=PTR)
        is_tensor = is_one_of(b, kind, TYPE_TENSOR, TYPE_DLTENSOR)
        require(is_tensor, "TypeError", "is not a tensor (type index %d); expected %s", kind, dtype_name)
        require(b.not_(is_null(b, raw)), "TypeError", "is a null pointer; expected a tensor of %s", dtype_name)
        tensor = b.select(is_one_of(b, kind, TYPE_TENSOR), field(b, raw, OBJECT_HEADER_BYTES), raw)
        require_device(b, context, tensor, require)
        rank = b.load(field(b, tensor, DL_NDIM), typ=I32)
        require(b.icmp_unsigned("==", rank, ndim), "ValueError", "has %d axes; expected %d", rank, ndim)
        self._check_dtype(b, b.load(field(b, tensor, DL_DTYPE), typ=I32), dtype, dtype_name, require)
        self._check_layout(b, tensor, rank, b.uitofp(itemsize, F64), require)
        data = b.add(b.ptrtoint(b.load(tensor, typ=PTR), I64), b.load(field(b, tensor, DL_OFFSET), typ=I64))
        rest = b.urem(data, b.zext(itemsize, I64))
        require(b.icmp_unsigned("==", rest, i64(0)), "ValueError", "is not aligned to its element size")
        if alignment > 1:
            rest, message = b.urem(data, i64(alignment)), f"does not begin at a multiple of {alignment} bytes; copy it"
            require(b.icmp_unsigned("==", rest, i64(0)), "ValueError", message)
        b.ret(tensor)
        return fn

    def _check_dtype(
        self, b: ll.IRBuilder, found: ll.Value, dtype: ll.Value, dtype_name: ll.Value, require: Require
    ) -> None:
        code, bits = (b.zext(b.trunc(x, I8), I32) for x in (found, b.lshr(found, i32(8))))
        message = "has another dtype (DLPack code %d, %d bits); expected %s"
        require(b.icmp_unsigned("==", found, dtype), "TypeError", message, code, bits, dtype_name)

    def _check_layout(
        self, b: ll.IRBuilder, tensor: ll.Value, rank: ll.Value, itemsize: ll.Value, require: Require
    ) -> None:
        """Check for valid sizes and a contiguous row-major layout: strides are absent, or products of later sizes.

        Strides of axes of size one, and of tensors without elements, are ignored.
        """
        shape, strides = (b.load(field(b, tensor, o), typ=PTR) for o in (DL_SHAPE, DL_STRIDES))
        has_shape = b.or_(b.icmp_signed("==", rank, i32(0)), b.not_(is_null(b, shape)))
        require(has_shape, "TypeError", "has no shape; expected %d axes", rank)
        no_strides = is_null(b, strides)
        readable = b.select(no_strides, shape, strides)
        min_size, nbytes, empty, compact = self._walk_axes(b, shape, readable, rank, itemsize)
        require(b.icmp_signed(">=", min_size, i64(0)), "ValueError", "has a size of %lld; expected 0 or more", min_size)
        fits = b.or_(empty, b.fcmp_ordered("<=", nbytes, ll.Constant(F64, LARGEST)))
        require(fits, "ValueError", "has about %.3g bytes; expected what memory can hold", nbytes)
        require(b.or_(no_strides, b.or_(empty, compact)), "ValueError", "is not contiguous; copy it first")
        present = b.not_(is_null(b, b.load(tensor, typ=PTR)))
        require(b.or_(empty, present), "ValueError", "has no memory: its data is a null pointer")

    def _walk_axes(
        self, b: ll.IRBuilder, shape: ll.Value, strides: ll.Value, rank: ll.Value, itemsize: ll.Value
    ) -> tuple[ll.Value, ll.Value, ll.Value, ll.Value]:
        """Loop over the axes: the minimum size, the total bytes, whether a size is 0, whether it is compact."""
        yes, no = ll.Constant(v.I1, 1), ll.Constant(v.I1, 0)

        def visit(axis: ll.Value, expected: ll.Value, *found: ll.Value) -> list[ll.Value]:
            min_size, nbytes, empty, compact = found
            previous = b.sub(axis, i32(1))
            at = b.sext(previous, I64)
            size = b.load(b.gep(shape, [at], source_etype=I64), typ=I64)
            stride = b.load(b.gep(strides, [at], source_etype=I64), typ=I64)
            fits = b.or_(b.icmp_signed("==", stride, expected), b.icmp_signed("<=", size, i64(1)))
            return [
                previous,
                b.mul(expected, size),
                b.select(b.icmp_signed("<", size, min_size), size, min_size),
                b.fmul(nbytes, b.sitofp(size, F64)),
                b.or_(empty, b.icmp_signed("==", size, i64(0))),
                b.and_(compact, fits),
            ]

        initial = [rank, i64(1), i64(0), itemsize, no, yes]
        _, _, min_size, nbytes, empty, compact = while_loop(
            b, "axis", initial, lambda axis, *_: b.icmp_signed(">", axis, i32(0)), visit
        )
        return min_size, nbytes, empty, compact
