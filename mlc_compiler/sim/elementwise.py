"""Helpers for instructions that compute lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.bfloat16 import bf16_to_f32, f32_to_bf16, f64_to_bf16
from mlc_compiler.sim.decoder import Decoder, Step, Store, Value, numpy_type
from mlc_compiler.sim.program import BITS, Operand
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
Formula = Callable[..., Array]

PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "s16x2": "s16", "u16x2": "u16"}


def chosen(a: Array, b: Array, condition: Array) -> Array:
    """``a`` where the condition holds, else ``b``."""
    return np.where(condition, a, b)


def compute(formula: Formula, sources: list[Value], destination: Store) -> Step:
    """A step that computes ``destination = formula(sources)``."""
    match sources:
        case [a]:
            return lambda m: destination(m, formula(a(m)))
        case [a, b]:
            return lambda m: destination(m, formula(a(m), b(m)))
        case [a, b, c]:
            return lambda m: destination(m, formula(a(m), b(m), c(m)))
    return lambda m: destination(m, formula(*(source(m) for source in sources)))


def values_of(operand: Operand, kind: str, decoder: Decoder) -> Value:
    """The values of an operand as numbers: bf16 as float32, packed types as [lanes, 2]."""
    element = PACKED.get(kind)
    if element is None:
        raw = decoder.source(operand, kind)
        return (lambda m: bf16_to_f32(raw(m))) if kind == "bf16" else raw
    whole = decoder.source(operand, f"u{BITS[kind]}")
    dtype = numpy_type(element)

    def halves(m: Threads) -> Array:
        pair = np.ascontiguousarray(whole(m)).view(dtype).reshape(-1, 2)
        return bf16_to_f32(pair) if element == "bf16" else pair

    return halves


def rounded(values: Array, kind: str) -> Array:
    """Round numbers to nearest even, to the bits that a register of ``kind`` holds."""
    element = PACKED.get(kind, kind)
    if element == "bf16":
        result = f64_to_bf16(values) if values.dtype == np.float64 else f32_to_bf16(values)
    else:
        result = values.astype(numpy_type(element), copy=False)
    if kind in PACKED:
        return np.ascontiguousarray(result).view(f"u{BITS[kind] // 8}").reshape(-1)
    return result


def writes(operand: Operand, kind: str, decoder: Decoder) -> Store:
    """Return a function that rounds numbers to ``kind`` and stores them in the destination."""
    store = decoder.destination(operand)
    return lambda m, values: store(m, rounded(values, kind))
