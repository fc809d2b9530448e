"""Lookups of bytes in tables of at most 64, by the byte shuffles of x86-64 and AArch64.

``vpshufb`` and ``tbl`` with one register read 16 entries, ``tbl`` with two and four registers 32 and 64, ``vpermb`` 64.
On x86-64 without ``vpermb``, larger tables are read in parts of 16, of which the index selects one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

from ..target import Target
from . import llvm_ir as ll
from .values import I8, constant, i32, intrinsic, lanes_of

LOOKUP_BYTES = "lookup_bytes"
"""``lookup_bytes(x, t0, t1, ...)``, all uint32: each byte i of x becomes byte ``i % n`` of the n bytes of the constants
t, low bytes first; n is a power of two."""

PART_BYTES = 16
X86_SHUFFLES = (
    (64, "avx512bw", "llvm.x86.avx512.pshuf.b.512"),
    (32, "avx2", "llvm.x86.avx2.pshuf.b"),
)
X86_PERMUTE = (64, "avx512vbmi", "llvm.x86.avx512.permvar.qi.512")
AARCH64_SHUFFLES = {count: f"llvm.aarch64.neon.tbl{count}.v16i8" for count in (1, 2, 4)}
"""By the number of registers with the table."""

Shuffle = Callable[[ll.IRBuilder, ll.Value, Sequence[int]], ll.Value]
"""Looks up a vector of byte indices in a table."""


def lookup_bytes(b: ll.IRBuilder, x: ll.Value, words: Sequence[int], target: Target | None) -> ll.Value:
    """Emit ``LOOKUP_BYTES``: by byte shuffles if the target has ones that fit, else by comparisons.

    x: uint32, scalar or vector. ``vpermb`` ignores the upper bits of indices; they are cleared for other instructions.
    """
    table = [word >> (8 * byte) & 255 for word in words for byte in range(4)]
    size, isa, name = X86_PERMUTE
    lanes = 4 * lanes_of(x)
    if target is not None and target.has(isa) and lanes % size == 0 and len(table) <= size:
        return _in_parts(b, x, size, partial(_permuted, name=name), table * (size // len(table)))
    x = b.and_(x, constant(ll.IntType(32), (len(table) - 1) * 0x01010101, lanes_of(x)))
    count = next((n for n in AARCH64_SHUFFLES if len(table) <= n * PART_BYTES), 0)
    table += [0] * (count * PART_BYTES - len(table))
    size, shuffle = _shuffle(target, lanes) if count and target is not None else (0, None)
    return _compared(b, x, words) if shuffle is None else _in_parts(b, x, size, shuffle, table)


def _in_parts(b: ll.IRBuilder, x: ll.Value, size: int, shuffle: Shuffle, table: Sequence[int]) -> ll.Value:
    """Look up ``size`` bytes at a time."""
    lanes = 4 * lanes_of(x)
    indices = b.bitcast(x, ll.VectorType(I8, lanes))
    parts = [shuffle(b, _part(b, indices, start, size), table) for start in range(0, lanes, size)]
    return b.bitcast(_part(b, _joined(b, parts), 0, lanes), x.type)


def _shuffle(target: Target, lanes: int) -> tuple[int, Shuffle | None]:
    """The number of indices, a divisor of ``lanes``, and the lookup for whole parts of a table; or (0, None)."""
    if target.arch == "aarch64" and lanes % PART_BYTES == 0:
        return PART_BYTES, _of_registers
    for size, isa, name in X86_SHUFFLES:
        if target.has(isa) and lanes % size == 0:
            return size, partial(_of_parts, name=name)
    return 0, None


def _of_registers(b: ll.IRBuilder, indices: ll.Value, table: Sequence[int]) -> ll.Value:
    parts = [ll.Constant(indices.type, table[i : i + PART_BYTES]) for i in range(0, len(table), PART_BYTES)]
    return intrinsic(b, AARCH64_SHUFFLES[len(parts)], [*parts, indices], indices.type)


def _permuted(b: ll.IRBuilder, indices: ll.Value, table: Sequence[int], name: str) -> ll.Value:
    return intrinsic(b, name, [ll.Constant(indices.type, table), indices], indices.type)


def _of_parts(b: ll.IRBuilder, indices: ll.Value, table: Sequence[int], name: str) -> ll.Value:
    """Look up the low four bits of the indices in each part of the table; comparisons select the part."""
    repeated = lanes_of(indices) // PART_BYTES
    *parts, found = (
        intrinsic(
            b,
            name,
            [ll.Constant(indices.type, list(table[i : i + PART_BYTES]) * repeated), indices],
            indices.type,
        )
        for i in range(0, len(table), PART_BYTES)
    )
    for i in range(len(parts) - 1, -1, -1):
        below = b.icmp_unsigned("<", indices, constant(I8, (i + 1) * PART_BYTES, lanes_of(indices)))
        found = b.select(below, parts[i], found)
    return found


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
