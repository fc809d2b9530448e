"""Errors of native code: text in a thread-local buffer, raised through the TVM FFI if that is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from .. import llvm_ir as ll
from ..values import I8, I32, I64, PTR, VOID, i32, i64, is_null
from .code import external, function

ERROR_BYTES = 512


class ErrorReporter:
    """Defines the error buffer ``__mlc_last_error`` in a module and emits failures."""

    def __init__(self, module: ll.Module):
        self.module = module
        self.strings: dict[str, ll.Value] = {}
        self.set_raised = self.optional("TVMFFIErrorSetRaisedFromCStr", VOID, [PTR, PTR])
        self.last_error = ll.GlobalVariable(module, ll.ArrayType(I8, ERROR_BYTES), "__mlc_last_error")
        self.last_error.storage_class = "thread_local"
        self.last_error.initializer = ll.Constant(self.last_error.value_type, None)
        self.raise_last = self._define_raise()

    def text(self, value: str) -> ll.Value:
        """A C string in read-only data."""
        if value not in self.strings:
            raw = bytearray(value.encode() + b"\0")
            array = ll.ArrayType(I8, len(raw))
            data = ll.GlobalVariable(self.module, array, f"text.{len(self.strings)}")
            data.initializer, data.global_constant, data.linkage = ll.Constant(array, raw), True, "internal"
            self.strings[value] = data
        return self.strings[value]

    def optional(self, name: str, result: ll.Type, args: Sequence[ll.Type]) -> ll.Function:
        """Declare a weak function, which may be absent at run time; see ``is_missing``."""
        fn = ll.Function(self.module, ll.FunctionType(result, list(args)), name)
        fn.linkage = "extern_weak"
        return fn

    def is_missing(self, b: ll.IRBuilder, fn: ll.Function) -> ll.Value:
        """Whether a weak function is absent at run time."""
        return is_null(b, fn)

    def fail(self, b: ll.IRBuilder, kind: str, message: str, *args: ll.Value, result: ll.Value | None = None) -> None:
        """Emit code that raises an error and returns from the function being built. message: a printf format."""
        snprintf = external(self.module, "snprintf", I32, [PTR, I64, PTR], variadic=True)
        b.call(snprintf, [self.last_error, i64(ERROR_BYTES), self.text(message), *args])
        b.call(self.raise_last, [self.text(kind)])
        b.ret(i32(-1) if result is None else result)

    def _define_raise(self) -> ll.Function:
        fn, b = function(self.module, "mlc_raise", VOID, [PTR])
        with b.if_then(b.not_(self.is_missing(b, self.set_raised))):
            b.call(self.set_raised, [fn.args[0], self.last_error])
        b.ret_void()
        return fn
