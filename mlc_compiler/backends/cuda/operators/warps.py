"""Calls of warp instructions, and reductions over the lanes of a warp."""

# The bodies of macros are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir import dtype as dt
from ....ir.expr import Call, PrimExpr
from ....script import T
from ....target import Target
from ....tir.nodes import BufferLoad
from ..instructions.loads import LOAD_BYTES
from ..instructions.operands import SHORT
from ..instructions.widening import BYTES, WIDENING


def instruction(name: str, *operands: PrimExpr) -> Call:
    """Call an instruction (``cuda.`` + name); loads are passed as the addresses of their elements."""
    args = (Call("address_of", (o,), "handle") if isinstance(o, BufferLoad) else o for o in operands)
    return Call(f"intrinsic.cuda.{name}", tuple(args), "handle")


def vector_load(count: int, dtype: str) -> str:
    """The name of the instruction that loads ``count`` elements at once; empty when there is none."""
    nbytes = count * dt.nbytes(dtype)
    return f"load.{nbytes}.{SHORT[dtype]}" if nbytes in LOAD_BYTES and dtype in SHORT else ""


def element_after(load: BufferLoad, i: PrimExpr) -> BufferLoad:
    """The load of the element ``i`` elements further along the last axis."""
    return BufferLoad(load.buffer, (*load.indices[:-1], load.indices[-1] + i))


def widening(dtype: str, count: int, target: Target) -> str:
    """The name of the instruction that converts ``count`` elements of a dtype to float32; empty when there is none."""
    row = next((row for row in WIDENING if row.operands[1].dtype == dtype), None)
    usable = row is not None and count % BYTES == 0 and target.has(row.requires)
    return row.name.removeprefix("cuda.") if usable else ""


def add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a + b``"""
    return a + b


@T.macro
def load_vector(row, i, source, count):
    """``row[i, 0:count]`` = the ``count`` elements from ``source`` on, aligned to their total size."""
    name = vector_load(count, source.dtype)
    if name:
        instruction(name, row[i, 0], source)
    else:
        for x in T.unroll(count):
            row[i, x] = element_after(source, x)


@T.macro
def widen(name, wide, values, i, count):
    """``wide[0:count] = values[i, 0:count]`` in float32, by the instruction ``name`` unless it is empty."""
    if name:
        for x in T.unroll(count // BYTES):
            instruction(name, wide[x * BYTES], values[i, x * BYTES])
    else:
        for x in T.unroll(count):
            wide[x] = T.Cast("float32", values[i, x])


@T.macro
def exchange(values, count, other, combine, mask):
    """Combine ``count`` float32 values with those of the lane whose index differs in the bits ``mask``."""
    for i in T.unroll(count):
        instruction("shfl.xor.f32", other[0], values[i], T.int32(mask))
        values[i] = combine(values[i], other[0])


@T.macro
def reduce_lanes(values, count, other, combine, low, high):
    """Combine ``count`` float32 values of lanes whose indices differ in some bits only.

    low, high: powers of two; the bits are those from ``low`` up to, but not including, ``high``.
    """
    if low < high:
        exchange(values, count, other, combine, high // 2)
        reduce_lanes(values, count, other, combine, low, high // 2)


@T.macro
def scatter_sums(sums, rows, width, sent, other, lane, mask):
    """Add rows of ``width`` sums over lanes (reduce-scatter); each lane gets one sum of each row, in ``sums[row, 0]``.

    Each step exchanges half of the sums with the lane that differs in the bit ``mask``; the lane with the bit keeps the
    upper half. The bits from the highest one down are those of the index of the sum that a lane gets.
    """
    if width > 1:
        for h in T.unroll(rows):
            for i in T.unroll(width // 2):
                upper = lane // mask % 2 > 0
                sent[0] = T.Select(upper, sums[h, i], sums[h, i + width // 2])
                instruction("shfl.xor.f32", other[0], sent[0], T.int32(mask))
                sums[h, i] = T.Select(upper, sums[h, i + width // 2], sums[h, i]) + other[0]
        scatter_sums(sums, rows, width // 2, sent, other, lane, mask // 2)
