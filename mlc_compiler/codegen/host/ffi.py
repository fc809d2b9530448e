"""Entries in the TVM FFI C ABI: ``int __tvm_ffi_NAME(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret)``.

Arguments are checked first. An error is raised through ``TVMFFIErrorSetRaisedFromCStr`` if that is loaded, and its
text is stored in the thread-local ``__mlc_last_error``; the entry then returns -1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dtype as dt
from ...ir.expr import IntImm, PrimExpr, as_expr
from ...ir.expr import Var as SizeVar
from ...relax.nodes import Function
from .. import llvm_ir as ll
from ..expressions import ExprEmitter
from ..values import F64, I32, I64, PTR, i32, i64, is_null
from .checks import ArgumentChecks
from .code import field
from .contexts import BUSY_CONTEXT, CALL_FAILED, NO_CONTEXT, NOT_STARTED, HostRuntime, Operation
from .dlpack import ANY_BYTES, DL_OFFSET, DL_SHAPE, TYPE_INT, dl_dtype
from .frames import Frame, Slot, frame_of, read_size, tensor_infos, widen
from .magnitude import LARGEST, magnitude

ENTRY_TYPE = ll.FunctionType(I32, [PTR, PTR, I32, PTR])


class FfiEntries:
    """Defines the entries of contexts and of graph functions in a module."""

    def __init__(self, runtime: HostRuntime):
        self.runtime = runtime
        self.module = runtime.module
        self.errors = runtime.host.errors
        self.checks = ArgumentChecks(self.module, self.errors, runtime)
        self._define_context_entries()
        for operation in runtime.operations():
            self._define_operation(operation)

    def _entry(self, name: str) -> tuple[ll.Function, ll.IRBuilder]:
        fn = ll.Function(self.module, ENTRY_TYPE, f"__tvm_ffi_{name}")
        return fn, ll.IRBuilder(fn.append_basic_block("entry"))

    def _require_count(self, b: ll.IRBuilder, fn: ll.Function, name: str, count: int) -> None:
        wrong = b.icmp_unsigned("!=", fn.args[2], i32(count))
        with b.if_then(wrong, likely=False):
            self.errors.fail(b, "TypeError", f"{name}: takes {count} arguments; got %d", fn.args[2])
        with b.if_then(b.or_(is_null(b, fn.args[1]), is_null(b, fn.args[3])), likely=False):
            self.errors.fail(b, "TypeError", f"{name}: got a null pointer for the arguments or for the result")

    def _return_int(self, b: ll.IRBuilder, ret: ll.Value, value: ll.Value) -> None:
        b.store(i64(TYPE_INT), ret)
        b.store(value, field(b, ret, 8))
        b.ret(i32(0))

    def _return_none(self, b: ll.IRBuilder, ret: ll.Value) -> None:
        b.store(i64(0), ret)
        b.store(i64(0), field(b, ret, 8))
        b.ret(i32(0))

    # -- contexts -----------------------------------------------------------------------------------------------

    def _define_context_entries(self) -> None:
        fn, b = self._entry("context_create")
        self._require_count(b, fn, "context_create", 1)
        kind, value = b.load(fn.args[1], typ=I32), b.load(field(b, fn.args[1], 8), typ=I64)
        argument = self.runtime.argument
        minimum, maximum = i64(argument.minimum), i64(argument.maximum)
        in_range = b.and_(b.icmp_signed(">=", value, minimum), b.icmp_signed("<=", value, maximum))
        ok = b.and_(b.icmp_unsigned("==", kind, i32(TYPE_INT)), in_range)
        with b.if_then(b.not_(ok)):
            what = f"{argument.name} must be an integer from {argument.minimum} to {argument.maximum}"
            self.errors.fail(b, "ValueError", f"context_create: {what}")
        context = b.call(self.runtime.create, [b.trunc(value, I32)])
        with b.if_then(b.icmp_signed("==", context, i64(NOT_STARTED))):
            self.runtime.refuse(b, "context_create")
        with b.if_then(b.icmp_unsigned("==", context, i64(0))):
            self.errors.fail(b, "RuntimeError", f"context_create: {argument.refused}")
        self._return_int(b, fn.args[3], context)

        fn, b = self._entry("context_destroy")
        self._require_count(b, fn, "context_destroy", 1)
        context = self._context(b, fn, "context_destroy")
        status = b.call(self.runtime.destroy, [context, self._handle(b, fn)])
        with b.if_then(b.icmp_signed("==", status, i32(BUSY_CONTEXT))):
            self.errors.fail(b, "RuntimeError", "context_destroy: the context is in use by a call that has not ended")
        self._return_none(b, fn.args[3])

    def _handle(self, b: ll.IRBuilder, fn: ll.Function) -> ll.Value:
        return b.load(field(b, fn.args[1], 8), typ=I64)

    def _context(self, b: ll.IRBuilder, fn: ll.Function, name: str) -> ll.Value:
        context = b.call(self.checks.context, [fn.args[1], self.errors.text(name)])
        with b.if_then(is_null(b, context), likely=False):
            b.ret(i32(-1))
        return context

    def _define_operation(self, operation: Operation) -> None:
        name, count = operation.name, len(operation.parameters)
        fn, b = self._entry(name)
        self._require_count(b, fn, name, count + 1)
        context = self._context(b, fn, name)
        memory = b.alloca(ll.ArrayType(I64, max(count, 1)), "frame", align=16)
        lowest, greatest = (i64(limit) for limit in _integer_range("int64"))
        for i, parameter in enumerate(operation.parameters):
            any_ = field(b, fn.args[1], ANY_BYTES * (i + 1))
            texts = [self.errors.text(text) for text in (name, parameter)]
            status = b.call(self.checks.integer, [any_, *texts, lowest, greatest])
            with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
                b.ret(i32(-1))
            b.store(b.load(field(b, any_, 8), typ=I64), _entry_at(b, memory, i))
        call = [context, self._handle(b, fn), operation.job, memory, i64(0)]
        self._report(b, name, b.call(self.runtime.run, call), i64(0))
        if operation.returns:
            self._return_int(b, fn.args[3], b.load(memory, typ=I64))
        else:
            self._return_none(b, fn.args[3])

    # -- graph functions ----------------------------------------------------------------------------------------

    def emit_entry(self, name: str, func: Function, job: ll.Function) -> None:
        """The exported entry of a planned graph function: check the arguments, fill the frame, run the job."""
        frame = frame_of(func)
        fn, b = self._entry(name)
        self._require_count(b, fn, name, len(frame.slots) + 1)
        context = self._context(b, fn, name)
        memory = b.alloca(ll.ArrayType(I64, max(frame.length, 1)), "frame", align=16)
        exprs = ExprEmitter(b)
        shapes = [self._argument(b, fn, context, name, slot, memory) for slot in frame.slots]
        self._bind_sizes(b, name, frame, shapes, memory, exprs)
        self._check_bounds(b, name, frame, func, exprs)
        self._check_sizes(b, name, func, exprs)
        for i, var in enumerate(frame.sizes):
            b.store(widen(b, exprs.env[id(var)]), _entry_at(b, memory, len(frame.slots) + i))
        needed = self._workspace_bytes(b, name, as_expr(func.attrs.get("workspace_bytes", 0)), exprs)
        status = b.call(self.runtime.run, [context, self._handle(b, fn), job, memory, needed])
        self._report(b, name, status, needed)
        self._return_none(b, fn.args[3])

    def _report(self, b: ll.IRBuilder, name: str, status: ll.Value, needed: ll.Value) -> None:
        """Emit the error for a status of ``run``. A failed call of a registered function has raised its own error."""
        busy = f"{name}: the context is in use by a call that has not ended; give each thread a context of its own"
        gone = f"{name}: the first argument is not a context that is open"
        with b.if_then(b.icmp_signed("<", status, i32(0)), likely=False):
            with b.if_then(b.icmp_signed("==", status, i32(CALL_FAILED))):
                b.ret(i32(-1))
            with b.if_then(b.icmp_signed("==", status, i32(BUSY_CONTEXT))):
                self.errors.fail(b, "RuntimeError", busy)
            with b.if_then(b.icmp_signed("==", status, i32(NO_CONTEXT))):
                self.errors.fail(b, "TypeError", gone)
            with b.if_then(b.icmp_signed("==", status, i32(NOT_STARTED))):
                self.runtime.refuse(b, f"{name}: in this process, which was forked from the context's")
            self.errors.fail(b, "RuntimeError", f"{name}: no memory for a workspace of %lld bytes", needed)

    def _workspace_bytes(self, b: ll.IRBuilder, name: str, size: PrimExpr, exprs: ExprEmitter) -> ll.Value:
        """The workspace size of this call. Raises an error when its computation might overflow 64 bits."""
        if not isinstance(size, IntImm):
            estimate = magnitude(b, size, exprs.env)
            with b.if_then(b.not_(b.fcmp_ordered("<=", estimate, ll.Constant(F64, LARGEST))), likely=False):
                self.errors.fail(b, "RuntimeError", f"{name}: no memory for a workspace of about %.3g bytes", estimate)
        return exprs(size)

    def _argument(
        self, b: ll.IRBuilder, fn: ll.Function, context: ll.Value, name: str, slot: Slot, memory: ll.Value
    ) -> ll.Value | None:
        """Check one argument and store its address or value in the frame; returns a tensor's shape array."""
        any_ = field(b, fn.args[1], ANY_BYTES * (slot.index + 1))
        at = _entry_at(b, memory, slot.index)
        if slot.scalar is not None:
            self._scalar(b, name, slot, any_, at)
            return None
        infos = tensor_infos(slot.var)
        dtype, ndim = ("int64", 1) if slot.is_table else (infos[0].dtype, infos[0].ndim)
        numbers = [i32(n) for n in (ndim, dl_dtype(dtype))]
        args = [any_, self.errors.text(name), self.errors.text(slot.var.name), *numbers, self.errors.text(dtype)]
        check = self.checks.table if slot.is_table else self.checks.tensor
        tensor = b.call(check, [*args, i32(dt.nbytes(dtype)), context])
        with b.if_then(is_null(b, tensor), likely=False):
            b.ret(i32(-1))
        data = b.add(b.ptrtoint(b.load(tensor, typ=PTR), I64), b.load(field(b, tensor, DL_OFFSET), typ=I64))
        b.store(data, at)
        return b.load(field(b, tensor, DL_SHAPE), typ=PTR)

    def _scalar(self, b: ll.IRBuilder, name: str, slot: Slot, any_: ll.Value, at: ll.Value) -> None:
        dtype = slot.scalar
        assert dtype is not None
        args = [any_, self.errors.text(name), self.errors.text(slot.var.name)]
        if dt.is_float(dtype):
            status = b.call(self.checks.number, [*args, at])
        else:
            minimum, maximum = _integer_range(dtype)
            status = b.call(self.checks.integer, [*args, i64(minimum), i64(maximum)])
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
            b.ret(i32(-1))
        if not dt.is_float(dtype):
            b.store(b.load(field(b, any_, 8), typ=I64), at)

    def _bind_sizes(
        self,
        b: ll.IRBuilder,
        name: str,
        frame: Frame,
        shapes: Sequence[ll.Value | None],
        memory: ll.Value,
        exprs: ExprEmitter,
    ) -> None:
        """Bind each symbol where it first occurs alone as a size; then check all other sizes."""
        pending: list[tuple[str, PrimExpr, ll.Value]] = []

        def bind(what: str, size: PrimExpr, at: ll.Value) -> None:
            message = f"{name}: argument {what}"
            if isinstance(size, SizeVar) and id(size) not in exprs.env:
                self._require_width(b, message, at, size.dtype)
                exprs.env[id(size)] = read_size(b, at, size.dtype)
            else:
                pending.append((message, size, b.load(at, typ=I64)))

        for slot in frame.slots:
            if slot.value is not None:
                bind(f"{slot.var.name} is %lld; expected %lld", slot.value, _entry_at(b, memory, slot.index))
        for slot, shape in zip(frame.slots, shapes, strict=True):
            if shape is None:
                continue
            for axis, size in enumerate(_sizes(slot)):
                bind(f"{slot.var.name} has size %lld on axis {axis}; expected %lld", size, _entry_at(b, shape, axis))
        for message, size, got in pending:
            self._require_representable(b, name, size, exprs)
            self._require_size(b, message, got, widen(b, exprs(size)))

    def _require_width(self, b: ll.IRBuilder, message: str, at: ll.Value, dtype: str) -> None:
        """Check that a size fits a symbol narrower than 64 bits."""
        if dt.is_int(dtype) and dt.bits(dtype) < 64:
            got, maximum = b.load(at, typ=I64), i64(_integer_range(dtype)[1])
            with b.if_then(b.icmp_signed(">", got, maximum), likely=False):
                self.errors.fail(b, "ValueError", message.replace("expected", "expected at most"), got, maximum)

    def _require_representable(self, b: ll.IRBuilder, name: str, size: PrimExpr, exprs: ExprEmitter) -> None:
        """Check that the computation of a size does not overflow."""
        if isinstance(size, IntImm | SizeVar):
            return
        limit = min(LARGEST, float(_integer_range(size.dtype)[1]))
        estimate = magnitude(b, size, exprs.env)
        message = f"{name}: the arguments make sizes of about %.3g; expected at most {limit:.3g}"
        with b.if_then(b.not_(b.fcmp_ordered("<=", estimate, ll.Constant(F64, limit))), likely=False):
            self.errors.fail(b, "ValueError", message, estimate)

    def _require_size(self, b: ll.IRBuilder, message: str, got: ll.Value, expected: ll.Value) -> None:
        with b.if_then(b.icmp_signed("!=", got, expected), likely=False):
            self.errors.fail(b, "ValueError", message, got, expected)

    def _check_sizes(self, b: ll.IRBuilder, name: str, func: Function, exprs: ExprEmitter) -> None:
        """Check the pairs of sizes in the attribute ``size_checks`` for equality."""
        for what, found, expected in func.attrs.get("size_checks", ()):
            for size in (found, expected):
                self._require_representable(b, name, as_expr(size), exprs)
            message = f"{name}: {what} has size %lld; expected %lld"
            self._require_size(b, message, widen(b, exprs(as_expr(found))), widen(b, exprs(as_expr(expected))))

    def _check_bounds(self, b: ll.IRBuilder, name: str, frame: Frame, func: Function, exprs: ExprEmitter) -> None:
        """Check symbols against the bounds in the function's attributes."""
        attrs = func.attrs
        limits = [(">", "the library was compiled for at most", attrs.get("tir_var_upper_bound", {}))]
        limits += [("<", "expected at least", dict.fromkeys(attrs.get("tir_non_negative_var", ()), 0))]
        for var in frame.symbols:
            for outside, what, bounds in limits:
                if var.name in bounds:
                    got, limit = widen(b, exprs.env[id(var)]), i64(int(bounds[var.name]))
                    with b.if_then(b.icmp_signed(outside, got, limit), likely=False):
                        self.errors.fail(b, "ValueError", f"{name}: {var.name} is %lld; {what} %lld", got, limit)


def _sizes(slot: Slot) -> Sequence[PrimExpr]:
    infos = tensor_infos(slot.var)
    return (IntImm(len(infos)),) if slot.is_table else infos[0].shape or ()


def _integer_range(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    width = min(dt.bits(dtype), 64)
    if dt.is_signed(dtype):
        return -(1 << (width - 1)), (1 << (width - 1)) - 1
    return 0, (1 << min(width, 63)) - 1


def _entry_at(b: ll.IRBuilder, array: ll.Value, index: int) -> ll.Value:
    return b.gep(array, [i64(index)], source_etype=I64)
