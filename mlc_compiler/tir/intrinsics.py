"""Hardware instructions as table rows: what one computes, and how it is spelled in LLVM.

A row's semantics is a tensor expression over its operands: operand 0 is written, the others are read.
``Schedule.tensorize`` replaces loops that compute just that by the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ..ir.expr import Call, PrimExpr, Var
from ..ir.visitor import walk
from . import te
from .nodes import Buffer, BufferLoad, BufferStore, PrimFunc

Semantics = Callable[..., te.Tensor]


@dataclass(frozen=True)
class Operand:
    """A row-major operand in memory. ``broadcast``: one scalar of that many bits, repeated over the lanes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    broadcast: int = 0

    @property
    def elements(self) -> int:
        count = 1
        for s in self.shape:
            count *= s
        return count


@dataclass(frozen=True)
class Intrinsic:
    """One instruction.

    operands: the first is the result; ``accumulates`` tells that it is also the first argument. semantics: the tensor
    expression of the result from the other operands (and the ``scalars``, integers that are constant when code is
    made). llvm: the LLVM intrinsic, or steps ``op amount`` of plain instructions; an amount is a number or a scalar's
    name. requires: the CPU feature.
    """

    name: str
    operands: tuple[Operand, ...]
    semantics: Semantics
    llvm: str
    types: tuple[str, ...]
    requires: str
    accumulates: bool = False
    scalars: tuple[str, ...] = ()

    @cached_property
    def function(self) -> PrimFunc:
        """The semantics as a tensor function: inputs, the result, then the scalars."""
        inputs = [te.placeholder(o.shape, o.dtype, o.name) for o in self.operands[1:]]
        scalars = [Var(name) for name in self.scalars]
        return te.create_prim_func([*inputs, self.semantics(*inputs, *scalars), *scalars])


INTRINSICS: dict[str, Intrinsic] = {}


def intrinsic(row: Intrinsic) -> Intrinsic:
    """Add a row to the table."""
    INTRINSICS[row.name] = row
    return row


def _i32(value: PrimExpr) -> PrimExpr:
    return te.cast(value, "int32")


def _dot4(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(4, "k")
    return te.compute((16,), lambda i: te.sum(_i32(a[i, k]) * _i32(b[k]), axis=k), name="acc")


VNNI_DOT = intrinsic(
    Intrinsic(
        "avx512.vpdpbusd",
        (Operand("acc", (16,), "int32"), Operand("a", (16, 4), "uint8"), Operand("b", (4,), "int8", broadcast=32)),
        _dot4,
        llvm="llvm.x86.avx512.vpdpbusd.512",
        types=("i32x16", "i8x64", "i8x64"),
        requires="avx512vnni",
        accumulates=True,
    )
)


def _nibbles(word: te.Tensor, shift: Var) -> te.Tensor:
    def element(i: Var, byte: Var) -> PrimExpr:
        return te.cast((word[i] >> te.cast(byte * 8 + shift, "uint32")) & te.cast(15, "uint32"), "uint8")

    return te.compute((16, 4), element, name="codes")


NIBBLES = intrinsic(
    Intrinsic(
        "avx512.nibbles",
        (Operand("codes", (16, 4), "uint8"), Operand("word", (16,), "uint32")),
        _nibbles,
        llvm="lshr shift; and 0x0F0F0F0F",
        types=("i32x16",),
        requires="avx512f",
        scalars=("shift",),
    )
)


def operands_of(call: Call) -> list[tuple[Buffer, bool]]:
    """The buffers that an instruction's call accesses, with whether it writes them."""
    loads = [a.args[0] for a in call.args if isinstance(a, Call) and a.op == "address_of"]
    return [(load.buffer, i == 0) for i, load in enumerate(loads) if isinstance(load, BufferLoad)]


def written_buffers(stmt: object) -> set[int]:
    """Identities of the buffers that a statement stores to, by plain stores or by instructions."""
    written: set[int] = set()
    for node in walk(stmt):
        if isinstance(node, BufferStore):
            written.add(id(node.buffer))
        elif isinstance(node, Call) and node.op.startswith("intrinsic."):
            written |= {id(b) for b, writes in operands_of(node) if writes}
    return written


def find(name: str) -> Intrinsic:
    """The row of that name. Raises KeyError with the names there are."""
    if name not in INTRINSICS:
        raise KeyError(f"no intrinsic {name!r}; there are {', '.join(INTRINSICS)}")
    return INTRINSICS[name]
