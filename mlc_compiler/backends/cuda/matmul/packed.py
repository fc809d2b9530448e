"""Quantized weights whose codes an instruction unpacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....ir.expr import Call, PrimExpr, Select, Var, cast, const
from ....ir.visitor import uses, walk
from ....relax.ops.linear import QUANTIZED
from ....schedules.rule import Blocks, constant_extent, stored_buffer
from ....tir import byte_scales
from ....tir.nodes import Buffer, BufferLoad, PrimFunc
from ..instructions.dequantize import BOOK4, Q3, Q4, Q8, Unpacking
from ..instructions.dequantize_fp8 import float8_unpacking
from ..instructions.operands import SHORT
from ..machine import Gpu
from .gates import column_of
from .tiles import CHUNK
from .weight_layouts import COLUMNS, Layouts, weight_layouts

UNPACKINGS: Mapping[tuple[int, bool], Unpacking] = {(3, False): Q3, (4, False): Q4, (8, False): Q8, (4, True): BOOK4}
"""(bits of a code, whether there is a codebook) -> unpacking."""
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Packed:
    """A weight stored as codes.

    stored: stored element at (column, number); ``width`` elements hold the codes of a column in the order of positions.
    scale: scale of the code at (column, position), the same for each ``group`` positions; unused if ``unpacking`` has
    none. values: the codebook, or (). layouts: the layouts of the parameters, see ``weight_layouts``; with these, the
    last span is padded in memory.
    """

    unpacking: Unpacking
    width: int
    stored: Callable[[PrimExpr, PrimExpr], PrimExpr]
    scale: Callable[[PrimExpr, PrimExpr], PrimExpr]
    group: int
    values: tuple[int, ...] = ()
    layouts: Layouts = ()

    def entry(self, number: PrimExpr) -> PrimExpr:
        """Entry ``number`` of the codebook."""
        *others, value = (const(v, "int8") for v in self.values)
        for i, entry in reversed(list(enumerate(others))):
            value = Select(number <= i, entry, value)
        return value

    def unpack(self, pairs: bool, out: BufferLoad, element: BufferLoad, scale: BufferLoad, book: BufferLoad) -> Call:
        """Unpack the codes from ``element`` on; pairs: in the order of ``unpacking.order``."""
        of = self.unpacking
        operands = (out, element, *((scale,) if of.scaled else ()), *((book,) if of.book else ()))
        places = (Call("address_of", (o,), "handle") for o in operands)
        name = f"intrinsic.cuda.dequantize.{of.name}.{'pairs.' if pairs else ''}{SHORT[out.dtype]}"
        return Call(name, tuple(places), "handle")


def packed_weight(func: PrimFunc, blocks: Blocks, weight: Buffer, *lead: PrimExpr) -> Packed | None:
    """The codes from which ``dequantize`` computes the matrix ``weight[*lead]``; None if no instruction unpacks them.

    Also None if the scales have another dtype than the weight or one byte.
    """
    made = next((b for b in blocks.in_order if stored_buffer(b) is weight), None)
    of: Any = made.annotations.get(QUANTIZED) if made is not None else None
    unpacking = UNPACKINGS.get((of["bits"], bool(of["values"]))) if of is not None else None
    if made is None or unpacking is None:
        return None
    loaded = {n.buffer.dtype: n.buffer for n in walk(made.body) if isinstance(n, BufferLoad)}
    codes, scale = loaded[unpacking.dtype], loaded.get(weight.dtype, loaded.get(byte_scales.DTYPE))
    by_column, group = of["layout"] == "NK", of["group"]
    width = constant_extent(codes.shape[-1 if by_column else -2])
    if scale is None or width is None:
        return None

    def at(buffer: Buffer, n: PrimExpr, i: PrimExpr) -> PrimExpr:
        return buffer[(*lead, n, i)] if by_column else buffer[(*lead, i, n)]

    def stored(n: PrimExpr, i: PrimExpr) -> PrimExpr:
        return at(codes, n, i)

    positions = {codes: unpacking.positions, scale: group}
    layouts = () if lead else weight_layouts(func, unpacking, positions, by_column)

    def scale_of(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        return cast(weight.dtype, byte_scales.scale_value(at(scale, n, k // group)))

    return Packed(unpacking, width, stored, scale_of, group, of["values"], layouts)


def float8_weight(weight: PrimExpr, column: Var, position: Var, dtype: str, gpu: Gpu) -> Packed | None:
    """The codes of a float8 weight [..., columns, depth]; None if ``weight`` is not its element (column, position)."""
    if not isinstance(weight, BufferLoad) or weight.dtype not in FLOAT8:
        return None
    buffer, (*lead, n, k) = weight.buffer, weight.indices
    width = constant_extent(buffer.shape[-1])
    if width is None or n is not column or k is not position or any(uses(i, v) for i in lead for v in (n, k)):
        return None

    def stored(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        return buffer[(*lead, n, k)]

    return Packed(float8_unpacking(buffer.dtype, dtype, gpu.arch), width, stored, stored, width)


def has_whole_chunks(packed: Packed) -> bool:
    """Whether instructions unpack chunks of ``CHUNK`` positions in their order, with one scale for each."""
    of = packed.unpacking
    whole = CHUNK % of.codes == 0 and packed.width * of.positions % CHUNK == 0
    return of.in_order and whole and (packed.group % CHUNK == 0 or not of.scaled)


def interleaved(packed: Packed, results: int) -> Packed:
    """The weight of a gated matmul with interleaved columns, see ``gates.py``."""
    return replace(
        packed,
        layouts=() if results % COLUMNS else packed.layouts,
        stored=lambda n, i: packed.stored(column_of(n, results), i),
        scale=lambda n, k: packed.scale(column_of(n, results), k),
    )
