"""LLVM types. There is one object for each type, so types are compared by identity."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, TypeVar

T = TypeVar("T", bound="Type")


class Type:
    """A type. text: its spelling in LLVM's assembly language."""

    __slots__ = ("text",)
    null: ClassVar[str] = "zeroinitializer"
    text: str

    def __str__(self) -> str:
        return self.text

    def literal(self, value: Any) -> str:
        """The spelling of a constant of this type, without the type."""
        raise TypeError(f"no constants of type {self}")


_TYPES: dict[str, Type] = {}


def _unique(cls: type[T], text: str, **fields: object) -> T:
    """The type with this spelling; made on first use."""
    found = _TYPES.get(text)
    if found is None:
        new = object.__new__(cls)
        new.text = text
        for name, value in fields.items():
            setattr(new, name, value)
        found = _TYPES.setdefault(text, new)  # another thread may have been faster
    assert isinstance(found, cls)
    return found


class VoidType(Type):
    """The result of functions and instructions without a value."""

    __slots__ = ()

    def __new__(cls) -> VoidType:
        return _unique(cls, "void")


class PointerType(Type):
    """An address in an address space."""

    __slots__ = ("addrspace",)
    null = "null"
    addrspace: int

    def __new__(cls, addrspace: int = 0) -> PointerType:
        return _unique(cls, f"ptr addrspace({addrspace})" if addrspace else "ptr", addrspace=addrspace)


class IntType(Type):
    """An integer of ``width`` bits. Constants may be signed or unsigned."""

    __slots__ = ("width",)
    null = "0"
    width: int

    def __new__(cls, width: int) -> IntType:
        return _unique(cls, f"i{width}", width=width)

    def literal(self, value: int) -> str:
        return str(index(value))


class _FloatingType(Type):
    """Constants are rounded to the type and spelled as the bits of a double. code: the type's letter in ``struct``."""

    __slots__ = ()
    null = "0.0"
    name: ClassVar[str]
    code: ClassVar[str]

    def __new__(cls: type[T]) -> T:
        return _unique(cls, cls.name)  # type: ignore[attr-defined]

    def literal(self, value: float) -> str:
        (rounded,) = struct.unpack(self.code, struct.pack(self.code, value))
        return f"0x{struct.pack('>d', rounded).hex()}"


class HalfType(_FloatingType):
    __slots__ = ()
    name, code = "half", "e"


class BFloatType(Type):
    """Without constants."""

    __slots__ = ()

    def __new__(cls) -> BFloatType:
        return _unique(cls, "bfloat")


class FloatType(_FloatingType):
    __slots__ = ()
    name, code = "float", "f"


class DoubleType(_FloatingType):
    __slots__ = ()
    name, code = "double", "d"


class _RepeatedType(Type):
    """``count`` times ``element``. brackets: those of the spelling."""

    __slots__ = ("count", "element")
    brackets: ClassVar[str]
    element: Type
    count: int

    def __new__(cls: type[T], element: Type, count: int) -> T:
        left, right = cls.brackets  # type: ignore[attr-defined]
        return _unique(cls, f"{left}{count} x {element.text}{right}", element=element, count=count)


class VectorType(_RepeatedType):
    """``count`` numbers or pointers in a SIMD register. Constants are sequences of constants."""

    __slots__ = ()
    brackets = "<>"

    def literal(self, value: Sequence[Any]) -> str:
        if len(value) != self.count:
            raise ValueError(f"{len(value)} elements for a constant of type {self}")
        if value.count(value[0]) == self.count:
            return f"splat ({value[0].typed})"
        return f"<{', '.join([v.typed for v in value])}>"


class ArrayType(_RepeatedType):
    """``count`` elements in memory. Constants are bytes."""

    __slots__ = ()
    brackets = "[]"

    def literal(self, value: bytes | bytearray) -> str:
        return f'c"{escape(value)}"'


class LiteralStructType(Type):
    """A structure without a name. Constants are sequences of constants and addresses of globals."""

    __slots__ = ("elements",)
    elements: tuple[Type, ...]

    def __new__(cls, elements: Sequence[Type]) -> LiteralStructType:
        return _unique(cls, f"{{{', '.join([e.text for e in elements])}}}", elements=tuple(elements))

    def literal(self, value: Sequence[Any]) -> str:
        return f"{{{', '.join([v.typed for v in value])}}}"


class FunctionType(Type):
    """The signature of a function. var_arg: whether it takes more arguments, as ``printf``."""

    __slots__ = ("args", "return_type", "var_arg")
    return_type: Type
    args: tuple[Type, ...]
    var_arg: bool

    def __new__(cls, return_type: Type, args: Sequence[Type], var_arg: bool = False) -> FunctionType:
        parameters = [*(a.text for a in args), *["..."] * var_arg]
        text = f"{return_type.text} ({', '.join(parameters)})"
        return _unique(cls, text, return_type=return_type, args=tuple(args), var_arg=var_arg)


_ESCAPED = tuple(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02x}" for b in range(256))


def escape(raw: bytes | bytearray) -> str:
    """The contents of a quoted string."""
    return "".join(map(_ESCAPED.__getitem__, raw))
