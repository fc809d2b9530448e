"""Helpers for hand-written LLVM code of the host module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir as ll

from ..values import I8, i64

Require = Callable[..., None]
"""``require(condition, kind, message, …)``: emits a check that raises an error unless the condition holds."""

HIDDEN = "hidden"  # written as the linkage: external linkage with hidden visibility


def field(b: ll.IRBuilder, base: ll.Value, offset: int | ll.Value) -> ll.Value:
    """The address ``offset`` bytes from ``base``."""
    index = i64(offset) if isinstance(offset, int) else offset
    return b.gep(base, [index], source_etype=I8)


def external(
    module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type], variadic: bool = False
) -> ll.Function:
    """A C library function, declared once."""
    found = module.globals.get(name)
    return found or ll.Function(module, ll.FunctionType(result, list(args), var_arg=variadic), name)


def function(
    module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type]
) -> tuple[ll.Function, ll.IRBuilder]:
    """Define an internal function with an empty entry block; returns it and a builder at the entry."""
    fn = module.globals.get(name) or ll.Function(module, ll.FunctionType(result, list(args)), name)
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    return fn, ll.IRBuilder(fn.append_basic_block("entry"))


def store_atomic(b: ll.IRBuilder, value: ll.Value, address: ll.Value, ordering: str = "acq_rel") -> None:
    """Emit an atomic store, as an exchange."""
    b.atomic_rmw("xchg", address, value, ordering)


class FunctionPointer(ll.values.NamedValue):
    """The address of a function as an opaque pointer."""

    def __init__(self, fn: ll.Function):
        self.type = ll.PointerType()
        self.fn = fn

    def get_reference(self) -> str:
        return str(self.fn.get_reference())


class _Callee(ll.values.NamedValue):
    """A loaded pointer that llvmlite accepts as a callee."""

    function_type: ll.FunctionType | None = None

    def __init__(self, pointer: ll.Value, function_type: ll.FunctionType):
        self.type = ll.PointerType()
        self.pointer = pointer
        self.function_type = function_type

    def get_reference(self) -> str:
        return str(self.pointer.get_reference())


def call_loaded(
    b: ll.IRBuilder, pointer: ll.Value, function_type: ll.FunctionType, args: Sequence[ll.Value]
) -> ll.Value:
    """Emit a call of the function of type ``function_type`` at a loaded address; returns its result."""
    return b.call(_Callee(pointer, function_type), list(args))


def is_one_of(b: ll.IRBuilder, value: ll.Value, *numbers: int) -> ll.Value:
    """Whether an integer is one of ``numbers``, as i1."""
    result = b.icmp_unsigned("==", value, ll.Constant(value.type, numbers[0]))
    for number in numbers[1:]:
        result = b.or_(result, b.icmp_unsigned("==", value, ll.Constant(value.type, number)))
    return result
