"""``wgmma`` against numpy matmuls; operands are laid out by hand (PTX ISA 9.7.15.5)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.sim import SimulationError
from tests.compiler.sim.kernels import launch, ptx

RNG = np.random.default_rng(5)
SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}


def k_major(matrix: np.ndarray, swizzle: int) -> tuple[np.ndarray, int, int]:
    """Bytes, leading and stride offset of a matrix [rows, 32 bytes] whose rows lie in core matrices of 8 x 16 bytes."""
    rows = matrix.view("u1").reshape(len(matrix), 2, 16)
    pitch = swizzle or 16
    data = np.zeros(-(-len(matrix) * max(pitch, 32) // 512) * 512, "u1")
    stride, leading = 8 * pitch if swizzle else 256, 16 if swizzle else 128
    for row, halves in enumerate(rows):
        for half, chunk in enumerate(halves):
            if swizzle:
                linear = row * pitch + half * 16
                place = linear ^ ((linear // 128 % 8 & (swizzle // 16 - 1)) * 16)
            else:
                place = row // 8 * stride + half * leading + row % 8 * 16
            data[place : place + 16] = chunk
    return data, leading, stride


def mn_major(matrix: np.ndarray) -> tuple[np.ndarray, int, int]:
    """A matrix [rows, 16] of 16-bit elements whose rows are contiguous: swizzled blocks of 64 rows x 8 of K."""
    data = np.zeros(matrix.size, "u2")
    leading, stride = 2048, 1024
    for row in range(len(matrix)):
        for k in range(16):
            place = row // 64 * leading + k // 8 * stride + k % 8 * 128 + ((row % 64 // 8) ^ (k % 8)) * 16 + row % 8 * 2
            data[place // 2] = matrix.view("u2")[row, k]
    return data.view("u1"), leading, stride


def descriptor(name: str, base: str, leading: int, stride: int, swizzle: int) -> str:
    constant = (leading >> 4) << 16 | (stride >> 4) << 32 | SWIZZLE_CODE[swizzle] << 62
    return f"cvt.u64.u32 {name}, {base}; shr.u64 {name}, {name}, 4; or.b64 {name}, {name}, {constant};"


def multiply(kind: str, a, b, columns: int, swizzles: tuple[int, int], transpose: str, wait: str, without=""):
    """Copies both operands into shared memory and runs one instruction twice: 1 + 2 products."""
    (a_bytes, a_leading, a_stride), (b_bytes, b_leading, b_stride) = a, b
    out = np.zeros((128, columns // 2), "u4")
    sums = "{" + ", ".join(f"%d{i}" for i in range(columns // 2)) + "}"
    code = f"""
    .shared .align 1024 .b8 a[{a_bytes.size}]; .shared .align 1024 .b8 b[{b_bytes.size}]; .reg .b32 %d<{columns // 2}>;
    mov.b32 %r0, a; mov.b32 %r1, b; shl.b32 %r2, %t, 2; mov.b32 %r3, %r2;
    LA: cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd0, %rd5; add.u32 %r4, %r0, %r3; ld.global.b32 %r5, [%rd6];
    st.shared.b32 [%r4], %r5; add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, {a_bytes.size}; @%p0 bra LA;
    mov.b32 %r3, %r2;
    LB: cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd1, %rd5; add.u32 %r4, %r1, %r3; ld.global.b32 %r5, [%rd6];
    st.shared.b32 [%r4], %r5; add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, {b_bytes.size}; @%p0 bra LB;
    fence.proxy.async.shared::cta; bar.sync 0;
    {descriptor("%rd10", "%r0", a_leading, a_stride, swizzles[0])}
    {descriptor("%rd11", "%r1", b_leading, b_stride, swizzles[1])}
    {"".join(f"mov.b32 %d{i}, 0x7fc00000;" for i in range(columns // 2))}
    setp.ne.u32 %p1, %t, %t; setp.eq.u32 %p2, %t, %t;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{columns}{kind} {sums}, %rd10, %rd11, %p1{transpose};
    wgmma.mma_async.sync.aligned.m64n{columns}{kind} {sums}, %rd10, %rd11, %p2{transpose};
    wgmma.commit_group.sync.aligned;
    {wait}
    mul.wide.u32 %rd5, %t, {columns * 2}; add.s64 %rd6, %rd2, %rd5;
    {"".join(f"st.global.b32 [%rd6+{4 * i}], %d{i};" for i in range(columns // 2))}
    """
    launch(ptx(code.replace(without, ""), 3), a_bytes, b_bytes, out, block=128)
    return out


def unpacked(words: np.ndarray, dtype: str, columns: int) -> np.ndarray:
    """D: row 16 warp + lane / 4, + 8 for odd pairs; column 8 (i / 4) + 2 (lane % 4) + i % 2."""
    matrix = np.zeros((64, columns))
    for thread, values in enumerate(words.view(dtype)):
        warp, lane = divmod(thread, 32)
        for i, value in enumerate(values):
            matrix[16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2] = value
    return matrix


WAIT = "wgmma.wait_group.sync.aligned 0;"


@pytest.mark.parametrize(
    "kind, dtype, columns, swizzles, immediates",
    [
        ("k16.f32.bf16.bf16", ml_dtypes.bfloat16, 64, (128, 128), ", 1, 1, 0, 0"),
        ("k16.f32.f16.f16", np.float16, 8, (0, 0), ", 1, 1, 0, 0"),
        ("k16.f32.f16.f16", np.float16, 128, (64, 32), ", -1, 1, 0, 0"),
        ("k32.s32.s8.s8", np.int8, 32, (128, 64), ""),
        ("k32.f32.e4m3.e4m3", ml_dtypes.float8_e4m3fn, 16, (32, 128), ", 1, 1"),
    ],
)
def test_products_of_operands_with_contiguous_k(kind, dtype, columns, swizzles, immediates):
    depth = 32 // np.dtype(dtype).itemsize
    a, b = RNG.integers(-4, 5, (64, depth)).astype(dtype), RNG.integers(-4, 5, (columns, depth)).astype(dtype)
    words = multiply(kind, k_major(a, swizzles[0]), k_major(b, swizzles[1]), columns, swizzles, immediates, WAIT)
    expected = 2 * (a.astype("f8") @ b.astype("f8").T) * (-1 if "-1" in immediates else 1)
    np.testing.assert_array_equal(unpacked(words, "i4" if "s32" in kind else "f4", columns), expected)


def test_product_of_a_transposed_operand():
    a, b = RNG.integers(-4, 5, (64, 16)).astype("f2"), RNG.integers(-4, 5, (128, 16)).astype("f2")
    words = multiply("k16.f32.f16.f16", k_major(a, 128), mn_major(b), 128, (128, 128), ", 1, 1, 0, 1", WAIT)
    np.testing.assert_array_equal(unpacked(words, "f4", 128), 2 * (a.astype("f8") @ b.astype("f8").T))


def test_product_with_one_operand_in_registers():
    """A's words: row lane / 4, + 8 for odd words; columns 2 (lane % 4) and next, + 8 for words 2 and 3."""
    a, b = RNG.integers(-4, 5, (64, 16)).astype("f2"), RNG.integers(-4, 5, (8, 16)).astype("f2")
    words = np.zeros((128, 4, 2), "f2")
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for word in range(4):
            row, column = 16 * warp + lane // 4 + 8 * (word % 2), 2 * (lane % 4) + 8 * (word // 2)
            words[thread, word] = a[row, column : column + 2]
    b_bytes, leading, stride = k_major(b, 128)
    out = np.zeros((128, 4), "u4")
    code = f"""
    .shared .align 1024 .b8 b[{b_bytes.size}]; mov.b32 %r1, b; shl.b32 %r2, %t, 4; cvt.u64.u32 %rd5, %r2;
    add.s64 %rd6, %rd0, %rd5; ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd6];
    setp.lt.u32 %p0, %t, {b_bytes.size // 16}; @!%p0 bra FILLED; add.s64 %rd7, %rd1, %rd5; add.u32 %r4, %r1, %r2;
    ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd7]; st.shared.v4.b32 [%r4], {{%r5, %r6, %r7, %r8}};
    FILLED: fence.proxy.async.shared::cta; bar.sync 0; {descriptor("%rd11", "%r1", leading, stride, 128)}
    setp.ne.u32 %p1, %t, %t; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
        {{%f0, %f1, %f2, %f3}}, {{%r20, %r21, %r22, %r23}}, %rd11, %p1, 1, 1, 0;
    wgmma.commit_group.sync.aligned; {WAIT} add.s64 %rd8, %rd2, %rd5; st.global.v4.f32 [%rd8], {{%f0, %f1, %f2, %f3}};
    """
    launch(ptx(code, 3), words, b_bytes, out, block=128)
    np.testing.assert_array_equal(unpacked(out, "f4", 8), a.astype("f8") @ b.astype("f8").T)


@pytest.mark.parametrize("fence", ["fence.proxy.async.shared::cta;", "wgmma.fence.sync.aligned;"])
def test_missing_fences_are_found(fence):
    a, b = k_major(np.ones((64, 16), "f2"), 128), k_major(np.ones((8, 16), "f2"), 128)
    with pytest.raises(SimulationError, match="missing fence.proxy.async|missing wgmma.fence"):
        multiply("k16.f32.f16.f16", a, b, 8, (128, 128), ", 1, 1, 0, 0", WAIT, without=fence)


def test_a_missing_wait_is_found():
    a = k_major(RNG.integers(-4, 5, (64, 16)).astype("f2"), 128)
    b = k_major(RNG.integers(-4, 5, (8, 16)).astype("f2"), 128)
    for wait in ("", "wgmma.wait_group.sync.aligned 1;"):
        with pytest.raises(SimulationError, match="missing wgmma wait: an accumulator is read while"):
            multiply("k16.f32.f16.f16", a, b, 8, (128, 128), ", 1, 1, 0, 0", wait)
