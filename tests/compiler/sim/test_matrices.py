"""Matrix instructions on fragments against numpy matmuls; layouts follow the figures of the PTX ISA, 9.7.14."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.sim.kernels import launch, ptx

RNG = np.random.default_rng(11)


def lane_words(registers: int, name: str, pointer: str) -> str:
    """Emit loads of ``registers`` words per lane from ``[lane, register]``."""
    code = f"mul.wide.u32 %rd9, %t, {4 * registers}; add.s64 %rd9, {pointer}, %rd9;"
    return code + "".join(f"ld.global.b32 {name}{i}, [%rd9+{4 * i}];" for i in range(registers))


def mma(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One instruction on fragments ``[32, registers]`` of words."""
    d = np.zeros_like(c)
    counts = [x.shape[1] for x in (d, a, b, c)]
    vectors = ["{" + ", ".join(f"{p}{i}" for i in range(n)) + "}" for p, n in zip(("%w", "%x", "%y", "%z"), counts)]
    code = ".reg .b32 %w<8>, %x<8>, %y<8>, %z<8>;"
    code += (
        lane_words(counts[1], "%x", "%rd0") + lane_words(counts[2], "%y", "%rd1") + lane_words(counts[3], "%z", "%rd2")
    )
    code += f"mma.sync.aligned.{name} {', '.join(vectors)};"
    code += f"mul.wide.u32 %rd9, %t, {4 * counts[0]}; add.s64 %rd9, %rd3, %rd9;"
    code += "".join(f"st.global.b32 [%rd9+{4 * i}], %w{i};" for i in range(counts[0]))
    launch(ptx(code, 4), a, b, c, d)
    return d


def fragment(matrix: np.ndarray, place) -> np.ndarray:
    """The words of each lane; ``place(group, thread in group, element)`` is the element's row and column."""
    per_lane = matrix.size // 32
    values = [[matrix[place(lane >> 2, lane & 3, i)] for i in range(per_lane)] for lane in range(32)]
    return np.ascontiguousarray(np.array(values, matrix.dtype)).view("u4")


def a_16(group, thread, i):
    """m16n8k16, 16-bit A: row = group for i in 0,1,4,5, else group + 8; column = 2 thread + (i & 1), + 8 for i >= 4."""
    return (group if i in (0, 1, 4, 5) else group + 8), thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def a_8(group, thread, i):
    """m16n8k8, 16-bit A."""
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def b_16(group, thread, i):
    """16-bit B: row = 2 thread + (i & 1), + 8 for i >= 2; column = group."""
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


def a_32(group, thread, i):
    """m16n8k32, 8-bit A: row = group for 0 <= i < 4 and 8 <= i < 12; column = 4 thread + (i & 3), + 16 for i >= 8."""
    return (group if i < 4 or 8 <= i < 12 else group + 8), thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_32(group, thread, i):
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


def a_tf32(group, thread, i):
    """m16n8k8, tf32 A: row = group for i in 0, 2; column = thread for i < 2, else thread + 4."""
    return (group if i in (0, 2) else group + 8), thread + (4 if i >= 2 else 0)


def b_tf32(group, thread, i):
    return thread + (4 if i else 0), group


def accumulator(group, thread, i):
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def unpacked(words: np.ndarray, dtype) -> np.ndarray:
    matrix = np.zeros((16, 8), dtype)
    for lane, values in enumerate(words.view(dtype)):
        for i, value in enumerate(values):
            matrix[accumulator(lane >> 2, lane & 3, i)] = value
    return matrix


