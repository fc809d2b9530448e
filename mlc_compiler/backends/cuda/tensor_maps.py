"""Tensor maps: descriptors of matrices for the TMA unit, 128 bytes that the host encodes and a kernel takes by value.

The driver's encoding depends on the address and the sizes only. Each thread caches ``CAPACITY`` encodings
(direct-mapped); a call that is replayed as a graph has its own copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...codegen import llvm_ir as ll
from ...codegen.host.code import external, field, function
from ...codegen.values import I8, I32, I64, PTR, VOID, i32, i64
from ...ir import dtype as dt
from .faults import Faults
from .instructions.copies import BOX_COLUMNS

NBYTES, ALIGNMENT = 128, 64  # of a CUtensorMap
CAPACITY_BITS = 8
CAPACITY = 1 << CAPACITY_BITS

TYPES = {"float16": 6, "bfloat16": 9}
"""CUtensorMapDataType by dtype (cuda.h)."""
_SWIZZLE_128, _PROMOTION_256 = 3, 3  # CUtensorMapSwizzle, CUtensorMapL2promotion

_KEY_WORDS = 5  # address, height, width, rows of a box, type
_ENTRY_BYTES = NBYTES + ALIGNMENT  # the map, then its key
_HASH = 0x9E3779B97F4A7C15  # 2^64 / golden ratio (Knuth, The Art of Computer Programming, vol. 3, section 6.4)


PARAMETER_ATTRIBUTES = (f"byval([{NBYTES} x i8])", f"align {ALIGNMENT}", '"nvvm.grid_constant"')
"""The attributes of a kernel's tensor map parameter: by value, ``__grid_constant__``."""


class TensorMaps:
    """Defines the encoding of tensor maps in a host module."""

    def __init__(self, faults: Faults):
        self.faults, self.module, self.driver = faults, faults.module, faults.driver

    def emit(
        self, b: ll.IRBuilder, context: ll.Value, address: ll.Value, sizes: Sequence[ll.Value], dtype: str
    ) -> ll.Value:
        """Emit a map on the stack of the function; returns its address. sizes: int64 height, width, rows of a box."""
        with b.goto_entry_block():
            out = b.alloca(ll.ArrayType(I8, NBYTES), "tensor_map", align=ALIGNMENT)
            key = b.alloca(ll.ArrayType(I64, _KEY_WORDS), "matrix", align=8)
        for i, word in enumerate((b.ptrtoint(address, I64), *sizes, i64(TYPES[dtype]))):
            b.store(word, field(b, key, 8 * i))
        b.call(self.find, [context, key, out, i64(dt.nbytes(dtype))])
        return out

    @cached_property
    def _kept(self) -> ll.GlobalVariable:
        table = ll.GlobalVariable(self.module, ll.ArrayType(I8, CAPACITY * _ENTRY_BYTES), "mlc_cuda_tensor_maps")
        table.storage_class, table.linkage, table.align = "thread_local", "internal", ALIGNMENT
        table.initializer = ll.Constant(table.value_type, None)
        return table

    @cached_property
    def find(self) -> ll.Function:
        """``void find(ptr context, ptr key, ptr out, i64 item)``: write a map, cached or newly encoded, to ``out``.

        item: bytes of an element. Writes nothing for a matrix without rows. An error becomes that of the call.
        """
        fn, b = function(self.module, "mlc_cuda_tensor_map", VOID, [PTR, PTR, PTR, I64])
        context, key, out, item = fn.args
        address, height = (b.load(field(b, key, 8 * i), typ=I64) for i in range(2))
        with b.if_then(b.icmp_signed("<", height, i64(1))):
            b.ret_void()
        place = b.lshr(b.mul(b.add(address, height), i64(_HASH)), i64(64 - CAPACITY_BITS))
        entry = field(b, self._kept, b.mul(place, i64(_ENTRY_BYTES)))
        compare = external(self.module, "memcmp", I32, [PTR, PTR, I64])
        copy = external(self.module, "memcpy", PTR, [PTR, PTR, I64])
        size = i64(8 * _KEY_WORDS)
        differs = b.call(compare, [field(b, entry, NBYTES), key, size])
        with b.if_then(b.icmp_signed("!=", differs, i32(0))):
            status = self._encode(b, entry, key, item)
            with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
                b.call(self.faults.fail, [context, status, self.faults.errors.text("describing a matrix")])
                b.ret_void()
            b.call(copy, [field(b, entry, NBYTES), key, size])
        b.call(copy, [out, entry, i64(NBYTES)])
        b.ret_void()
        return fn

    def _encode(self, b: ll.IRBuilder, entry: ll.Value, key: ll.Value, item: ll.Value) -> ll.Value:
        """Call ``cuTensorMapEncodeTiled``: sizes and boxes innermost first; zeros outside of the matrix."""
        address, height, width, rows, kind = (b.load(field(b, key, 8 * i), typ=I64) for i in range(_KEY_WORDS))
        sizes, strides = self._array(b, I64, width, height), self._array(b, I64, b.mul(width, item))
        box = self._array(b, I32, i32(BOX_COLUMNS), b.trunc(rows, I32))
        steps = self._array(b, I32, i32(1), i32(1))
        options = [i32(0), i32(_SWIZZLE_128), i32(_PROMOTION_256), i32(0)]
        name, kind = "cuTensorMapEncodeTiled", b.trunc(kind, I32)
        status = self.driver.call(b, name, entry, kind, i32(2), address, sizes, strides, box, steps, *options)
        with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):  # the entry has no whole map any more
            b.store(i64(0), field(b, entry, NBYTES))
        return status

    def _array(self, b: ll.IRBuilder, element: ll.IntType, *values: ll.Value) -> ll.Value:
        with b.goto_entry_block():
            slot = b.alloca(ll.ArrayType(element, len(values)), align=8)
        for i, value in enumerate(values):
            b.store(value, field(b, slot, element.width // 8 * i))
        return slot
