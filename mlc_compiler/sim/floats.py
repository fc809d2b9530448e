"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5). Approximate instructions are as accurate as numpy's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.carries import carry_step
from mlc_compiler.sim.decoder import Decoder, Step, builds
from mlc_compiler.sim.elementwise import PACKED, Formula, compute, values_of, writes
from mlc_compiler.sim.integers import integer_step, product_step
from mlc_compiler.sim.program import BITS, Instruction

Array = npt.NDArray[Any]

SMALLEST = {np.dtype("f2"): 2.0**-14, np.dtype("f4"): 2.0**-126}  # smallest normals; bfloat16: float32's
MIDPOINT = np.uint64(0x10000000)  # the low 29 bits of a float64 half-way between two float32


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c. float32: rounded once; float64: within 1 ulp; narrower types: as float64, not yet rounded."""
    if a.dtype == np.float64:
        return _fma_64(a, b, c)
    wide = a.astype(np.float64) * b + c
    if a.dtype == np.float32:
        halfway = (wide.view(np.uint64) & np.uint64(0x1FFFFFFF)) == MIDPOINT
        if halfway.any():
            wide = _to_odd(a.astype(np.float64) * b, np.broadcast_to(c.astype(np.float64), wide.shape), wide)
        return wide.astype(np.float32)
    return wide


def _two_sum_error(a: Array, b: Array, total: Array) -> Array:
    """The rounding error of ``total = a + b`` (Knuth's TwoSum)."""
    b_part = total - a
    return (a - (total - b_part)) + (b - b_part)


def _to_odd(product: Array, c: Array, total: Array) -> Array:
    """Round the sum to odd in float64, so that the later rounding to float32 is the only one."""
    error = _two_sum_error(product, c, total)
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where((error != 0) & even & np.isfinite(total), bits + step, bits).view(np.float64)


def _fma_64(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    split = lambda x: (x * 134217729.0) - (x * 134217729.0 - x)  # noqa: E731
    a_high, b_high = split(a), split(b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    exact = total + (_two_sum_error(product, c, total) + error)
    return np.where(np.isfinite(exact), exact, total)


def directed(values: Array, mode: str) -> Array:
    """Round float64 to float32 towards zero ("rz"), down ("rm") or up ("rp")."""
    near = values.astype(np.float32)
    beyond = {
        "rz": np.abs(near.astype(np.float64)) > np.abs(values),
        "rm": near.astype(np.float64) > values,
        "rp": near.astype(np.float64) < values,
    }[mode]
    towards = {"rz": np.float32(0), "rm": np.float32(-np.inf), "rp": np.float32(np.inf)}[mode]
    return np.where(beyond, np.nextafter(near, towards), near)


def flush(values: Array) -> Array:
    """Flush subnormal float16 and float32 values to zeros of the same sign."""
    zero = np.copysign(values.dtype.type(0), values)
    return np.where(np.abs(values) < SMALLEST[values.dtype], zero, values)


def minimum(*values: Array) -> Array:
    """PTX ``min``: returns the other operand for NaN; -0 is less than +0."""
    result = values[0]
    for other in values[1:]:
        zeros = (result == 0) & (other == 0)
        result = np.where(zeros, np.where(np.signbit(result), result, other), np.fmin(result, other))
    return result


def maximum(*values: Array) -> Array:
    """PTX ``max``: returns the other operand for NaN; +0 is greater than -0."""
    result = values[0]
    for other in values[1:]:
        zeros = (result == 0) & (other == 0)
        result = np.where(zeros, np.where(np.signbit(result), other, result), np.fmax(result, other))
    return result


FORMULAS: dict[str, Formula] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": fused_multiply_add,
    "mad": fused_multiply_add,
    "div": lambda a, b: a / b,
    "min": minimum,
    "max": maximum,
    "abs": np.abs,
    "neg": lambda a: -a,
    "rcp": lambda a: a.dtype.type(1) / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype),
    "ex2": lambda a: np.exp2(a),
    "lg2": lambda a: np.log2(a),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "copysign": lambda sign, size: np.copysign(size, sign),
}
MODES = ("rz", "rm", "rp")


def formula_of(instruction: Instruction, decoder: Decoder) -> Formula:
    """The function of an opcode on numbers, with its rounding mode, flushing and clamping."""
    name, kind = instruction.opcode[0], instruction.type
    formula = FORMULAS[name]
    mode = next((mode for mode in MODES if instruction.has(mode)), None)
    decoder.allow(instruction, "rn", *MODES, "approx", "full", "ftz", "sat", "relu", "NaN")
    if (mode and kind != "f32") or sum(part in BITS for part in instruction.opcode) > 1:
        raise decoder.refuse(instruction)
    if name in ("min", "max") and instruction.has("NaN"):
        formula = (
            {"min": np.minimum, "max": np.maximum}[name]
            if len(instruction.operands) == 3
            else _refused(instruction, decoder)
        )
    if mode:
        exact = formula if formula is not fused_multiply_add else (lambda a, b, c: a * b + c)
        formula = lambda *args: directed(exact(*(a.astype(np.float64) for a in args)), mode)  # noqa: E731
    if instruction.has("ftz"):
        plain, numbers = formula, np.dtype("f2" if kind.startswith("f16") else "f4")
        formula = lambda *args: flush(plain(*(flush(a) for a in args)).astype(numbers, copy=False))  # noqa: E731
    if instruction.has("sat"):
        unclamped = formula
        formula = lambda *args: np.clip(np.nan_to_num(unclamped(*args), nan=0.0), 0, 1)  # noqa: E731
    if instruction.has("relu"):
        signed = formula
        formula = lambda *args: np.maximum(signed(*args), 0)  # noqa: E731
    return formula


def _refused(instruction: Instruction, decoder: Decoder) -> Formula:
    raise decoder.refuse(instruction)


@builds("add", "sub", "mul", "mad", "fma", "div", "min", "max", "abs", "neg")
def arithmetic(instruction: Instruction, decoder: Decoder) -> Step:
    """Arithmetic on integers or floating-point numbers, by the instruction's type."""
    if instruction.has("cc"):
        return carry_step(instruction, decoder)
    if PACKED.get(instruction.type, instruction.type).lstrip("b")[0] != "f":
        products = ("mul", "mad")
        return (product_step if instruction.opcode[0] in products else integer_step)(instruction, decoder)
    return floating(instruction, decoder)


@builds("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign")
def floating(instruction: Instruction, decoder: Decoder) -> Step:
    kind = instruction.type
    sources = [values_of(operand, kind, decoder) for operand in instruction.operands[1:]]
    return compute(formula_of(instruction, decoder), sources, writes(instruction.operands[0], kind, decoder))


@builds("testp")
def test_property(instruction: Instruction, decoder: Decoder) -> Step:
    """``testp.{finite,infinite,number,notanumber,normal,subnormal}``."""
    smallest = {32: 2.0**-126, 64: 2.0**-1022}[BITS[instruction.type]]
    tests: dict[str, Formula] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= smallest),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < smallest),
    }
    source = decoder.source(instruction.operands[1], instruction.type)
    return compute(tests[instruction.opcode[1]], [source], decoder.destination(instruction.operands[0]))
