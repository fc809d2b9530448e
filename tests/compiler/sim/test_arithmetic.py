"""Arithmetic instructions, lane by lane, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.sim.kernels import apply

N = 96
RNG = np.random.default_rng(3)
S32 = np.concatenate([[0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 100], RNG.integers(-(2**31), 2**31, N - 8)]).astype("i4")
OTHER = np.concatenate([[3, -1, 5, 2**31 - 1, 2, -2, 2, -3], RNG.integers(-(2**31), 2**31, N - 8)]).astype("i4")
SMALL = RNG.integers(0, 40, N).astype("u4")
F32 = np.concatenate([[0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-40], RNG.normal(0, 100, N - 8)]).astype("f4")
G32 = np.concatenate([[-0.0, 0.0, 1.0, np.inf, 2.0, np.nan, 3.0, -1e-41], RNG.normal(0, 1, N - 8)]).astype("f4")
U32, V32 = S32.view("u4"), OTHER.view("u4")


def same(found, expected):
    np.testing.assert_array_equal(found, np.asarray(expected).astype(found.dtype))


@pytest.mark.parametrize(
    "code, a, b, expected",
    [
        ("add.s32 %d, %a, %b", S32, OTHER, S32 + OTHER),
        ("sub.s32 %d, %a, %b", S32, OTHER, S32 - OTHER),
        ("mul.lo.s32 %d, %a, %b", S32, OTHER, S32 * OTHER),
        ("mul.hi.s32 %d, %a, %b", S32, OTHER, (S32.astype("i8") * OTHER) >> 32),
        ("mul.hi.u32 %d, %a, %b", U32, V32, (U32.astype("u8") * V32) >> np.uint64(32)),
        ("div.s32 %d, %a, %b", S32[8:], OTHER[8:], np.trunc(S32[8:] / OTHER[8:].astype("f8"))),
        ("rem.s32 %d, %a, %b", S32, OTHER, np.fmod(S32.astype("i8"), OTHER.astype("i8"))),
        ("div.u32 %d, %a, %b", U32, V32, U32 // V32),
        ("min.s32 %d, %a, %b", S32, OTHER, np.minimum(S32, OTHER)),
        ("max.u32 %d, %a, %b", U32, V32, np.maximum(U32, V32)),
        ("max.relu.s32 %d, %a, %b", S32, OTHER, np.maximum(np.maximum(S32, OTHER), 0)),
        ("and.b32 %d, %a, %b", U32, V32, U32 & V32),
        ("xor.b32 %d, %a, %b", U32, V32, U32 ^ V32),
        ("shl.b32 %d, %a, %b", U32, SMALL, np.where(SMALL < 32, U32 << np.minimum(SMALL, 31), 0)),
        ("shr.u32 %d, %a, %b", U32, SMALL, np.where(SMALL < 32, U32 >> np.minimum(SMALL, 31), 0)),
        ("shr.s32 %d, %a, %b", S32, SMALL, S32 >> np.minimum(SMALL, 31).astype("i4")),
        ("bfe.u32 %d, %a, %b, 5", U32, SMALL % 28, (U32 >> (SMALL % 28)) & 31),
        ("bfe.s32 %d, %a, 3, 4", S32, OTHER, (((S32 >> 3) & 15) ^ 8) - 8),
        ("bfi.b32 %d, %a, %b, 4, 8", U32, V32, (V32 & ~np.uint32(0xFF0)) | ((U32 & 0xFF) << 4)),
        ("prmt.b32 %d, %a, %b, 0x5410", U32, V32, (U32 & 0xFFFF) | (V32 << np.uint32(16))),
        ("prmt.b32 %d, %a, %b, 0x0123", U32, V32, U32.byteswap()),
        ("lop3.b32 %d, %a, %b, 12, 0xEA", U32, V32, (U32 & V32) | 12),
        ("shf.l.wrap.b32 %d, %a, %b, 8", U32, V32, (V32 << np.uint32(8)) | (U32 >> np.uint32(24))),
        ("shf.r.wrap.b32 %d, %a, %b, 8", U32, V32, (U32 >> np.uint32(8)) | (V32 << np.uint32(24))),
        ("dp4a.s32.s32 %d, %a, %b, 5", S32, OTHER, None),
        ("mad.lo.s32 %d, %a, %b, -3", S32, OTHER, S32 * OTHER - 3),
        ("add.sat.s32 %d, %a, %b", S32, OTHER, np.clip(S32.astype("i8") + OTHER, -(2**31), 2**31 - 1)),
    ],
)
def test_integers_of_32_bits(code, a, b, expected):
    if expected is None:
        products = a.view("i1").reshape(-1, 4).astype("i4") * b.view("i1").reshape(-1, 4)
        expected = products.sum(axis=1) + 5
    same(apply(code + ";", a.dtype, a, b), expected)


@pytest.mark.parametrize(
    "code, expected",
    [
        ("popc.b32 %d, %a", [bin(int(x)).count("1") for x in U32]),
        ("clz.b32 %d, %a", [32 - int(x).bit_length() for x in U32]),
        ("brev.b32 %d, %a", [int(f"{int(x):032b}"[::-1], 2) for x in U32]),
        ("not.b32 %d, %a", ~U32),
        ("bfind.u32 %d, %a", [(int(x).bit_length() - 1) % 2**32 for x in U32]),
        ("cvt.u32.u8 %d, %a", U32 & 0xFF),
        ("cvt.s32.s8 %d, %a", U32.astype("i1").astype("i4").view("u4")),
        ("cvt.sat.u8.s32 %d, %a", np.clip(S32, 0, 255)),
        ("neg.s32 %d, %a", (-S32).view("u4")),
        ("abs.s32 %d, %a", np.abs(S32).view("u4")),
    ],
)
def test_integers_with_one_operand(code, expected):
    same(apply(code + ";", "u4", U32), expected)


def test_64_bits():
    a, b = RNG.integers(-(2**63), 2**63, N), RNG.integers(-(2**63), 2**63, N)
    same(apply("mul.hi.s64 %d, %a, %b;", "i8", a, b), [(int(x) * int(y)) >> 64 for x, y in zip(a, b)])
    same(apply("mul.wide.s32 %d, %a, %b;", "i8", S32, OTHER), S32.astype("i8") * OTHER)
    same(apply("mad.wide.u32 %d, %a, %b, %c;", "u8", U32, V32, a.view("u8")), U32.astype("u8") * V32 + a.view("u8"))


@pytest.mark.parametrize(
    "code, formula",
    [
        ("add.rn.f32 %d, %a, %b", lambda a, b: a + b),
        ("mul.f32 %d, %a, %b", lambda a, b: a * b),
        ("div.rn.f32 %d, %a, %b", lambda a, b: a / b),
        ("min.f32 %d, %a, %b", np.fmin),
        ("max.f32 %d, %a, %b", np.fmax),
        ("min.NaN.f32 %d, %a, %b", np.minimum),
        ("copysign.f32 %d, %a, %b", lambda a, b: np.copysign(b, a)),
    ],
)
def test_float32(code, formula):
    with np.errstate(all="ignore"):
        same(apply(code + ";", "f4", F32, G32), formula(F32, G32))


def test_minimum_of_zeros_is_the_negative_one():
    zeros = np.array([0.0, -0.0], "f4")
    assert np.signbit(apply("min.f32 %d, %a, %b;", "f4", zeros, -zeros)).all()
    assert not np.signbit(apply("max.f32 %d, %a, %b;", "f4", zeros, -zeros)).any()


def test_fused_multiply_add_rounds_once():
    """2**-24 + 2**-48 + 1: the float64 sum is half-way between float32 values once it is rounded."""
    a = np.array([1 + 2.0**-12, 2.0**-30, 1.0], "f4")
    b = np.array([1 - 2.0**-12, 2.0**-30, 2.0**-24], "f4")
    c = np.array([-1.0, 1 + 2.0**-23, 1.0], "f4")
    found = apply("fma.rn.f32 %d, %a, %b, %c;", "f4", a, b, c)
    same(found, [-(2.0**-24), 1 + 2.0**-23, 1.0])
    half_and_more = apply(
        "fma.rn.f32 %d, %a, %b, %c;",
        "f4",
        np.float32([2.0**-24 + 2.0**-40]),
        np.float32([1 + 2.0**-20]),
        np.float32([1]),
    )
    same(half_and_more, [1 + 2.0**-23])


def test_rounding_modes_and_flushing():
    a, b = np.float32([1.0, -1.0]), np.float32([2.0**-30, -(2.0**-30)])
    same(apply("add.rz.f32 %d, %a, %b;", "f4", a, b), [1.0, -1.0])
    same(apply("add.rp.f32 %d, %a, %b;", "f4", a, b), [1 + 2.0**-23, -1.0])
    same(apply("add.rm.f32 %d, %a, %b;", "f4", a, b), [1.0, -1 - 2.0**-23])
    same(apply("mul.ftz.f32 %d, %a, %b;", "f4", np.float32([1e-40, 1e-30]), np.float32([1, 1e-10])), [0.0, 0.0])
    halves = np.array([3e-6, 2.0, -4e-5, 2.0**-13], "f2")
    same(apply("mul.ftz.f16 %d, %a, %b;", "f2", halves, np.array([4.0, 1.0, 1.0, 0.25], "f2")), [0, 2, -0.0, 0])
    same(apply("add.sat.f32 %d, %a, %b;", "f4", np.float32([3, -1, np.nan]), np.float32([0, 0, 0])), [1, 0, 0])


@pytest.mark.parametrize(
    "name", ["ex2.approx", "lg2.approx", "rcp.approx", "sqrt.rn", "rsqrt.approx", "tanh.approx", "sin.approx"]
)
def test_functions(name):
    x = np.abs(F32[8:]) / 30 + np.float32(0.1)
    functions = {"ex2": np.exp2, "lg2": np.log2, "rcp": lambda v: 1 / v, "sqrt": np.sqrt, "rsqrt": lambda v: v**-0.5}
    function = functions.get(name.split(".")[0]) or getattr(np, name.split(".")[0])
    np.testing.assert_allclose(apply(f"{name}.f32 %d, %a;", "f4", x), function(x.astype("f8")), rtol=3e-7, atol=1e-7)


def test_half_and_bfloat_pairs():
    a, b, c = (RNG.normal(0, 3, (3, 2 * N))).astype("f2")
    pairs = [x.view("u4") for x in (a, b, c)]
    fused = (a.astype("f8") * b + c).astype("f2")
    same(apply("fma.rn.f16x2 %d, %a, %b, %c;", "u4", *pairs).view("f2"), fused)
    same(apply("mul.f16x2 %d, %a, %b;", "u4", *pairs[:2]).view("f2"), a * b)
    brain = [x.astype(ml_dtypes.bfloat16) for x in (a, b, c)]
    words = [x.view("u4") for x in brain]
    fused = (brain[0].astype("f8") * brain[1].astype("f8") + brain[2].astype("f8")).astype(ml_dtypes.bfloat16)
    same(apply("fma.rn.bf16x2 %d, %a, %b, %c;", "u4", *words).view("u2"), fused.view("u2"))
    same(apply("max.bf16x2 %d, %a, %b;", "u4", *words[:2]).view("u2"), np.maximum(brain[0], brain[1]).view("u2"))


@pytest.mark.parametrize(
    "code, result, source, expected",
    [
        ("cvt.rzi.s32.f32", "i4", F32[5:], None),
        (
            "cvt.rni.s32.f32",
            "i4",
            np.float32([0.5, 1.5, 2.5, -0.5, 1e20, -1e20, np.nan]),
            [0, 2, 2, 0, 2**31 - 1, -(2**31), 0],
        ),
        ("cvt.rpi.u32.f32", "u4", np.float32([0.5, -3.0, 5e9]), [1, 0, 2**32 - 1]),
        ("cvt.rmi.f32.f32", "f4", np.float32([0.5, -0.5]), [0.0, -1.0]),
        ("cvt.rn.f16.f32", "f2", F32[8:], F32[8:].astype("f2")),
        ("cvt.rz.f16.f32", "f2", np.float32([1 + 2.0**-10 * 0.9]), [1.0]),
        ("cvt.f32.f16", "f4", F32[8:].astype("f2"), F32[8:].astype("f2")),
        ("cvt.rn.bf16.f32", "u2", F32[8:], F32[8:].astype(ml_dtypes.bfloat16).view("u2")),
        ("cvt.rz.bf16.f32", "u2", F32[8:], F32[8:].view("u4") >> 16),
        ("cvt.f32.bf16", "f4", np.arange(96, dtype="u2") * 300, (np.arange(96, dtype="u4") * 300 << 16).view("f4")),
        ("cvt.rn.f32.s32", "f4", S32, S32.astype("f4")),
        ("cvt.rn.f32.u64", "f4", U32.astype("u8") << np.uint64(20), (U32.astype("u8") << np.uint64(20)).astype("f4")),
        ("cvt.f64.f32", "f8", F32[8:], F32[8:]),
        ("cvt.rn.f32.f64", "f4", F32[8:].astype("f8") / 3, F32[8:].astype("f8") / 3),
        ("cvt.rna.tf32.f32", "u4", F32[8:], (F32[8:].view("u4") + 0x1000) & 0xFFFFE000),
        ("cvt.sat.f32.f32", "f4", np.float32([2, -1, 0.25]), [1, 0, 0.25]),
    ],
)
def test_conversions(code, result, source, expected):
    if expected is None:
        expected = np.trunc(source)
    same(apply(f"{code} %d, %a;", result, source), expected)


def test_packed_conversions_put_the_first_operand_into_the_upper_half():
    a, b = F32[8:], G32[8:]
    expected = a.astype("f2").view("u2").astype("u4") << np.uint32(16) | b.astype("f2").view("u2")
    same(apply("cvt.rn.f16x2.f32 %d, %a, %b;", "u4", a, b), expected)
    low, high = (x.astype(ml_dtypes.float8_e4m3fn).view("u1").astype("u2") for x in (b, np.clip(a, -448, 448)))
    fp8 = apply("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "u2", a, b)
    same(fp8, high << np.uint16(8) | low)
    back = apply("cvt.rn.f16x2.e4m3x2 %d, %a;", "u4", fp8).view("f2")
    same(back, fp8.view("u1").view(ml_dtypes.float8_e4m3fn).astype("f2"))


@pytest.mark.parametrize(
    "name, formula", [("lt", np.less), ("neu", np.not_equal), ("geu", lambda a, b: ~(a < b)), ("nan", None)]
)
def test_comparisons_with_nan(name, formula):
    expected = np.isnan(F32) | np.isnan(G32) if formula is None else formula(F32, G32)
    code = f".reg .pred q; setp.{name}.f32 q, %a, %b; selp.b32 %d, 1, 0, q;"
    same(apply(code, "u4", F32, G32), expected)


def test_sums_of_128_bits():
    a, b = RNG.integers(0, 2**64, (2, N), dtype="u8")
    code = ".reg .b64 low; add.cc.s64 low, %a, %b; addc.s64 %d, 0, 0;"
    same(apply(code, "u8", a, b), [(int(x) + int(y)) >> 64 for x, y in zip(a, b)])
    code = ".reg .b64 low; sub.cc.s64 low, %a, %b; subc.cc.s64 low, %a, %a; subc.s64 %d, %b, %a;"
    expected = [(int(y) - int(x) - int(x < y)) % 2**64 for x, y in zip(a, b)]
    same(apply(code, "u8", a, b), np.array(expected, "u8"))


def test_moves_pack_and_unpack():
    code = ".reg .b16 x, y; mov.b32 {x, y}, %a; mov.b32 %d, {y, x};"
    same(apply(code, "u4", U32), (U32 >> np.uint32(16)) | (U32 << np.uint32(16)))
