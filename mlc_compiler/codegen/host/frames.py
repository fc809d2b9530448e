"""Frames: the memory that passes arguments to the code of a graph function.

A frame is an array of 64-bit values: data pointers or values of the arguments, then the symbolic sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.expr import Var as SizeVar
from ...ir.visitor import free_vars
from ...relax.nodes import Function, PrimStructInfo, TensorStructInfo, TupleStructInfo, Var
from .. import llvm_ir as ll
from .. import values as v
from ..arithmetic import CodegenError
from ..values import F64, I64


@dataclass(frozen=True)
class Slot:
    """A parameter's place in the frame: a tensor, a table of data pointers (a tuple of tensors), or a scalar."""

    var: Var
    index: int

    @property
    def is_table(self) -> bool:
        return isinstance(self.var.struct_info, TupleStructInfo)

    @property
    def scalar(self) -> str | None:
        """The dtype of a scalar."""
        info = self.var.struct_info
        return info.dtype if isinstance(info, PrimStructInfo) else None

    @property
    def value(self) -> PrimExpr | None:
        """The expression that denotes the value of a scalar in sizes and arguments."""
        info = self.var.struct_info
        return info.value if isinstance(info, PrimStructInfo) else None

    @property
    def symbol(self) -> SizeVar | None:
        """The variable that denotes the value of a scalar, if it is one."""
        return self.value if isinstance(self.value, SizeVar) else None


@dataclass(frozen=True)
class Frame:
    """The layout of a graph function's frame: one slot per parameter, then the sizes that are not scalar parameters."""

    slots: tuple[Slot, ...]
    sizes: tuple[SizeVar, ...]

    @property
    def length(self) -> int:
        return len(self.slots) + len(self.sizes)

    @property
    def symbols(self) -> tuple[SizeVar, ...]:
        """All symbols that are bound in a call."""
        return (*(slot.symbol for slot in self.slots if slot.symbol is not None), *self.sizes)


def frame_of(func: Function) -> Frame:
    """The frame of a planned function. Raises CodegenError for parameters that cannot be passed."""
    slots = tuple(Slot(p, i) for i, p in enumerate(func.params))
    shapes = [size for s in slots if s.scalar is None for info in tensor_infos(s.var) for size in info.shape or ()]
    given = {id(s.symbol) for s in slots if s.symbol is not None}
    bound = {id(size) for size in shapes if isinstance(size, SizeVar)} | given
    sizes: dict[int, SizeVar] = {}
    for var in free_vars(shapes):
        if id(var) not in bound:
            raise CodegenError(f"the size {var.name!r} is no argument's size on any axis, so a call cannot tell it")
        sizes.setdefault(id(var), var)
    return Frame(slots, tuple(v for k, v in sizes.items() if k not in given))


def read_size(b: ll.IRBuilder, address: ll.Value, dtype: str) -> ll.Value:
    """Load a scalar from a slot of eight bytes in a frame, a shape or the arguments of a call."""
    to = v.value_type(dtype)
    if dt.is_float(dtype):
        number = b.load(address, typ=F64)
        return number if to == F64 else b.fptrunc(number, to)
    value = b.load(address, typ=I64)
    return value if to == I64 else b.trunc(value, to)


def widen(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    """A size as a 64-bit integer."""
    return value if value.type == I64 else b.sext(value, I64)


def tensor_infos(param: Var) -> list[TensorStructInfo]:
    """The tensors of a parameter."""
    info = param.struct_info
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if not all(isinstance(f, TensorStructInfo) for f in fields):
        raise CodegenError(f"parameter {param.name!r} is not a tensor or a tuple of tensors")
    return list(fields)  # type: ignore[arg-type]
