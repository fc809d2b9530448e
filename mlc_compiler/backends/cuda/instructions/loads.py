"""Vector loads from global memory.

LLVM splits a vector load whose elements are used one by one into narrow loads, so these are instructions of their own.
"""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands
from ....codegen.values import i32
from ....ir import dtype as dt
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import emit
from .operands import SHORT, address, results

LOAD_BYTES = (4, 8, 16)


def load_row(nbytes: int, dtype: str) -> TensorIntrin:
    """Load ``nbytes`` bytes, aligned to ``nbytes``, from memory that the kernel does not write."""
    elements = nbytes // dt.nbytes(dtype)

    def semantics(src: te.Tensor) -> te.Tensor:
        return te.compute((elements,), lambda i: src[i], name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        words = results(b, emit(b, f"ld.global.v{nbytes // 4}.b32", [address(row, operands, 1)]))
        vector: ll.Value = ll.Constant(ll.VectorType(v.I32, len(words)), ll.Undefined)
        for i, word in enumerate(words):
            vector = b.insert_element(vector, word, i32(i))
        vector = b.bitcast(vector, ll.VectorType(v.storage_type(dtype), elements))
        b.store(vector, address(row, operands, 0), align=dt.nbytes(dtype))

    operands = (Operand("out", (elements,), dtype, scope="local"), Operand("src", (elements,), dtype, scope="global"))
    return TensorIntrin(f"cuda.load.{nbytes}.{SHORT[dtype]}", operands, semantics, {"cuda": code}, "sm_70")


LOADS = tuple(load_row(nbytes, dtype) for nbytes in LOAD_BYTES for dtype in SHORT)