@pytest.mark.parametrize(
    "name, depth, dtype, a_place, b_place, sums",
    [
        ("m16n8k16.row.col.f32.f16.f16.f32", 16, np.float16, a_16, b_16, np.float32),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, ml_dtypes.bfloat16, a_16, b_16, np.float32),
        ("m16n8k16.row.col.f16.f16.f16.f16", 16, np.float16, a_16, b_16, np.float16),
        ("m16n8k8.row.col.f32.f16.f16.f32", 8, np.float16, a_8, b_16, np.float32),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, np.float32, a_tf32, b_tf32, np.float32),
        ("m16n8k32.row.col.s32.s8.s8.s32", 32, np.int8, a_32, b_32, np.int32),
        ("m16n8k32.row.col.satfinite.s32.u8.s8.s32", 32, np.int8, a_32, b_32, np.int32),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, ml_dtypes.float8_e4m3fn, a_32, b_32, np.float32),
        ("m16n8k32.row.col.f32.e5m2.e5m2.f32", 32, ml_dtypes.float8_e5m2, a_32, b_32, np.float32),
    ],
)
def test_mma(name, depth, dtype, a_place, b_place, sums):
    """Small integers: exact in every type, so that the products have to be equal."""
    a = RNG.integers(0 if "u8" in name else -4, 5, (16, depth)).astype(dtype)
    b = RNG.integers(-4, 5, (depth, 8)).astype(dtype)
    c = RNG.integers(-50, 50, (16, 8)).astype(sums)
    words = mma(name, fragment(a, a_place), fragment(b, b_place), fragment(c, accumulator))
    expected = a.astype("f8") @ b.astype("f8") + c.astype("f8")
    np.testing.assert_array_equal(unpacked(words, sums).astype("f8"), expected)


TILES = ".shared .align 128 .b8 tiles[512]; mov.b32 %r0, tiles; shl.b32 %r1, %t, 4; add.u32 %r1, %r0, %r1;"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, transposed):
    """Lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix, or of its transpose."""
    matrices = RNG.integers(0, 2**16, (4, 8, 8)).astype("u2")
    out = np.zeros((32, count, 2), "u2")
    code = TILES + "mul.wide.u32 %rd9, %t, 16; add.s64 %rd9, %rd0, %rd9; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd9];"
    code += "st.shared.v4.b32 [%r1], {%r4, %r5, %r6, %r7}; bar.sync 0;"
    vector = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    code += f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16 {vector}, [%r1];"
    code += f"mul.wide.u32 %rd9, %t, {4 * count}; add.s64 %rd9, %rd1, %rd9;"
    code += "".join(f"st.global.b32 [%rd9+{4 * i}], %r{10 + i};" for i in range(count))
    launch(ptx(code, 2), matrices, out)
    wanted = matrices.swapaxes(1, 2) if transposed else matrices
    expected = wanted[:count].reshape(count, 32, 2).swapaxes(0, 1)
    np.testing.assert_array_equal(out, expected)


def test_stmatrix_is_the_opposite_of_ldmatrix():
    words, out = RNG.integers(0, 2**32, 128).astype("u4"), np.zeros(128, "u4")
    code = TILES + "mul.wide.u32 %rd9, %t, 16; add.s64 %rd8, %rd0, %rd9; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd8];"
    code += "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r1], {%r4, %r5, %r6, %r7}; bar.sync 0;"
    code += "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14, %r15, %r16, %r17}, [%r1];"
    code += "add.s64 %rd8, %rd1, %rd9; st.global.v4.b32 [%rd8], {%r14, %r15, %r16, %r17};"
    launch(ptx(code, 2), words, out)
    np.testing.assert_array_equal(out, words)


def test_bank_conflicts_of_ldmatrix():
    """Rows 128 bytes apart are all in the same banks: 8 wavefronts for each matrix instead of one."""
    fill = ".shared .align 128 .b8 rows[1024]; mov.b32 %r0, rows; shl.b32 %r1, %t, 2; add.u32 %r1, %r0, %r1;"
    fill += "".join(f"st.shared.b32 [%r1+{128 * i}], 0;" for i in range(8)) + "bar.sync 0;"
    load = "and.b32 %r2, %t, 7; mul.lo.u32 %r2, %r2, {}; add.u32 %r2, %r0, %r2;"
    load += "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r3}}, [%r2];"
    assert launch(ptx(fill + load.format(16), 0)).bank_conflicts == 0
    assert launch(ptx(fill + load.format(128), 0)).bank_conflicts == 7
