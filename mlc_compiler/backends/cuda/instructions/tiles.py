"""Matrix multiply-accumulate on tiles that a warp holds in registers (scope ``warp``), for ``Schedule.tensorize``.

A tile is loaded, multiplied and stored as a whole; only these instructions access its registers, so that a schedule
needs no lane layout. They are emitted as ldmatrix and mma.sync. A tile in memory is row-major.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands
from ....codegen.values import F32, I32, i32
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .matrix import MMAS, Mma
from .nvvm import emit
from .operands import SHORT, address, load_registers, results, store_registers
from .warp import LANES

SIZE = 16
STRIDES = (16, 24, 32, 40, 48, 72, 80)
"""Row strides, in elements, for which there are loads: of contiguous tiles and of padded rows."""

_TILE_MMAS = tuple(mma for mma in MMAS if mma.accumulator != "float16")


def tile(name: str, rows: int, columns: int, dtype: str) -> Operand:
    """A tile in the registers of a warp."""
    return Operand(name, (rows, columns), dtype, scope="warp")


def fill_row(dtype: str) -> TensorIntrin:
    """Set an accumulator tile to 0."""

    def semantics() -> te.Tensor:
        return te.compute((SIZE, SIZE), lambda i, j: te.const(0, dtype), name="acc")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        zeros = [ll.Constant(v.storage_type(dtype), 0)] * (SIZE * SIZE // LANES)
        store_registers(b, address(row, operands, 0), zeros, 4)

    operands = (tile("acc", SIZE, SIZE, dtype),)
    return TensorIntrin(f"cuda.wmma.fill.{SHORT[dtype]}", operands, semantics, {"cuda": code}, "sm_80", lanes=LANES)


def load_row(operand: str, order: str, dtype: str, stride: int) -> TensorIntrin:
    """Load a tile of the left (``a``) or right (``b``) operand from shared memory.

    order: ``row`` for ``a[i, k]`` and ``b[k, j]``, ``col`` for ``a[k, i]`` and ``b[j, k]``; the tile in registers has
    the same logical shape. 8-bit dtypes only have the orders in which k is the inner axis. stride: elements per row.
    """
    nbytes = dt.nbytes(dtype)
    columns = 2 * SIZE // nbytes
    transposed = (operand, order) in (("a", "col"), ("b", "row"))

    def semantics(memory: te.Tensor) -> te.Tensor:
        return te.compute((SIZE, columns), lambda i, j: memory[i, j], name="tile")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        offset = _matrix_row(b, stride * nbytes, rows_first=(operand == "a") != transposed)
        pointer = b.gep(address(row, operands, 1), [offset], source_etype=v.I8)
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{'.trans' if transposed else ''}.b16.p3"
        store_registers(b, address(row, operands, 0), results(b, emit(b, name, [pointer])), nbytes)

    memory = Operand("memory", (SIZE, stride), dtype, scope="shared")
    name = f"cuda.wmma.load_{operand}.{order}.{SHORT[dtype]}.ld{stride}"
    operands = (tile("tile", SIZE, columns, dtype), memory)
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_80", lanes=LANES)


def _matrix_row(b: ll.IRBuilder, row_bytes: int, rows_first: bool) -> ll.Value:
    """The offset in bytes of the row that this lane passes to ldmatrix, of 2 x 2 matrices of 8 rows of 16 bytes.

    rows_first: the second matrix is below the first one; otherwise it is to the right of it.
    """
    lane = emit(b, "llvm.nvvm.read.ptx.sreg.laneid", [])
    low = b.and_(b.lshr(lane, i32(3)), i32(1))
    high = b.lshr(lane, i32(4))
    below, right = (low, high) if rows_first else (high, low)
    row = b.add(b.mul(below, i32(8)), b.and_(lane, i32(7)))
    return b.add(b.mul(row, i32(row_bytes)), b.mul(right, i32(16)))


def mma_row(mma: Mma, a_order: str, b_order: str) -> TensorIntrin:
    """``acc[16, 16] += a @ b`` on tiles whose logical shapes depend on the orders, see ``load_row``."""

    def semantics(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(mma.k, "k")

        def element(i: Var, j: Var) -> PrimExpr:
            left = a[i, k] if a_order == "row" else a[k, i]
            right = b[k, j] if b_order == "row" else b[j, k]
            return te.sum(te.cast(left, mma.accumulator) * te.cast(right, mma.accumulator), axis=k)

        return te.compute((SIZE, SIZE), element, name="acc")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        pointers = [address(row, operands, i) for i in range(3)]
        align = dt.nbytes(mma.dtype)
        acc = load_registers(b, pointers[0], mma.accumulator_register, 8, 4)
        left, right = (load_registers(b, p, mma.register, 4, align) for p in pointers[1:])
        halves = [mma.multiply(b, acc[4 * h : 4 * h + 4], left, right[2 * h : 2 * h + 2]) for h in (0, 1)]
        store_registers(b, pointers[0], [*halves[0], *halves[1]], 4)

    def shape(inner_k: bool) -> tuple[int, int]:
        return (SIZE, mma.k) if inner_k else (mma.k, SIZE)

    operands = (
        tile("acc", SIZE, SIZE, mma.accumulator),
        tile("a", *shape(a_order == "row"), mma.dtype),
        tile("b", *shape(b_order == "col"), mma.dtype),
    )
    name = f"cuda.wmma.mma.16x16x{mma.k}.{a_order}.{b_order}.{SHORT[mma.dtype]}.{SHORT[mma.accumulator]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, mma.sm, accumulates=True, lanes=LANES)


def store_row(source: str, target: str, scope: str) -> TensorIntrin:
    """Store an accumulator tile to a contiguous tile in memory, converted to ``target``."""

    def semantics(acc: te.Tensor) -> te.Tensor:
        return te.compute((SIZE, SIZE), lambda i, j: te.cast(acc[i, j], target), name="memory")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        memory = address(row, operands, 0)
        register = F32 if source == "float32" else I32
        acc = load_registers(b, address(row, operands, 1), register, 8, 4)
        lane = emit(b, "llvm.nvvm.read.ptx.sreg.laneid", [])
        first = b.add(b.mul(b.lshr(lane, i32(2)), i32(SIZE)), b.mul(b.and_(lane, i32(3)), i32(2)))
        for pair in range(4):  # registers 2 p and 2 p + 1: neighbours in row 8 * (p % 2), column 8 * (p // 2)
            offset = b.add(first, i32(pair % 2 * 8 * SIZE + pair // 2 * 8))
            place = b.gep(memory, [offset], source_etype=v.storage_type(target))
            _store_pair(b, acc[2 * pair : 2 * pair + 2], place, target)

    operands = (Operand("memory", (SIZE, SIZE), target, scope=scope), tile("acc", SIZE, SIZE, source))
    name = f"cuda.wmma.store.{scope}.{SHORT[target]}.{SHORT[source]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_80", lanes=LANES)


def _store_pair(b: ll.IRBuilder, values: list[ll.Value], pointer: ll.Value, dtype: str) -> None:
    packed = {"float16": "llvm.nvvm.ff2f16x2.rn", "bfloat16": "cvt.rn.bf16x2.f32"}.get(dtype)
    if packed is None:
        store_registers(b, pointer, values, 8)
    else:
        store_registers(b, pointer, [emit(b, packed, values[::-1])], 4)


def _rows() -> Iterator[TensorIntrin]:
    yield from map(fill_row, ("float32", "int32"))
    for dtype in dict.fromkeys(mma.dtype for mma in _TILE_MMAS):
        orders = ("row", "col") if dt.nbytes(dtype) == 2 else ()
        for operand, inner_k in (("a", "row"), ("b", "col")):
            for order in orders or (inner_k,):
                for stride in STRIDES:
                    if stride >= 2 * SIZE // dt.nbytes(dtype) and stride * dt.nbytes(dtype) % 16 == 0:
                        yield load_row(operand, order, dtype, stride)
    for mma in _TILE_MMAS:
        pairs = (("row", "col"), ("row", "row"), ("col", "col"), ("col", "row"))
        for a_order, b_order in pairs if dt.nbytes(mma.dtype) == 2 else pairs[:1]:
            yield mma_row(mma, a_order, b_order)
    for scope in ("shared", "global"):
        for target in ("float32", "float16", "bfloat16"):
            yield store_row("float32", target, scope)
        yield store_row("int32", "int32", scope)


TILE_INSTRUCTIONS = tuple(_rows())
