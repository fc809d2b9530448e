"""Lookups of bytes in a table of at most 16, by the byte shuffles of x86-64 (``vpshufb``) and AArch64 (``tbl``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from ..target import Target
from . import llvm_ir as ll
from .values import I8, constant, i32, intrinsic, lanes_of

LOOKUP_BYTES = "lookup_bytes"
"""``lookup_bytes(x, t0, t1, ...)``, all uint32: each byte i of x becomes byte i of the constants t, low bytes first."""

TABLE_BYTES = 16
X86_SHUFFLES = (
    (64, "avx512bw", "llvm.x86.avx512.pshuf.b.512"),
    (32, "avx2", "llvm.x86.avx2.pshuf.b"),
)
AARCH64_SHUFFLE = "llvm.aarch64.neon.tbl1.v16i8"


def lookup_bytes(b: ll.IRBuilder, x: ll.Value, words: Sequence[int], target: Target | None) -> ll.Value:
    """Emit ``LOOKUP_BYTES``: by a byte shuffle if the target has one that fits, else by comparisons.

    x: uint32, scalar or vector, whose bytes are less than 4 * len(words).
    """
    table = [word >> (8 * byte) & 255 for word in words for byte in range(4)]
    table += [0] * (TABLE_BYTES - len(table))
    lanes = lanes_of(x)
    size = next((s for s, isa, _ in X86_SHUFFLES if target and target.has(isa) and 4 * lanes % s == 0), 0)
    if target is not None and target.arch == "aarch64" and 4 * lanes % TABLE_BYTES == 0:
        size = TABLE_BYTES
    if not size or len(table) > TABLE_BYTES:
        return _compared(b, x, words)
    name = next((name for s, _, name in X86_SHUFFLES if s == size), AARCH64_SHUFFLE)
    indices = b.bitcast(x, ll.VectorType(I8, 4 * lanes))
    parts = [_shuffled(b, name, _part(b, indices, start, size), table) for start in range(0, 4 * lanes, size)]
    return b.bitcast(_part(b, _joined(b, parts), 0, 4 * lanes), x.type)


def _shuffled(b: ll.IRBuilder, name: str, indices: ll.Value, table: Sequence[int]) -> ll.Value:
    held = ll.Constant(indices.type, list(table) * (lanes_of(indices) // TABLE_BYTES))
    return intrinsic(b, name, [held, indices], indices.type)


def _part(b: ll.IRBuilder, value: ll.Value, start: int, size: int) -> ll.Value:
    if size == lanes_of(value):
        return value
    return b.shuffle_vector(value, value, ll.Constant(ll.VectorType(ll.IntType(32), size), _from(start, size)))


def _joined(b: ll.IRBuilder, parts: Sequence[ll.Value]) -> ll.Value:
    """Concatenate vectors; padded with undefined lanes to a power of two of parts."""
    while len(parts) > 1:
        nothing = ll.Constant(parts[0].type, ll.Undefined)
        pairs = zip_longest(parts[::2], parts[1::2], fillvalue=nothing)
        size = ll.VectorType(ll.IntType(32), 2 * lanes_of(nothing))
        parts = [b.shuffle_vector(*pair, ll.Constant(size, _from(0, size.count))) for pair in pairs]
    return parts[0]


def _from(start: int, count: int) -> list[ll.Constant]:
    return [i32(i) for i in range(start, start + count)]


def _compared(b: ll.IRBuilder, x: ll.Value, words: Sequence[int]) -> ll.Value:
    """For each byte, select the word of the table by comparisons, then shift."""
    lanes, element = lanes_of(x), ll.IntType(32)

    def const(value: int) -> ll.Constant:
        return constant(element, value, lanes)

    result: ll.Value = const(0)
    for byte in range(4):
        code = b.and_(b.lshr(x, const(8 * byte)), const(255))
        word: ll.Value = const(words[-1])
        for i in range(len(words) - 2, -1, -1):
            word = b.select(b.icmp_unsigned("<", code, const(4 * (i + 1))), const(words[i]), word)
        value = b.and_(b.lshr(word, b.shl(b.and_(code, const(3)), const(3))), const(255))
        result = b.or_(result, b.shl(value, const(8 * byte)))
    return result
