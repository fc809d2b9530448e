"""Helpers for hand-written LLVM code of the host module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import llvm_ir as ll
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
    found = module.get_function(name)
    return found or ll.Function(module, ll.FunctionType(result, list(args), var_arg=variadic), name)


def function(
    module: ll.Module, name: str, result: ll.Type, args: Sequence[ll.Type]
) -> tuple[ll.Function, ll.IRBuilder]:
    """Define an internal function with an empty entry block; returns it and a builder at the entry."""
    fn = module.get_function(name) or ll.Function(module, ll.FunctionType(result, list(args)), name)
    fn.linkage = "internal"
    fn.attributes.add("noinline")
    return fn, ll.IRBuilder(fn.append_basic_block("entry"))


def store_atomic(b: ll.IRBuilder, value: ll.Value, address: ll.Value, ordering: str = "acq_rel") -> None:
    """Emit an atomic store, as an exchange."""
    b.atomic_rmw("xchg", address, value, ordering)


def is_one_of(b: ll.IRBuilder, value: ll.Value, *numbers: int) -> ll.Value:
    """Whether an integer is one of ``numbers``, as i1."""
    result = b.icmp_unsigned("==", value, ll.Constant(value.type, numbers[0]))
    for number in numbers[1:]:
        result = b.or_(result, b.icmp_unsigned("==", value, ll.Constant(value.type, number)))
    return result
