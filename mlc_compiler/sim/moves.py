"""Moves, selections and comparisons (PTX ISA 9.7.6, 9.7.9.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import Decoder, Step, builds
from mlc_compiler.sim.elementwise import PACKED, Formula, chosen, compute, values_of
from mlc_compiler.sim.floats import flush
from mlc_compiler.sim.program import BITS, Instruction, Pair, Sink, Vector
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]

ORDERED: dict[str, Formula] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
COMPARISONS: dict[str, Formula] = {
    **ORDERED,
    **{"lo": ORDERED["lt"], "ls": ORDERED["le"], "hi": ORDERED["gt"], "hs": ORDERED["ge"]},
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
UNORDERED = {f"{name}u": name for name in ORDERED}
COMBINE: dict[str, Formula] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def comparison(name: str, floating: bool) -> Formula:
    """The comparison ``name``; ``ne`` of floats is false for NaN, the unordered ``u`` forms are true for NaN."""
    if name in UNORDERED:
        plain = COMPARISONS[UNORDERED[name]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    if name == "ne" and floating:
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return COMPARISONS[name]


@builds("setp", "set")
def compare(instruction: Instruction, decoder: Decoder) -> Step:
    """``setp.cmp[.bool].type p[|q], a, b[, c]``; ``set`` writes all ones or 1.0 instead of a predicate."""
    kind = instruction.type
    test = comparison(instruction.opcode[1], PACKED.get(kind, kind).lstrip("b")[0] == "f")
    target, a, b, *rest = instruction.operands
    sources = [values_of(operand, kind, decoder) for operand in (a, b)]
    if instruction.has("ftz"):
        inner = test
        test = lambda a, b: inner(flush(a), flush(b))  # noqa: E731
    combine = COMBINE[instruction.opcode[2]] if rest else None
    third = decoder.predicate(rest[0]) if rest else None
    targets = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    stores = [decoder.destination(operand) for operand in targets]
    if instruction.opcode[0] == "set":
        return _set(instruction, decoder, test, sources)

    def step(m: Threads) -> int | None:
        result = test(sources[0](m), sources[1](m))
        pair = (result[:, 0], result[:, 1]) if kind in PACKED else (result, ~result)
        for store, value in zip(stores, pair):
            if combine is not None and third is not None:
                value = combine(value, third(m))
            store(m, value)
        return None

    if kind in PACKED or isinstance(target, Pair):
        return step
    if combine is not None and third is not None:
        both = combine
        return compute(lambda a, b, c: both(test(a, b), c), [*sources, third], stores[0])
    return compute(test, sources, stores[0])


def _set(instruction: Instruction, decoder: Decoder, test: Formula, sources: list[Any]) -> Step:
    types = [part for part in instruction.opcode if part in BITS]
    if len(instruction.operands) > 3 or any(t in PACKED for t in types):
        raise decoder.refuse(instruction)
    yes = np.float32(1) if types[0] == "f32" else np.uint32(0xFFFFFFFF)
    formula: Formula = lambda a, b: np.where(test(a, b), yes, yes.dtype.type(0))  # noqa: E731
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


@builds("selp")
def select(instruction: Instruction, decoder: Decoder) -> Step:
    target, a, b, condition = instruction.operands
    kind = f"u{BITS[instruction.type]}" if instruction.type != "pred" else "pred"
    kind = instruction.type if instruction.type in ("f32", "f64") else kind
    sources = [decoder.source(a, kind), decoder.source(b, kind), decoder.predicate(condition)]
    return compute(chosen, sources, decoder.destination(target))


@builds("slct")
def select_by_sign(instruction: Instruction, decoder: Decoder) -> Step:
    """``slct d, a, b, c``: a where c >= 0, else b."""
    target, a, b, c = instruction.operands
    kind = f"u{BITS[instruction.opcode[-2]]}"
    sources = [decoder.source(a, kind), decoder.source(b, kind), decoder.source(c, instruction.type)]
    return compute(lambda a, b, c: chosen(a, b, c >= 0), sources, decoder.destination(target))


@builds("mov")
def move(instruction: Instruction, decoder: Decoder) -> Step:
    """``mov``; also packs and unpacks vectors, whose first item is the lowest part."""
    target, value = instruction.operands
    kind = instruction.type
    if kind == "b128":
        raise decoder.refuse(instruction)
    if isinstance(value, Vector):
        return _pack(instruction, decoder, value, BITS[kind])
    if isinstance(target, Vector):
        return _unpack(instruction, decoder, target, BITS[kind])
    source = decoder.source(value, kind)
    return compute(lambda a: a, [source], decoder.destination(target))


def _pack(instruction: Instruction, decoder: Decoder, value: Vector, bits: int) -> Step:
    count, dtype = len(value.items), np.dtype(f"u{bits // 8}")
    sources = [decoder.source(item, f"u{bits // count}") for item in value.items]

    def formula(*parts: Array) -> Array:
        stacked = np.empty((max(len(part) for part in parts), count), f"u{bits // count // 8}")
        for column, part in enumerate(parts):
            stacked[:, column] = part
        return stacked.view(dtype).reshape(-1)

    return compute(formula, sources, decoder.destination(instruction.operands[0]))


def _unpack(instruction: Instruction, decoder: Decoder, target: Vector, bits: int) -> Step:
    count = len(target.items)
    part = np.dtype(f"u{bits // count // 8}")
    source = decoder.source(instruction.operands[1], f"u{bits}")
    stores = [decoder.destination(item) for item in target.items]

    def step(m: Threads) -> int | None:
        parts = np.ascontiguousarray(source(m)).view(part).reshape(-1, count)
        for column, store in enumerate(stores):
            store(m, np.ascontiguousarray(parts[:, column]))
        return None

    return step
