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
    made). llvm: the LLVM intrinsic; or steps of plain instructions; or ``table``: a permutation of ``table``'s bfloat16
    values by the low bits of each lane, after a shift by the scalar. requires: the CPU feature.
    """

    name: str
    operands: tuple[Operand, ...]
    semantics: Semantics
    llvm: str
    types: tuple[str, ...]
    requires: str
    accumulates: bool = False
    scalars: tuple[str, ...] = ()
    table: tuple[float, ...] = ()

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


def _nibbles(half: int) -> Semantics:
    def unpack(word: te.Tensor) -> te.Tensor:
        def element(i: Var, b: Var) -> PrimExpr:
            return te.cast((word[i] >> te.cast(b * 8 + 4 * half, "uint32")) & te.cast(15, "uint32"), "uint8")

        return te.compute((16, 4), element, name="codes")

    return unpack


def _unpack_row(half: int) -> Intrinsic:
    """Every byte's lower (half 0) or upper (half 1) four bits of 16 words, as 64 bytes."""
    return Intrinsic(
        f"avx512.nibbles{half}",
        (Operand("codes", (16, 4), "uint8"), Operand("word", (16,), "uint32")),
        _nibbles(half),
        llvm=f"lshr {4 * half}; and 0x0F0F0F0F",
        types=("i32x16",),
        requires="avx512f",
    )


def _dot2(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(2, "k")
    return te.compute((16,), lambda i: te.sum(te.f32(a[i, k]) * te.f32(b[k]), axis=k), name="acc")


BF16_DOT = intrinsic(
    Intrinsic(
        "avx512.vdpbf16ps",
        (Operand("acc", (16,), "float32"), Operand("a", (16, 2), "bfloat16"), Operand("b", (2,), "bfloat16", 32)),
        _dot2,
        llvm="llvm.x86.avx512bf16.dpbf16ps.512",
        types=("f32x16", "bf16x32", "bf16x32"),
        requires="avx512bf16",
        accumulates=True,
    )
)


def _codes_to_bf16(word: te.Tensor, shift: Var) -> te.Tensor:
    def element(i: Var, half: Var) -> PrimExpr:
        nibble = (word[i] >> te.cast(half * 16 + shift, "uint32")) & te.cast(15, "uint32")
        return te.cast(te.f32(te.cast(nibble, "int32") - 7), "bfloat16")

    return te.compute((16, 2), element, name="codes")


NIBBLES_TO_BF16 = intrinsic(
    Intrinsic(
        "avx512.nibbles_to_bf16",
        (Operand("codes", (16, 2), "bfloat16"), Operand("word", (16,), "uint32")),
        _codes_to_bf16,
        llvm="table 16 lshr",
        types=("i16x32",),
        requires="avx512bf16",
        scalars=("shift",),
        table=tuple(float(code - 7) for code in range(16)),
    )
)

NIBBLES_LOW = intrinsic(_unpack_row(0))
NIBBLES_HIGH = intrinsic(_unpack_row(1))


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
