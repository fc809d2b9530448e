"""``cvt`` (PTX ISA 9.7.9.21)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.bfloat16 import bf16_to_f32, f32_to_bf16, f64_to_f32_odd
from mlc_compiler.sim.decoder import Decoder, Step, builds, numpy_type
from mlc_compiler.sim.elementwise import Formula, compute, values_of, writes
from mlc_compiler.sim.floats import directed, flush
from mlc_compiler.sim.program import BITS, Instruction

Array = npt.NDArray[Any]

FLOATS = ("f16", "bf16", "f32", "f64")
TO_INTEGER: dict[str, Formula] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
FP8 = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
FP8_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
TYPES = {*BITS, *FP8}


@builds("cvt")
def convert(instruction: Instruction, decoder: Decoder) -> Step:
    types = [part for part in instruction.opcode[1:] if part in TYPES]
    decoder.allow(instruction, *FP8, *TO_INTEGER, "rn", "rna", "rz", "rm", "rp", "ftz", "sat", "satfinite", "relu")
    if len(types) != 2:
        raise decoder.refuse(instruction)
    to, source = types
    if to in FP8:
        return _to_fp8(instruction, decoder, to, source)
    if source in FP8:
        return _from_fp8(instruction, decoder, to, source)
    if to in ("f16x2", "bf16x2"):
        return _pair(instruction, decoder, to)
    if to == "tf32":
        return _to_tf32(instruction, decoder)
    formula = _scalar(instruction, decoder, to, source)
    sources = [values_of(instruction.operands[1], source, decoder)]
    if to in FLOATS:
        return compute(formula, sources, writes(instruction.operands[0], to, decoder))
    return compute(formula, sources, decoder.destination(instruction.operands[0]))


def _scalar(instruction: Instruction, decoder: Decoder, to: str, source: str) -> Formula:
    rounding = next((TO_INTEGER[mode] for mode in TO_INTEGER if instruction.has(mode)), None)
    if to in FLOATS and source in FLOATS:
        return _float_to_float(instruction, decoder, to, source, rounding)
    if source in FLOATS:
        return _float_to_integer(to, rounding or np.trunc)
    if to in FLOATS:
        return _integer_to_float(instruction, decoder, to)
    return _integer_to_integer(instruction, to)


def _float_to_float(
    instruction: Instruction, decoder: Decoder, to: str, source: str, rounding: Formula | None
) -> Formula:
    mode = next((mode for mode in ("rz", "rm", "rp") if instruction.has(mode)), None)
    if instruction.has("satfinite"):
        raise decoder.refuse(instruction)
    steps: list[Formula] = []
    if instruction.has("ftz") and source == "f32":
        steps.append(flush)
    if rounding is not None:
        steps.append(rounding)
    if instruction.has("relu"):
        steps.append(lambda a: np.maximum(a, a.dtype.type(0)))
    if instruction.has("sat"):
        steps.append(lambda a: np.clip(np.nan_to_num(a, nan=0.0), 0, 1))
    if mode and BITS[to] < BITS[source]:
        steps.append(_truncation(instruction, decoder, to, source, mode))
    elif to == "bf16" and source == "f64":
        steps.append(f64_to_f32_odd)

    def formula(a: Array) -> Array:
        for step in steps:
            a = step(a)
        return a

    return formula


def _truncation(instruction: Instruction, decoder: Decoder, to: str, source: str, mode: str) -> Formula:
    """Round with mode ``rz``, ``rm`` or ``rp`` to a value that fits ``to``, which a later rounding does not change."""
    if (to, source) == ("f32", "f64"):
        return lambda a: directed(a, mode)
    if (to, source, mode) == ("bf16", "f32", "rz"):
        return lambda a: bf16_to_f32(f32_to_bf16(a, towards_zero=True))
    if (to, source, mode) == ("f16", "f32", "rz"):
        return _half_towards_zero
    raise decoder.refuse(instruction)


def _half_towards_zero(a: Array) -> Array:
    near = a.astype(np.float16)
    return np.where(np.abs(near.astype(np.float32)) > np.abs(a), np.nextafter(near, np.float16(0)), near)


def _float_to_integer(to: str, rounding: Formula) -> Formula:
    """Convert to an integer, clamped to the range of the result; NaN gives 0."""
    dtype = numpy_type(to)
    limits = np.iinfo(dtype)

    def formula(a: Array) -> Array:
        whole = np.nan_to_num(rounding(a.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        above, below = whole >= float(limits.max), whole <= float(limits.min)
        inner = np.where(above | below, 0.0, whole).astype(dtype)
        return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inner))

    return formula


def _integer_to_float(instruction: Instruction, decoder: Decoder, to: str) -> Formula:
    mode = next((mode for mode in ("rz", "rm", "rp") if instruction.has(mode)), None)
    if mode and (to != "f32" or BITS[instruction.type] > 32):
        raise decoder.refuse(instruction)
    if mode:
        return lambda a: directed(a.astype(np.float64), mode)
    if to == "f32":
        return lambda a: a.astype(np.float32)
    return lambda a: a.astype(np.float64)


def _integer_to_integer(instruction: Instruction, to: str) -> Formula:
    dtype = numpy_type(to)
    if not instruction.has("sat"):
        return lambda a: a.astype(dtype)
    limits = np.iinfo(dtype)
    return lambda a: np.clip(a, max(limits.min, np.iinfo(a.dtype).min), min(limits.max, np.iinfo(a.dtype).max)).astype(
        dtype
    )


def _pair(instruction: Instruction, decoder: Decoder, to: str) -> Step:
    """``cvt.rn.f16x2.f32 d, a, b``: a becomes the upper half."""
    scalar = _float_to_float(instruction, decoder, to.removesuffix("x2"), "f32", None)
    upper, lower = (values_of(operand, "f32", decoder) for operand in instruction.operands[1:])
    formula: Formula = lambda a, b: np.stack(np.broadcast_arrays(scalar(b), scalar(a)), axis=1)  # noqa: E731
    return compute(formula, [upper, lower], writes(instruction.operands[0], to, decoder))


def _to_fp8(instruction: Instruction, decoder: Decoder, to: str, source: str) -> Step:
    """Convert a pair to FP8; of two f32 operands the first becomes the upper byte."""
    largest, dtype = FP8_LARGEST[to], FP8[to]

    def narrow(pairs: Array) -> Array:
        if instruction.has("relu"):
            pairs = np.maximum(pairs, 0)
        clamped = np.where(np.isnan(pairs), pairs, np.clip(pairs, -largest, largest))
        return np.ascontiguousarray(clamped.astype(dtype)).view(np.uint16).reshape(-1)

    destination = decoder.destination(instruction.operands[0])
    if source == "f32":
        upper, lower = (values_of(operand, "f32", decoder) for operand in instruction.operands[1:])
        return compute(lambda a, b: narrow(np.stack(np.broadcast_arrays(b, a), axis=1)), [upper, lower], destination)
    return compute(narrow, [values_of(instruction.operands[1], source, decoder)], destination)


def _from_fp8(instruction: Instruction, decoder: Decoder, to: str, source: str) -> Step:
    raw = decoder.source(instruction.operands[1], "u16")
    dtype = FP8[source]
    formula: Formula = lambda a: np.ascontiguousarray(a).view(dtype).reshape(-1, 2).astype(np.float32)  # noqa: E731
    return compute(formula, [raw], writes(instruction.operands[0], to, decoder))


def _to_tf32(instruction: Instruction, decoder: Decoder) -> Step:
    """Round to TF32 (10 mantissa bits), to nearest with ties away from zero (.rna) or to even (.rn)."""
    away = instruction.has("rna")
    if any(instruction.has(modifier) for modifier in ("relu", "rz", "satfinite")):
        raise decoder.refuse(instruction)

    def formula(a: Array) -> Array:
        bits = a.view(np.uint32)
        half = np.uint32(0x1000) if away else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        return np.where(np.isfinite(a), (bits + half) & np.uint32(0xFFFFE000), bits)

    return compute(
        formula, [values_of(instruction.operands[1], "f32", decoder)], decoder.destination(instruction.operands[0])
    )
