"""Warp-level matrix instructions: ``ldmatrix``, ``stmatrix``, ``mma.sync``, ``movmatrix`` (PTX ISA 9.7.14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.bfloat16 import bf16_to_f32
from mlc_compiler.sim.decoder import AWAY, Decoder, Step, Value, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.loads import addresses, items, scatter_to
from mlc_compiler.sim.program import BITS, Instruction, Operand
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
LANE = np.arange(32)
GROUP, IN_GROUP = LANE >> 2, LANE & 3  # groupID and threadID_in_group of the PTX ISA


@dataclass(frozen=True)
class Fragment:
    """The distribution of a matrix over lanes: ``rows`` and ``columns`` [32, n] of each lane's elements."""

    rows: Array
    columns: Array
    shape: tuple[int, int]

    @cached_property
    def order(self) -> Array:
        """The row-major positions of each lane's elements in the matrix."""
        return (self.rows * self.shape[1] + self.columns).reshape(-1)

    @cached_property
    def inverse(self) -> Array:
        return np.argsort(self.order)

    def assemble(self, values: Array) -> Array:
        """Gather matrices [warps, rows, columns] from fragments [warps, 32, n]."""
        flat = values.reshape(len(values), -1)
        return flat.take(self.inverse, axis=1).reshape(len(values), *self.shape)

    def split(self, matrix: Array) -> Array:
        """Distribute matrices [warps, rows, columns] to fragments [warps, 32, n]."""
        flat = matrix.reshape(len(matrix), -1)
        return flat.take(self.order, axis=1).reshape(len(matrix), *self.rows.shape)


def fragment_a(depth: int, per_word: int) -> Fragment:
    """Fragment of the 16 x depth operand A. per_word: elements per 32-bit register; words go down 8 rows first."""
    words = 16 * depth // 32 // per_word
    i = np.arange(words * per_word)
    word, part = i // per_word, i % per_word
    rows = GROUP[:, None] + 8 * (word & 1)
    columns = IN_GROUP[:, None] * per_word + part + 4 * per_word * (word >> 1)
    return Fragment(rows, columns, (16, depth))


