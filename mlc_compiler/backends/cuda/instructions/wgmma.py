"""wgmma: matmuls by four warps on shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions")."""

from __future__ import annotations

from collections.abc import Iterator

from ....codegen import llvm_ir as ll
from ....codegen.arithmetic import CodegenError
from ....codegen.instructions import Operands
from ....codegen.values import F32, I64
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .control import control_row
from .nvvm import Instruction, emit_instruction, struct
from .operands import SHORT, address, load, results, store

LANES = 128
ROWS, DEPTH = 64, 16
WIDTH = 64
"""Elements of 16 bits in a row of 128 bytes, the unit of the swizzle."""
COLUMNS = (64, 128, 256)

_LEADING = 1 << 16  # not used in this layout
_STRIDE = (8 * 128 >> 4) << 32  # bytes from 8 rows to the next 8
_SWIZZLE_128 = 1 << 62

LAYOUT = _SWIZZLE_128 | _STRIDE | _LEADING
"""A matrix descriptor without its address."""


def wgmma_row(columns: int, dtype: str) -> TensorIntrin:
    """``acc[64, columns] += a[64, 16] @ b[columns, 16].T``, asynchronously: ``cuda.wgmma.wait`` waits for it.

    a, b: tiles of rows of 128 bytes, which begin at multiples of 1024 bytes. The 16-byte chunk ``c`` of row ``r`` is
    stored in place ``c ^ (r % 8)``. The scalar ``part`` selects 16 of the 64 positions.
    """

    def at(tile: te.Tensor, row: PrimExpr, part: PrimExpr, k: PrimExpr) -> PrimExpr:
        chunk = (part * 2 + k // 8) ^ (row % 8)
        return te.f32(tile[row, chunk * 8 + k % 8])

    def semantics(a: te.Tensor, b: te.Tensor, part: Var) -> te.Tensor:
        k = te.reduce_axis(DEPTH, "k")

        def element(lane: Var, e: Var) -> PrimExpr:
            row = lane // 32 * 16 + lane % 32 // 4 + e // 2 % 2 * 8
            column = e // 4 * 8 + lane % 4 * 2 + e % 2
            return te.sum(at(a, row, part, k) * at(b, column, part, k), axis=k)

        return te.compute((LANES, columns // 2), element, name="acc")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        acc = load(b, row, operands, 0, F32)
        offset = b.shl(_as_i64(b, operands.scalars["part"]), ll.Constant(I64, 1))  # 32 bytes, in units of 16
        descriptors = [b.add(_descriptor(b, address(row, operands, i)), offset) for i in (1, 2)]
        store(b, row, operands, results(b, emit_instruction(b, _mma(columns, dtype), [*acc, *descriptors])))

    operands = (
        Operand("acc", (LANES, columns // 2), "float32", per_lane=True, scope="local"),
        Operand("a", (ROWS, WIDTH), dtype, scope="shared"),
        Operand("b", (columns, WIDTH), dtype, scope="shared"),
    )
    name = f"cuda.wgmma.m64n{columns}k16.f32.{SHORT[dtype]}"
    return TensorIntrin(
        name, operands, semantics, {"cuda": code}, "sm_90a", accumulates=True, scalars=("part",), lanes=LANES
    )


def _as_i64(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    return value if value.type == I64 else b.sext(value, I64)


def _descriptor(b: ll.IRBuilder, pointer: ll.Value) -> ll.Value:
    """PTX ISA, "Matrix Descriptor Format": the address in units of 16 bytes, strides, the swizzle."""
    start = b.lshr(b.and_(b.ptrtoint(pointer, I64), ll.Constant(I64, 0x3FFFF)), ll.Constant(I64, 4))
    return b.or_(start, ll.Constant(I64, LAYOUT))


def _mma(columns: int, dtype: str) -> Instruction:
    count = columns // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{SHORT[dtype]}.{SHORT[dtype]}"
    registers = ", ".join(f"${i}" for i in range(count))
    text = (
        "{ .reg .pred p; setp.ne.b32 p, 1, 0; "
        f"{name} {{{registers}}}, ${2 * count}, ${2 * count + 1}, p, 1, 1, 0, 0; }}"
    )
    return _on_accumulators(name, count, text, (I64, I64))


def _on_accumulators(name: str, count: int, text: str, more: tuple[ll.Type, ...] = ()) -> Instruction:
    """An instruction as inline assembly that reads and writes ``count`` accumulators in place."""
    constraints = ",".join([*["=f"] * count, *map(str, range(count)), *["l"] * len(more), "~{memory}"])
    arguments = (*[F32] * count, *more)
    return Instruction(name, struct(F32, count), arguments, "sm_90a", 80, text, constraints, ordered=True)


def _wait_row(columns: int) -> TensorIntrin:
    """Wait until at most ``pending``, a constant, of the wgmma groups are incomplete.

    The accumulators are operands, so that LLVM moves no read of them before the wait.
    """

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        acc, pending = load(b, row, operands, 0, F32), operands.scalars["pending"]
        name = "wgmma.wait_group.sync.aligned"
        if not isinstance(pending, ll.Constant):
            raise CodegenError(f"{row.name}: the number of pending groups is not a constant")
        wait = _on_accumulators(name, len(acc), f"{name} {pending.constant};")
        store(b, row, operands, results(b, emit_instruction(b, wait, acc)))

    acc, name = Operand("acc", (LANES, columns // 2), "float32", per_lane=True, scope="local"), f"wait.n{columns}"
    return TensorIntrin(f"cuda.wgmma.{name}", (acc,), None, {"cuda": code}, "sm_90a", scalars=("pending",), lanes=LANES)


def _rows() -> Iterator[TensorIntrin]:
    yield control_row("cuda.wgmma.fence", "llvm.nvvm.wgmma.fence.sync.aligned", lanes=LANES)
    yield control_row("cuda.wgmma.commit", "llvm.nvvm.wgmma.commit_group.sync.aligned", lanes=LANES)
    for columns in COLUMNS:
        yield _wait_row(columns)
        for dtype in ("float16", "bfloat16"):
            yield wgmma_row(columns, dtype)


WGMMA = tuple(_rows())
