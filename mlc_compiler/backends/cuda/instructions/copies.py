"""Asynchronous copies from global to shared memory: cp.async, and bulk and tensor copies of the TMA unit."""

from __future__ import annotations

from collections.abc import Iterator

from ....codegen import llvm_ir as ll
from ....codegen.arithmetic import CodegenError
from ....codegen.instructions import Operands
from ....codegen.values import I1, I16, I64, i32
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var, logical_and
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .control import as_i32, control_row
from .nvvm import CLUSTER, GENERIC, emit
from .operands import SHORT, address

DTYPES = ("float16", "bfloat16", "float32", "int8", "uint8", "uint32", "float8_e4m3fn")
BULK_BYTES = (512, 1024, 2048, 4096)
BOX_ROWS = (64, 128, 256)
BOX_COLUMNS = 64
"""Elements of 16 bits in a row of a box: 128 bytes, the unit of the swizzle."""
TENSOR_COPY = "cuda.tensor_copy"

_NO_MULTICAST, _NO_HINT, _OFF = ll.Constant(I16, 0), ll.Constant(I64, 0), ll.Constant(I1, 0)
_MATRIX = (1 << 16,)  # elements: the meaning of a tensor copy is the same for a matrix of any size


def cp_async_row(nbytes: int, dtype: str, zero_fill: bool = False) -> TensorIntrin:
    """Start to copy ``nbytes`` bytes; they have arrived after ``cuda.cp_async.commit`` and ``cuda.cp_async.wait``.

    Both addresses must be multiples of ``nbytes``. zero_fill: the scalar ``count`` is the number of copied elements;
    the rest of the destination becomes 0 and the rest of the source is not read.
    """
    elements = nbytes // dt.nbytes(dtype)

    def copied(src: te.Tensor) -> te.Tensor:
        return te.compute((elements,), lambda i: src[i], name="dst")

    def filled(src: te.Tensor, count: Var) -> te.Tensor:
        def element(i: Var) -> PrimExpr:
            return te.if_then_else(i < count, src[i], te.const(0, dtype))

        return te.compute((elements,), element, name="dst")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        cache = "cg" if nbytes == 16 else "ca"
        name = f"llvm.nvvm.cp.async.{cache}.shared.global.{nbytes}"
        places = [address(row, operands, 0), address(row, operands, 1)]
        if zero_fill:
            size = b.mul(as_i32(b, operands.scalars["count"]), i32(dt.nbytes(dtype)))
            emit(b, f"{name}.s", [*places, size])
        else:
            emit(b, name, places)

    places = (Operand("dst", (elements,), dtype, scope="shared"), Operand("src", (elements,), dtype, scope="global"))
    name = f"cuda.cp_async.{nbytes}.{'zfill.' if zero_fill else ''}{SHORT[dtype]}"
    scalars = ("count",) if zero_fill else ()
    return TensorIntrin(name, places, filled if zero_fill else copied, {"cuda": code}, "sm_80", scalars=scalars)


COMMIT = control_row("cuda.cp_async.commit", "llvm.nvvm.cp.async.commit.group")
"""Group the copies that the thread has started since the last commit."""

WAIT = control_row("cuda.cp_async.wait", "llvm.nvvm.cp.async.wait.group", scalars=("pending",))
"""Wait until at most ``pending``, a constant, of the thread's groups are incomplete."""


def bulk_copy_row(nbytes: int, dtype: str) -> TensorIntrin:
    """Start to copy ``nbytes`` bytes, from one thread; the mbarrier ``bar`` counts them when they have arrived.

    Both addresses must be multiples of 16.
    """
    elements = nbytes // dt.nbytes(dtype)

    def copied(src: te.Tensor, bar: te.Tensor) -> te.Tensor:
        return te.compute((elements,), lambda i: src[i], name="dst")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        dst, src, bar = (address(row, operands, i) for i in range(3))
        arguments = [b.addrspacecast(dst, CLUSTER), bar, src, i32(nbytes), _NO_MULTICAST, _NO_HINT, _OFF, _OFF]
        emit(b, "llvm.nvvm.cp.async.bulk.global.to.shared.cluster", arguments)

    places = (
        Operand("dst", (elements,), dtype, scope="shared"),
        Operand("src", (elements,), dtype, scope="global"),
        Operand("bar", (1,), "uint64", scope="shared"),
    )
    return TensorIntrin(f"cuda.bulk_copy.{nbytes}.{SHORT[dtype]}", places, copied, {"cuda": code}, "sm_90")


def tensor_copy_row(rows: int, dtype: str) -> TensorIntrin:
    """Start to copy a box of a matrix, from one thread; the mbarrier ``bar`` counts its bytes when they have arrived.

    src: the matrix [height, width], row-major, which the kernel receives as a tensor map (``tensor_maps.py``). The box
    has ``rows`` rows of 64 elements from (``first_row``, ``first_column``) on; those outside of the matrix are 0, and
    are counted too. dst: at a multiple of 1024 bytes. The 16-byte chunk ``c`` of row ``r`` is stored in place
    ``c ^ (r % 8)``, as wgmma reads it (PTX ISA, "Swizzling modes").
    """

    def copied(src: te.Tensor, bar: te.Tensor, first_row: Var, first_column: Var, height: Var, width: Var) -> te.Tensor:
        def element(r: Var, place: Var) -> PrimExpr:
            row, column = first_row + r, first_column + ((place // 8) ^ (r % 8)) * 8 + place % 8
            inside = logical_and(row < height, column < width)
            return te.if_then_else(inside, src[row * width + column], te.const(0, dtype))

        return te.compute((rows, BOX_COLUMNS), element, name="dst")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        dst, src, bar = address(row, operands, 0), operands.addresses[1], address(row, operands, 2)
        if src.type != GENERIC:
            raise CodegenError(f"{row.name}: the matrix is not a tensor map among the kernel's parameters")
        start = [as_i32(b, operands.scalars[s]) for s in ("first_column", "first_row")]
        options = [_NO_MULTICAST, _NO_HINT, _OFF, _OFF, i32(0)]
        name = "llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d"
        emit(b, name, [b.addrspacecast(dst, CLUSTER), bar, src, *start, *options])

    places = (
        Operand("dst", (rows, BOX_COLUMNS), dtype, scope="shared"),
        Operand("src", _MATRIX, dtype, scope="global"),
        Operand("bar", (1,), "uint64", scope="shared"),
    )
    scalars = ("first_row", "first_column", "height", "width")
    return TensorIntrin(
        f"{TENSOR_COPY}.{rows}.{SHORT[dtype]}", places, copied, {"cuda": code}, "sm_90", scalars=scalars
    )


def _rows() -> Iterator[TensorIntrin]:
    for dtype in DTYPES:
        for nbytes in (4, 8, 16):
            yield cp_async_row(nbytes, dtype)
            yield cp_async_row(nbytes, dtype, zero_fill=True)
        for nbytes in BULK_BYTES:
            yield bulk_copy_row(nbytes, dtype)
    for dtype in ("float16", "bfloat16"):
        for rows in BOX_ROWS:
            yield tensor_copy_row(rows, dtype)
    yield from (COMMIT, WAIT)


COPIES = tuple(_rows())
