"""Integer arithmetic and bit manipulation (PTX ISA 9.7.1, 9.7.2, 9.7.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import Decoder, Step, builds, numpy_type
from mlc_compiler.sim.elementwise import Formula, compute
from mlc_compiler.sim.program import BITS, Instruction

Array = npt.NDArray[Any]


def truncated_division(a: Array, b: Array) -> Array:
    """Quotient rounded towards zero, as in C; 0 where b is 0."""
    return (a - np.fmod(a, b)) // b


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product, in the operands' type."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}8")
        return ((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(a.dtype)
    return _high_product_64(a, b)


def _high_product_64(a: Array, b: Array) -> Array:
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    high = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, 0).astype(np.uint64) - np.where(b < 0, x, 0).astype(np.uint64)
    return high.view(a.dtype)


def shift_left(a: Array, amount: Array) -> Array:
    """Left shift; amounts beyond the width give 0."""
    bits = a.dtype.itemsize * 8
    return np.where(amount < bits, a << np.minimum(amount, bits - 1).astype(a.dtype), a.dtype.type(0))


def shift_right(a: Array, amount: Array) -> Array:
    """Right shift; amounts beyond the width give 0, or copies of the sign bit."""
    bits = a.dtype.itemsize * 8
    shifted = a >> np.minimum(amount, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(amount < bits, shifted, a.dtype.type(0))


def saturated(formula: Formula) -> Formula:
    """Wrap an int32 formula to compute in int64 and saturate."""
    limits = np.iinfo(np.int32)
    wide = lambda *args: formula(*(a.astype(np.int64) for a in args))  # noqa: E731
    return lambda *args: np.clip(wide(*args), limits.min, limits.max).astype(np.int32)


BINARY: dict[str, Formula] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "div": truncated_division,
    "rem": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
UNARY: dict[str, Formula] = {
    "abs": np.abs,
    "neg": lambda a: -a,
    "not": lambda a: ~a,
    "cnot": lambda a: (a == 0).astype(a.dtype),
}


def not_negative(formula: Formula) -> Formula:
    """Wrap a formula to replace negative results by 0."""
    return lambda *args: np.maximum(formula(*args), 0)


def integer_step(instruction: Instruction, decoder: Decoder) -> Step:
    """Decode instructions whose operands and result have the same integer type."""
    name, kind = instruction.opcode[0], instruction.type
    formula = UNARY.get(name) or BINARY.get(name)
    if formula is None:
        raise decoder.refuse(instruction)
    decoder.allow(instruction, "sat", *(("relu",) if name in ("min", "max") and kind[0] == "s" else ()))
    if instruction.has("relu"):
        formula = not_negative(formula)
    if kind.endswith("x2"):
        return _packed(instruction, decoder, formula)
    if instruction.has("sat"):
        formula = saturated(formula)
    sources = [decoder.source(operand, kind) for operand in instruction.operands[1:]]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


def _packed(instruction: Instruction, decoder: Decoder, formula: Formula) -> Step:
    from_type = np.dtype("i2" if instruction.type[0] == "s" else "u2")
    halves = lambda a: np.ascontiguousarray(a).view(from_type).reshape(-1, 2)  # noqa: E731
    whole = lambda *args: np.ascontiguousarray(formula(*(halves(a) for a in args))).view("u4").reshape(-1)  # noqa: E731
    sources = [decoder.source(operand, "u32") for operand in instruction.operands[1:]]
    return compute(whole, sources, decoder.destination(instruction.operands[0]))


@builds("and", "or", "xor", "not", "cnot", "rem")
def logic(instruction: Instruction, decoder: Decoder) -> Step:
    return integer_step(instruction, decoder)


def product_step(instruction: Instruction, decoder: Decoder) -> Step:
    """Integer ``mul`` and ``mad``: .lo, .hi, .wide."""
    kind = instruction.type
    dtype = numpy_type(kind)
    wide = np.dtype(f"{dtype.kind}{dtype.itemsize * 2}") if instruction.has("wide") else dtype
    product: Formula = lambda a, b: a * b  # noqa: E731
    if instruction.has("hi"):
        product = high_product
    elif instruction.has("wide"):
        product = lambda a, b: a.astype(wide) * b.astype(wide)  # noqa: E731
    decoder.allow(instruction, "lo", "hi", "wide")
    sources = [decoder.source(operand, kind) for operand in instruction.operands[1:3]]
    destination = decoder.destination(instruction.operands[0])
    if instruction.opcode[0] == "mul":
        return compute(product, sources, destination)
    sources.append(decoder.source(instruction.operands[3], kind[0] + str(wide.itemsize * 8)))
    return compute(lambda a, b, c: product(a, b) + c, sources, destination)


@builds("mul24", "mad24")
def product_24(instruction: Instruction, decoder: Decoder) -> Step:
    kind = instruction.type
    shift = np.uint32(8) if kind[0] == "u" else np.int32(8)
    cut = lambda a: (a << shift) >> shift  # noqa: E731
    decoder.allow(instruction, "lo")
    sources = [decoder.source(operand, kind) for operand in instruction.operands[1:]]
    formula: Formula = lambda a, b, *c: cut(a) * cut(b) + (c[0] if c else 0)  # noqa: E731
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("shl", "shr")
def shift(instruction: Instruction, decoder: Decoder) -> Step:
    kind = instruction.type.replace("b", "u")
    sources = [decoder.source(instruction.operands[1], kind), decoder.source(instruction.operands[2], "u32")]
    formula = shift_left if instruction.opcode[0] == "shl" else shift_right
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("shf")
def funnel_shift(instruction: Instruction, decoder: Decoder) -> Step:
    """``shf.{l,r}.{clamp,wrap}.b32 d, low, high, amount``."""
    left, clamp = instruction.has("l"), instruction.has("clamp")

    def formula(low: Array, high: Array, amount: Array) -> Array:
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        places = (np.minimum(amount, 32) if clamp else amount & 31).astype(np.uint64)
        moved = (both << places) >> np.uint64(32) if left else both >> places
        return moved.astype(np.uint32)

    sources = [decoder.source(operand, "u32") for operand in instruction.operands[1:]]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("popc", "clz", "brev", "bfind")
def count_bits(instruction: Instruction, decoder: Decoder) -> Step:
    bits = BITS[instruction.type]
    unsigned = instruction.opcode[0] != "bfind" or instruction.type[0] == "u"
    word = np.dtype(f"u{bits // 8}")

    def length(a: Array) -> Array:
        value, found = a.astype(np.uint64), np.zeros(a.shape, np.uint32)
        for step in (32, 16, 8, 4, 2, 1):
            large = value >= np.uint64(1 << step)
            found += np.where(large, step, 0).astype(np.uint32)
            value = np.where(large, value >> np.uint64(step), value)
        return found + (value != 0).astype(np.uint32)

    def reverse(a: Array) -> Array:
        out = np.zeros_like(a)
        for place in range(bits):
            out |= ((a >> a.dtype.type(place)) & a.dtype.type(1)) << a.dtype.type(bits - 1 - place)
        return out

    def find(a: Array) -> Array:
        signed = a if unsigned else np.where(a.view(f"i{word.itemsize}") < 0, ~a, a)
        top = length(signed) - np.uint32(1)
        return np.where(
            signed == 0, np.uint32(0xFFFFFFFF), np.uint32(bits - 1) - top if instruction.has("shiftamt") else top
        )

    formulas: dict[str, Formula] = {
        "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
        "clz": lambda a: np.uint32(bits) - length(a),
        "brev": reverse,
        "bfind": find,
    }
    source = decoder.source(instruction.operands[1], f"u{bits}")
    return compute(formulas[instruction.opcode[0]], [source], decoder.destination(instruction.operands[0]))


@builds("bfe")
def extract_field(instruction: Instruction, decoder: Decoder) -> Step:
    """``bfe d, a, position, length``; signed types extend the field's sign."""
    kind = instruction.type
    bits, signed = BITS[kind], kind[0] == "s"

    def formula(a: Array, position: Array, length: Array) -> Array:
        position, length = position & 0xFF, length & 0xFF
        field = (
            np.where(position < bits, a.astype(np.int64 if signed else np.uint64), 0)
            if not signed
            else a.astype(np.int64)
        )
        start, count = np.minimum(position, bits - 1).astype(np.int64), np.minimum(length, bits)
        count = np.minimum(count, np.maximum(bits - position.astype(np.int64), 1 if signed else 0))
        moved = field >> start.astype(field.dtype)
        left = (64 - np.maximum(count, 1)).astype(field.dtype)
        return np.where(length == 0, 0, np.where(count == 0, 0, (moved << left) >> left)).astype(a.dtype)

    sources = [decoder.source(instruction.operands[1], kind)]
    sources += [decoder.source(operand, "u32") for operand in instruction.operands[2:]]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("bfi")
