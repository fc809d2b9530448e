"""Matrix instructions on the registers of each lane: ldmatrix and mma.sync.

Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k32". A register of 32 bits holds
``pack = 32 / bits`` consecutive elements of a row of A or a column of B; lanes ``4 * r`` to ``4 * r + 3`` hold row r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....codegen import llvm_ir as ll
from ....codegen.instructions import Operands
from ....codegen.values import F32, I32
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import F16X2, INSTRUCTIONS, emit
from .operands import SHORT, address, load, results, store
from .warp import LANES

ROW_BYTES = 16
"""Bytes of a row of one 8 x 8 matrix of 16-bit elements, which ldmatrix loads."""


def ldmatrix_row(count: int, dtype: str, transposed: bool = False) -> TensorIntrin:
    """Load ``count`` matrices of 8 rows of 16 bytes; lane ``8 * m + r`` passes the address of row ``r`` of matrix m.

    The other lanes' addresses are not read. ``transposed``: each 8 x 8 matrix of 16-bit elements is transposed.
    """
    pack = 4 // dt.nbytes(dtype)

    def element(rows: te.Tensor, lane: Var, i: Var) -> PrimExpr:
        matrix, row, column = i // pack, lane // 4, lane % 4 * pack + i % pack
        if transposed:
            row, column = column, row
        return rows[matrix * 8 + row, column]

    def semantics(rows: te.Tensor) -> te.Tensor:
        return te.compute((LANES, pack * count), lambda lane, i: element(rows, lane, i), name="out")

    mode = ".trans" if transposed else ""

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{mode}.b16.p3"
        store(b, row, operands, results(b, emit(b, name, [address(row, operands, 1)])))

    out = Operand("out", (LANES, pack * count), dtype, per_lane=True, scope="local")
    rows = Operand("rows", (LANES, ROW_BYTES // dt.nbytes(dtype)), dtype, per_lane=True, scope="shared")
    name = f"cuda.ldmatrix.x{count}{mode}.{SHORT[dtype]}"
    return TensorIntrin(name, (out, rows), semantics, {"cuda": code}, "sm_75", lanes=LANES)


@dataclass(frozen=True)
class Mma:
    """A matrix multiply-accumulate of fragments ``acc[16, 8] += a[16, k] @ b[k, 8]`` by one warp."""

    k: int
    dtype: str
    accumulator: str
    intrinsic: str

    @property
    def pack(self) -> int:
        """Elements in a register of 32 bits."""
        return 4 // dt.nbytes(self.dtype)

    @property
    def register(self) -> ll.Type:
        """LLVM's type of the registers of ``a`` and ``b``."""
        return F16X2 if self.dtype == "float16" else I32

    @property
    def sm(self) -> str:
        return INSTRUCTIONS[self.intrinsic].sm

    def multiply(
        self, b: ll.IRBuilder, acc: list[ll.Value], left: list[ll.Value], right: list[ll.Value]
    ) -> list[ll.Value]:
        """Emit the instruction on registers of ``acc``, ``a`` and ``b``; returns the new accumulators."""
        return results(b, emit(b, self.intrinsic, [*left, *right, *acc]))

    @property
    def accumulator_register(self) -> ll.Type:
        return {"float32": F32, "int32": I32, "float16": F16X2}[self.accumulator]


_MMA = "llvm.nvvm.mma.m16n8"
MMAS = (
    Mma(16, "float16", "float32", f"{_MMA}k16.row.col.f32.f32"),
    Mma(16, "float16", "float16", f"{_MMA}k16.row.col.f16.f16"),
    Mma(16, "bfloat16", "float32", f"{_MMA}k16.row.col.bf16"),
    Mma(32, "int8", "int32", f"{_MMA}k32.row.col.s8"),
    Mma(32, "float8_e4m3fn", "float32", f"{_MMA}k32.row.col.f32.e4m3.e4m3.f32"),
)


def mma_row(mma: Mma) -> TensorIntrin:
    """``acc += a @ b`` on fragments: each lane holds 4 elements of ``acc``, k / 2 of ``a`` and k / 4 of ``b``."""
    pack, block = mma.pack, 4 * mma.pack

    def left(a: te.Tensor, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        return a[i % 8 * 4 + k % block // pack, k // block * (2 * pack) + i // 8 * pack + k % pack]

    def right(b: te.Tensor, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        return b[j * 4 + k % block // pack, k // block * pack + k % pack]

    def semantics(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(mma.k, "k")

        def element(lane: Var, e: Var) -> PrimExpr:
            i, j = lane // 4 + e // 2 * 8, lane % 4 * 2 + e % 2
            return te.sum(te.cast(left(a, i, k), mma.accumulator) * te.cast(right(b, k, j), mma.accumulator), axis=k)

        return te.compute((LANES, 4), element, name="acc")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        acc = load(b, row, operands, 0, mma.accumulator_register)
        a, c = (load(b, row, operands, i, mma.register) for i in (1, 2))
        store(b, row, operands, mma.multiply(b, acc, a, c))

    def fragment(name: str, elements: int, dtype: str) -> Operand:
        return Operand(name, (LANES, elements), dtype, per_lane=True, scope="local")

    operands = (
        fragment("acc", 4, mma.accumulator),
        fragment("a", 16 * mma.k // LANES, mma.dtype),
        fragment("b", 8 * mma.k // LANES, mma.dtype),
    )
    name = f"cuda.mma.m16n8k{mma.k}.{SHORT[mma.accumulator]}.{SHORT[mma.dtype]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, mma.sm, accumulates=True, lanes=LANES)


def _rows() -> Iterator[TensorIntrin]:
    for count in (1, 2, 4):
        for dtype in ("float16", "bfloat16"):
            yield ldmatrix_row(count, dtype)
            yield ldmatrix_row(count, dtype, transposed=True)
        for dtype in ("int8", "float8_e4m3fn"):
            yield ldmatrix_row(count, dtype)
    yield from map(mma_row, MMAS)


MATRIX_INSTRUCTIONS = tuple(_rows())
