"""Entries in the TVM FFI C ABI: ``int __tvm_ffi_NAME(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret)``.

Arguments are checked before anything runs. An error is raised through ``TVMFFIErrorSetRaisedFromCStr`` when that is
loaded, and its text is kept in the thread-local ``__mlc_last_error``; the entry then returns -1.
Layouts: tvm/ffi/c_api.h and dlpack.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir as ll

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr
from ..ir.expr import Var as SizeVar
from ..relax.nodes import Function
from . import values as v
from .expressions import ExprEmitter
from .host import Frame, Slot, frame_of, tensor_infos
from .team import CONTEXT_MAGIC, MAGIC, MAX_THREADS, TeamRuntime, external, field
from .values import I8, I32, I64, PTR, VOID

ANY_BYTES = 16
TYPE_INT, TYPE_OPAQUE, TYPE_DLTENSOR, TYPE_TENSOR = 1, 4, 7, 70
OBJECT_HEADER_BYTES = 24
DL_DEVICE, DL_NDIM, DL_DTYPE, DL_SHAPE, DL_STRIDES, DL_OFFSET = 8, 16, 20, 24, 32, 40
CPU_DEVICE, CUDA_HOST_DEVICE = 1, 3
DL_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}
ERROR_BYTES = 512
ENTRY_TYPE = ll.FunctionType(I32, [PTR, PTR, I32, PTR])


def dl_dtype(dtype: str) -> int:
    """A DLDataType (code, bits, lanes) as the 32-bit integer that it is in memory."""
    code = DL_CODES.get(dtype)
    if code is None:
        code = DL_CODES[dtype.rstrip("0123456789")]
    return code | (8 * dt.nbytes(dtype)) << 8 | 1 << 16


class FfiRuntime:
    """Defines the shared checks, and the entries of graph functions, in a module."""

    def __init__(self, module: ll.Module, team: TeamRuntime):
        self.module = module
        self.team = team
        self.strings: dict[str, ll.Value] = {}
        self.raise_type = ll.FunctionType(VOID, [PTR, PTR])
        self.set_raised = ll.Function(module, self.raise_type, "TVMFFIErrorSetRaisedFromCStr")
        self.set_raised.linkage = "extern_weak"
        self.last_error = ll.GlobalVariable(module, ll.ArrayType(I8, ERROR_BYTES), "__mlc_last_error")
        self.last_error.storage_class = "thread_local"
        self.last_error.initializer = ll.Constant(self.last_error.value_type, None)
        self.last_error.type = PTR
        self.raise_last = self._define_raise()
        self.check_tensor = self._define_check_tensor()
        self.check_context = self._define_check_context()
        self._define_context_entries()

    def text(self, value: str) -> ll.Value:
        """A C string in read-only data."""
        if value not in self.strings:
            raw = bytearray(value.encode() + b"\0")
            array = ll.ArrayType(I8, len(raw))
            data = ll.GlobalVariable(self.module, array, f"text.{len(self.strings)}")
            data.initializer, data.global_constant, data.linkage = ll.Constant(array, raw), True, "internal"
            data.type = PTR
            self.strings[value] = data
        return self.strings[value]

    def fail(self, b: ll.IRBuilder, kind: str, message: str, *args: ll.Value, result: ll.Value | None = None) -> None:
        """Raise an error (``message`` is a printf format) and return from the function being built."""
        snprintf = external(self.module, "snprintf", I32, [PTR, I64, PTR], variadic=True)
        b.call(snprintf, [self.last_error, ll.Constant(I64, ERROR_BYTES), self.text(message), *args])
        b.call(self.raise_last, [self.text(kind)])
        b.ret(ll.Constant(I32, -1) if result is None else result)

    def _define_raise(self) -> ll.Function:
        fn = ll.Function(self.module, ll.FunctionType(VOID, [PTR]), "mlc_raise")
        fn.linkage = "internal"
        fn.attributes.add("noinline")
        b = ll.IRBuilder(fn.append_basic_block("entry"))
        present = b.icmp_unsigned("!=", b.ptrtoint(FunctionPointer(self.set_raised), I64), ll.Constant(I64, 0))
        with b.if_then(present):
            b.call(self.set_raised, [fn.args[0], self.last_error])
        b.ret_void()
        return fn

    def _define_check_context(self) -> ll.Function:
        """``ptr check_context(ptr any, ptr function)``: the context in the first argument; null: error raised."""
        fn = ll.Function(self.module, ll.FunctionType(PTR, [PTR, PTR]), "mlc_check_context")
        fn.linkage = "internal"
        fn.attributes.add("noinline")
        b = ll.IRBuilder(fn.append_basic_block("entry"))
        null = ll.Constant(PTR, None)
        kind = b.load(fn.args[0], typ=I32)
        handle = b.load(field(b, fn.args[0], 8), typ=I64)
        is_int = b.icmp_unsigned("==", kind, ll.Constant(I32, TYPE_INT))
        is_pointer = b.icmp_unsigned("==", kind, ll.Constant(I32, TYPE_OPAQUE))
        usable = b.and_(b.or_(is_int, is_pointer), b.icmp_unsigned("!=", handle, ll.Constant(I64, 0)))
        message = "%s: the first argument is not a context; make one with context_create(num_threads)"
        with b.if_then(b.not_(usable)):
            self.fail(b, "TypeError", message, fn.args[1], result=null)
        context = b.inttoptr(handle, PTR)
        magic = b.load(field(b, context, MAGIC), typ=I64)
        with b.if_then(b.icmp_unsigned("!=", magic, ll.Constant(I64, CONTEXT_MAGIC))):
            self.fail(b, "TypeError", message, fn.args[1], result=null)
        b.ret(context)
        return fn

    def _define_check_tensor(self) -> ll.Function:
        """``ptr check_tensor(ptr any, ptr function, ptr name, i32 ndim, i32 dtype, ptr dtype name, i32 itemsize)``

        gives the DLTensor of an argument after checking kind, device, rank, dtype, layout and alignment; null on error.
        """
        args = [PTR, PTR, PTR, I32, I32, PTR, I32]
        fn = ll.Function(self.module, ll.FunctionType(PTR, args), "mlc_check_tensor")
        fn.linkage = "internal"
        fn.attributes.add("noinline")
        b = ll.IRBuilder(fn.append_basic_block("entry"))
        any_, function, name, ndim, dtype, dtype_name, itemsize = fn.args
        null = ll.Constant(PTR, None)

        def require(ok: ll.Value, kind: str, message: str, *extra: ll.Value) -> None:
            with b.if_then(b.not_(ok), likely=False):
                self.fail(b, kind, f"%s: argument %s {message}", function, name, *extra, result=null)

        kind = b.load(any_, typ=I32)
        raw = b.load(field(b, any_, 8), typ=PTR)
        is_object = b.icmp_unsigned("==", kind, ll.Constant(I32, TYPE_TENSOR))
        is_view = b.icmp_unsigned("==", kind, ll.Constant(I32, TYPE_DLTENSOR))
        require(b.or_(is_object, is_view), "TypeError", "is not a tensor (type index %d)", kind)
        tensor = b.select(is_object, field(b, raw, OBJECT_HEADER_BYTES), raw)
        device = b.load(field(b, tensor, DL_DEVICE), typ=I32)
        on_host = [b.icmp_unsigned("==", device, ll.Constant(I32, d)) for d in (CPU_DEVICE, CUDA_HOST_DEVICE)]
        require(b.or_(*on_host), "ValueError", "lies on device type %d; expected a CPU tensor", device)
        rank = b.load(field(b, tensor, DL_NDIM), typ=I32)
        require(b.icmp_unsigned("==", rank, ndim), "ValueError", "has %d axes; expected %d", rank, ndim)
        found = b.load(field(b, tensor, DL_DTYPE), typ=I32)
        code, bits = (b.zext(b.trunc(x, I8), I32) for x in (found, b.lshr(found, ll.Constant(I32, 8))))
        message = "has another dtype (DLPack code %d, %d bits); expected %s"
        require(b.icmp_unsigned("==", found, dtype), "TypeError", message, code, bits, dtype_name)
        self._check_layout(b, tensor, rank, require)
        data = b.add(b.ptrtoint(b.load(tensor, typ=PTR), I64), b.load(field(b, tensor, DL_OFFSET), typ=I64))
        rest = b.urem(data, b.zext(itemsize, I64))
        require(b.icmp_unsigned("==", rest, ll.Constant(I64, 0)), "ValueError", "is not aligned to its element size")
        b.ret(tensor)
        return fn

    def _check_layout(self, b: ll.IRBuilder, tensor: ll.Value, rank: ll.Value, require: object) -> None:
        """Row-major without gaps: strides are absent, or each is the product of the sizes after it (size one: any)."""
        shape, strides = (b.load(field(b, tensor, o), typ=PTR) for o in (DL_SHAPE, DL_STRIDES))
        before = b.block
        check, loop, body, done = (b.append_basic_block(n) for n in ("strides", "axis", "axis.body", "compact"))
        is_null = b.icmp_unsigned("==", b.ptrtoint(strides, I64), ll.Constant(I64, 0))
        b.cbranch(is_null, done, check)
        b.position_at_end(check)
        b.branch(loop)
        b.position_at_end(loop)
        axis, expected, ok = b.phi(I32), b.phi(I64), b.phi(v.I1)
        for phi, start in ((axis, rank), (expected, ll.Constant(I64, 1)), (ok, ll.Constant(v.I1, 1))):
            phi.add_incoming(start, check)
        b.cbranch(b.icmp_signed(">", axis, ll.Constant(I32, 0)), body, done)
        b.position_at_end(body)
        previous = b.sub(axis, ll.Constant(I32, 1))
        at = b.sext(previous, I64)
        size = b.load(b.gep(shape, [at], source_etype=I64), typ=I64)
        stride = b.load(b.gep(strides, [at], source_etype=I64), typ=I64)
        fits = b.or_(b.icmp_signed("==", stride, expected), b.icmp_signed("<=", size, ll.Constant(I64, 1)))
        axis.add_incoming(previous, body)
        expected.add_incoming(b.mul(expected, size), body)
        ok.add_incoming(b.and_(ok, fits), body)
        b.branch(loop)
        b.position_at_end(done)
        compact = b.phi(v.I1)
        compact.add_incoming(ll.Constant(v.I1, 1), before)
        compact.add_incoming(ok, loop)
        require(compact, "ValueError", "is not contiguous; copy it first")  # type: ignore[operator]

    # -- context ------------------------------------------------------------------------------------------------

    def _entry(self, name: str) -> tuple[ll.Function, ll.IRBuilder]:
        fn = ll.Function(self.module, ENTRY_TYPE, f"__tvm_ffi_{name}")
        return fn, ll.IRBuilder(fn.append_basic_block("entry"))

    def _require_count(self, b: ll.IRBuilder, fn: ll.Function, name: str, count: int) -> None:
        wrong = b.icmp_unsigned("!=", fn.args[2], ll.Constant(I32, count))
        with b.if_then(wrong, likely=False):
            self.fail(b, "TypeError", f"{name}: takes {count} arguments; got %d", fn.args[2])

    def _return_int(self, b: ll.IRBuilder, ret: ll.Value, value: ll.Value) -> None:
        b.store(ll.Constant(I64, TYPE_INT), ret)
        b.store(value, field(b, ret, 8))
        b.ret(ll.Constant(I32, 0))

    def _return_none(self, b: ll.IRBuilder, ret: ll.Value) -> None:
        b.store(ll.Constant(I64, 0), ret)
        b.store(ll.Constant(I64, 0), field(b, ret, 8))
        b.ret(ll.Constant(I32, 0))

    def _define_context_entries(self) -> None:
        fn, b = self._entry("context_create")
        self._require_count(b, fn, "context_create", 1)
        kind, threads = b.load(fn.args[1], typ=I32), b.load(field(b, fn.args[1], 8), typ=I64)
        in_range = b.and_(
            b.icmp_signed(">=", threads, ll.Constant(I64, 1)),
            b.icmp_signed("<=", threads, ll.Constant(I64, MAX_THREADS)),
        )
        ok = b.and_(b.icmp_unsigned("==", kind, ll.Constant(I32, TYPE_INT)), in_range)
        with b.if_then(b.not_(ok)):
            self.fail(b, "ValueError", f"context_create: num_threads must be an integer from 1 to {MAX_THREADS}")
        context = b.ptrtoint(b.call(self.team.create, [b.trunc(threads, I32)]), I64)
        with b.if_then(b.icmp_unsigned("==", context, ll.Constant(I64, 0))):
            self.fail(b, "RuntimeError", "context_create: the system refused memory or threads")
        self._return_int(b, fn.args[3], context)

        fn, b = self._entry("context_destroy")
        self._require_count(b, fn, "context_destroy", 1)
        context = self._context(b, fn, "context_destroy")
        b.call(self.team.destroy, [context])
        self._return_none(b, fn.args[3])

    def _context(self, b: ll.IRBuilder, fn: ll.Function, name: str) -> ll.Value:
        context = b.call(self.check_context, [fn.args[1], self.text(name)])
        with b.if_then(b.icmp_unsigned("==", b.ptrtoint(context, I64), ll.Constant(I64, 0)), likely=False):
            b.ret(ll.Constant(I32, -1))
        return context

    # -- graph functions ----------------------------------------------------------------------------------------

    def emit_entry(self, name: str, func: Function, job: ll.Function) -> None:
        """The exported entry of a planned graph function: check, fill the frame, run the job on the team."""
        frame = frame_of(func)
        fn, b = self._entry(name)
        self._require_count(b, fn, name, len(frame.slots) + 1)
        context = self._context(b, fn, name)
        memory = v.stack_slot(b, ll.ArrayType(I64, max(frame.length, 1)), "frame", align=16)
        exprs = ExprEmitter(b)
        shapes = [self._argument(b, fn, name, slot, memory) for slot in frame.slots]
        self._bind_sizes(b, name, frame, shapes, exprs)
        self._check_bounds(b, name, frame, func.attrs.get("tir_var_upper_bound", {}), exprs)
        for i, var in enumerate(frame.sizes):
            b.store(exprs.env[id(var)], _entry_at(b, memory, len(frame.slots) + i))
        needed = ll.Constant(I64, int(func.attrs.get("workspace_bytes", 0)))
        status = b.call(self.team.run, [context, FunctionPointer(job), memory, needed])
        with b.if_then(b.icmp_signed("==", status, ll.Constant(I32, -1)), likely=False):
            self.fail(b, "RuntimeError", f"{name}: the context is in use by another thread; give each thread its own")
        with b.if_then(b.icmp_signed("<", status, ll.Constant(I32, 0)), likely=False):
            self.fail(b, "RuntimeError", f"{name}: no memory for a workspace of %lld bytes", needed)
        self._return_none(b, fn.args[3])

    def _argument(self, b: ll.IRBuilder, fn: ll.Function, name: str, slot: Slot, memory: ll.Value) -> ll.Value:
        """Check one argument, put its address into the frame; gives its shape array."""
        infos = tensor_infos(slot.var)
        dtype, ndim = ("int64", 1) if slot.is_table else (infos[0].dtype, infos[0].ndim)
        any_ = field(b, fn.args[1], ANY_BYTES * (slot.index + 1))
        numbers = [ll.Constant(I32, n) for n in (ndim, dl_dtype(dtype))]
        args = [any_, self.text(name), self.text(slot.var.name), *numbers, self.text(dtype)]
        tensor = b.call(self.check_tensor, [*args, ll.Constant(I32, dt.nbytes(dtype))])
        with b.if_then(b.icmp_unsigned("==", b.ptrtoint(tensor, I64), ll.Constant(I64, 0)), likely=False):
            b.ret(ll.Constant(I32, -1))
        data = b.add(b.ptrtoint(b.load(tensor, typ=PTR), I64), b.load(field(b, tensor, DL_OFFSET), typ=I64))
        b.store(data, _entry_at(b, memory, slot.index))
        return b.load(field(b, tensor, DL_SHAPE), typ=PTR)

    def _bind_sizes(
        self, b: ll.IRBuilder, name: str, frame: Frame, shapes: Sequence[ll.Value], exprs: ExprEmitter
    ) -> None:
        """Symbols take their value where a shape names them alone; then every other size is compared."""
        wanted: list[tuple[Slot, int, PrimExpr, ll.Value]] = []
        for slot, shape in zip(frame.slots, shapes, strict=True):
            infos = tensor_infos(slot.var)
            sizes = (IntImm(len(infos)),) if slot.is_table else infos[0].shape or ()
            for axis, size in enumerate(sizes):
                got = b.load(_entry_at(b, shape, axis), typ=I64)
                if isinstance(size, SizeVar) and id(size) not in exprs.env:
                    exprs.env[id(size)] = got
                else:
                    wanted.append((slot, axis, size, got))
        for slot, axis, size, got in wanted:
            expected = exprs(size)
            message = f"{name}: argument {slot.var.name} has size %lld on axis {axis}; expected %lld"
            with b.if_then(b.icmp_signed("!=", got, expected), likely=False):
                self.fail(b, "ValueError", message, got, expected)

    def _check_bounds(
        self, b: ll.IRBuilder, name: str, frame: Frame, bounds: Mapping[str, int], exprs: ExprEmitter
    ) -> None:
        for var in frame.sizes:
            if var.name in bounds:
                limit = ll.Constant(I64, int(bounds[var.name]))
                message = f"{name}: {var.name} is %lld; the library was compiled for at most %lld"
                with b.if_then(b.icmp_signed(">", exprs.env[id(var)], limit), likely=False):
                    self.fail(b, "ValueError", message, exprs.env[id(var)], limit)


def _entry_at(b: ll.IRBuilder, array: ll.Value, index: int) -> ll.Value:
    return b.gep(array, [ll.Constant(I64, index)], source_etype=I64)


class FunctionPointer(ll.values.NamedValue):
    """A function as a plain pointer operand."""

    def __init__(self, fn: ll.Function):
        self.type = PTR
        self.fn = fn

    def get_reference(self) -> str:
        return str(self.fn.get_reference())