def insert_field(instruction: Instruction, decoder: Decoder) -> Step:
    """``bfi f, a, b, position, length``: the low bits of a replace a field of b."""
    kind = instruction.type.replace("b", "u")
    bits = BITS[kind]

    def formula(a: Array, b: Array, position: Array, length: Array) -> Array:
        position, length = (position & 0xFF).astype(np.uint64), (length & 0xFF).astype(np.uint64)
        ones = np.where(length >= bits, np.uint64(2**64 - 1), shift_left(np.ones_like(length), length) - np.uint64(1))
        mask = shift_left(ones, position)
        return ((shift_left(a.astype(np.uint64), position) & mask) | (b.astype(np.uint64) & ~mask)).astype(a.dtype)

    sources = [decoder.source(operand, kind) for operand in instruction.operands[1:3]]
    sources += [decoder.source(operand, "u32") for operand in instruction.operands[3:]]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("prmt")
def permute_bytes(instruction: Instruction, decoder: Decoder) -> Step:
    """``prmt.b32 d, a, b, selector``: each nibble selects one of 8 bytes, or replicates its sign bit."""
    if len(instruction.opcode) > 2:
        raise decoder.refuse(instruction)

    def formula(a: Array, b: Array, selector: Array) -> Array:
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        out = np.zeros(1, np.uint32)
        for place in range(4):
            nibble = (selector >> np.uint32(4 * place)) & np.uint32(15)
            byte = (both >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            chosen = np.where(nibble & np.uint32(8), sign, byte).astype(np.uint32)
            out = out | (chosen << np.uint32(8 * place))
        return out

    sources = [decoder.source(operand, "u32") for operand in instruction.operands[1:]]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("lop3")
def logic_of_three(instruction: Instruction, decoder: Decoder) -> Step:
    """``lop3.b32 d, a, b, c, table``: each result bit is bit ``4a + 2b + c`` of the table."""
    *operands, table = instruction.operands[1:]
    bits = getattr(table, "value", None)
    if bits is None or len(instruction.opcode) > 2:
        raise decoder.refuse(instruction)

    def formula(a: Array, b: Array, c: Array) -> Array:
        out = np.zeros(1, np.uint32)
        for row in (row for row in range(8) if bits >> row & 1):
            out = out | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
        return out

    sources = [decoder.source(operand, "u32") for operand in operands]
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


def dot_product(a_kind: str, b_kind: str) -> Callable[[Array, Array], Array]:
    """Return the dot product of the four bytes in each pair of 32-bit words, [lanes]."""
    a_type, b_type = np.dtype(f"{'i' if a_kind == 's32' else 'u'}1"), np.dtype(f"{'i' if b_kind == 's32' else 'u'}1")
    rows = lambda x, t: np.ascontiguousarray(x).view(t).reshape(-1, 4).astype(np.int32)  # noqa: E731
    return lambda a, b: (rows(a, a_type) * rows(b, b_type)).sum(axis=1, dtype=np.int32)


@builds("dp4a")
def dot_of_four(instruction: Instruction, decoder: Decoder) -> Step:
    dot = dot_product(instruction.opcode[1], instruction.opcode[2])
    sources = [decoder.source(operand, "u32") for operand in instruction.operands[1:3]]
    sources.append(decoder.source(instruction.operands[3], "s32"))
    return compute(lambda a, b, c: dot(a, b) + c, sources, decoder.destination(instruction.operands[0]))