def fragment_b(depth: int, per_word: int) -> Fragment:
    """Fragment of the depth x 8 operand B."""
    words = max(depth * 8 // 32 // per_word, 1)
    i = np.arange(words * per_word)
    word, part = i // per_word, i % per_word
    rows = IN_GROUP[:, None] * per_word + part + 4 * per_word * word
    columns = np.broadcast_to(GROUP[:, None], rows.shape)
    return Fragment(rows, columns, (depth, 8))


def fragment_c(columns: int = 8) -> Fragment:
    """Fragment of the 16 x columns accumulator: pairs of neighbours, then 8 rows down, then 8 columns right."""
    i = np.arange(16 * columns // 32)
    rows = GROUP[:, None] + 8 * ((i >> 1) & 1)
    return Fragment(rows, IN_GROUP[:, None] * 2 + (i & 1) + 8 * (i >> 2), (16, columns))


def _tf32(values: Array) -> Array:
    """Truncate float32 to TF32: the hardware ignores the low 13 bits."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True)
class Element:
    """The register format of matrix operands. numbers: converts raw integers to exact numbers."""

    raw: str
    numbers: Callable[[Array], Array]


ELEMENTS = {
    "f16": Element("u2", lambda a: a.view(np.float16).astype(np.float32)),
    "bf16": Element("u2", bf16_to_f32),
    "tf32": Element("u4", _tf32),
    "s8": Element("u1", lambda a: a.view(np.int8).astype(np.float64)),
    "u8": Element("u1", lambda a: a.astype(np.float64)),
    "e4m3": Element("u1", lambda a: a.view(ml_dtypes.float8_e4m3fn).astype(np.float32)),
    "e5m2": Element("u1", lambda a: a.view(ml_dtypes.float8_e5m2).astype(np.float32)),
}
DEPTHS = {
    "f16": (8, 16),
    "bf16": (8, 16),
    "tf32": (4, 8),
    "s8": (16, 32),
    "u8": (16, 32),
    "e4m3": (16, 32),
    "e5m2": (16, 32),
}


def registers_of(m: Threads, sources: list[Value], raw: str) -> Array:
    """The elements [warps, 32, n] of type ``raw`` in 32-bit registers."""
    words = np.stack([m.by_warp(source(m)) for source in sources], axis=2)
    return np.ascontiguousarray(words).view(raw)


def whole_warps(m: Threads, what: str) -> bool:
    """Whether all lanes of each active warp execute the instruction; lanes that wait for others are parked."""
    if m.mask is None:
        return True
    if not m.gather(np.ones(m.size, bool)):
        return False
    active = m.active().reshape(-1, 32)
    if (active.any(axis=1) & ~active.all(axis=1)).any():
        missing = active.any(axis=1, keepdims=True) & ~active
        lane = int(np.flatnonzero(missing.reshape(-1))[0])
        raise Fault(f"{what} needs all 32 threads of a warp; lane {lane % 32} of warp {lane // 32} has exited", lane)
    return True


@builds("mma", control=True)
def multiply_accumulate(instruction: Instruction, decoder: Decoder) -> Step:
    """``mma.sync.aligned.m16n8kK.row.col.D.A.B.C d, a, b, c``."""
    shape = next((part for part in instruction.opcode if part.startswith("m16n8k")), None)
    types = [part for part in instruction.opcode[5:] if part in ELEMENTS or part in ("f32", "s32")]
    decoder.allow(instruction, "sync", "aligned", str(shape), "row", "col", "satfinite", *ELEMENTS)
    if shape is None or len(types) != 4 or not (instruction.has("row") and instruction.has("col")):
        raise decoder.refuse(instruction)
    d_kind, a_kind, b_kind, c_kind = types
    depth = int(shape.removeprefix("m16n8k"))
    if a_kind not in DEPTHS or depth not in DEPTHS[a_kind] or d_kind not in ("f32", "f16", "s32") or d_kind != c_kind:
        raise decoder.refuse(instruction)
    per_word = 4 // np.dtype(ELEMENTS[a_kind].raw).itemsize
    a_layout, b_layout, c_layout = fragment_a(depth, per_word), fragment_b(depth, per_word), fragment_c()
    a, b, c = (_words(operand, decoder) for operand in instruction.operands[1:])
    accumulator = {"f32": "f4", "s32": "i4", "f16": "f2"}[d_kind]
    destinations = _word_stores(instruction.operands[0], decoder)
    saturate = instruction.has("satfinite")

    def step(m: Threads) -> int | None:
        if not whole_warps(m, "mma.sync"):
            return AWAY
        left = a_layout.assemble(ELEMENTS[a_kind].numbers(registers_of(m, a, ELEMENTS[a_kind].raw)))
        right = b_layout.assemble(ELEMENTS[b_kind].numbers(registers_of(m, b, ELEMENTS[b_kind].raw)))
        sums = c_layout.assemble(registers_of(m, c, accumulator))
        result = c_layout.split(accumulated(left @ right, sums, saturate))
        words = np.ascontiguousarray(result).view(np.uint32)
        for column, destination in enumerate(destinations):
            destination(m, np.ascontiguousarray(words[:, :, column]).reshape(-1))
        return None

    return step


def accumulated(product: Array, sums: Array, saturate: bool) -> Array:
    """Add a product to the accumulators in their dtype; integers wrap around, or saturate."""
    if sums.dtype != np.int32:
        return (product + sums).astype(sums.dtype)
    total = product.astype(np.int64) + sums
    if saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total.astype(np.int32)


def _words(operand: Operand, decoder: Decoder) -> list[Value]:
    return [decoder.source(item, "u32") for item in items(operand)]


def _word_stores(operand: Operand, decoder: Decoder) -> list[Any]:
    return [decoder.destination(item) for item in items(operand)]


def _matrix_form(instruction: Instruction, decoder: Decoder) -> int:
    """The number of 8x8 matrices of 16-bit elements; other forms are refused."""
    if not (instruction.has("m8n8") and instruction.type == "b16") or BITS[instruction.type] != 16:
        raise decoder.refuse(instruction)
    return next(int(part[1:]) for part in instruction.opcode if part in ("x1", "x2", "x4"))


def _row_addresses(m: Threads, at: Any, count: int) -> tuple[Array, Array, Array]:
    """The addresses of ``8 * count`` rows per active warp, held by its first lanes.

    Returns addresses and lanes, [n] each, and the indices of the active warps.
    """
    active = np.flatnonzero(m.active().reshape(-1, 32)[:, 0])
    lanes = (active[:, None] * 32 + np.arange(8 * count)).reshape(-1)
    every = np.broadcast_to(at(m, m.everyone) if m.mask is None else _spread(m, at), m.size)
    return every[lanes], lanes, active


def _spread(m: Threads, at: Any) -> Array:
    full = np.zeros(m.size, np.int64)
    lanes = m.lanes()
    full[lanes] = at(m, lanes)
    return full


@builds("ldmatrix", control=True)
def load_matrices(instruction: Instruction, decoder: Decoder) -> Step:
    """``ldmatrix``: lane ``8 i + r`` holds the address of row r of matrix i; lane l gets 2 elements of row l / 4."""
    count = _matrix_form(instruction, decoder)
    decoder.accesses("shared", 16)
    at = addresses(instruction.operands[1], decoder)
    destinations = [scatter_to(item) for item in items(instruction.operands[0])]
    transposed = instruction.has("trans")
    space = "shared" if any(part.startswith("shared") for part in instruction.opcode) else "generic"

    def step(m: Threads) -> int | None:
        if not whole_warps(m, "ldmatrix"):
            return AWAY
        places, lanes, active = _row_addresses(m, at, count)
        rows = access.load(m, space, places, lanes, 16, np.dtype("u2"))
        matrices = rows.reshape(len(active), count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        words = np.ascontiguousarray(matrices).view("u4").reshape(len(active), count, 32)
        receivers = m.lanes()
        for number, destination in enumerate(destinations):
            destination(m, words[:, number].reshape(-1), receivers)
        return None

    return step


@builds("stmatrix", control=True)
def store_matrices(instruction: Instruction, decoder: Decoder) -> Step:
    """``stmatrix``, the inverse of ``ldmatrix``."""
    count = _matrix_form(instruction, decoder)
    decoder.accesses("shared", 16)
    at = addresses(instruction.operands[0], decoder)
    sources = _words(instruction.operands[1], decoder)
    transposed = instruction.has("trans")
    space = "shared" if any(part.startswith("shared") for part in instruction.opcode) else "generic"

    def step(m: Threads) -> int | None:
        if not whole_warps(m, "stmatrix"):
            return AWAY
        places, lanes, active = _row_addresses(m, at, count)
        words = np.stack([m.by_warp(source(m))[active] for source in sources], axis=1)
        matrices = np.ascontiguousarray(words).view("u2").reshape(len(active), count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        rows = np.ascontiguousarray(matrices).reshape(-1, 8)
        access.store(m, space, places, lanes, 16, rows)
        return None

    return step


@builds("movmatrix", control=True)
def transpose_matrix(instruction: Instruction, decoder: Decoder) -> Step:
    """``movmatrix.sync.aligned.m8n8.trans.b16``: transpose an 8x8 matrix in registers."""
    source = decoder.source(instruction.operands[1], "u32")
    destination = decoder.destination(instruction.operands[0])

    def step(m: Threads) -> int | None:
        if not whole_warps(m, "movmatrix"):
            return AWAY
        matrices = np.ascontiguousarray(m.by_warp(source(m))).view("u2").reshape(-1, 8, 8)
        destination(m, np.ascontiguousarray(matrices.swapaxes(1, 2)).view("u4").reshape(-1))
        return None

    return step
