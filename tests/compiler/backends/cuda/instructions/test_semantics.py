"""The semantics of the instructions against the definitions of the PTX ISA, lane by lane in numpy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from tests.compiler.backends.cuda.instructions.kernels import ROWS
from tests.compiler.backends.cuda.instructions.semantics import evaluate, random_operand

LANES = np.arange(32)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


SHUFFLES: dict[str, Callable[[int, int], int]] = {
    "xor": lambda lane, m: lane ^ m,
    "down": lambda lane, m: lane + m if lane + m < 32 else lane,
    "up": lambda lane, m: lane - m if lane - m >= 0 else lane,
    "idx": lambda lane, m: m,
}


@pytest.mark.parametrize("mode", SHUFFLES)
@pytest.mark.parametrize("dtype", ["f32", "s32"])
def test_shuffle(mode: str, dtype: str, rng: np.random.Generator) -> None:
    row = ROWS[f"cuda.shfl.{mode}.{dtype}"]
    out, value = (random_operand(o, rng) for o in row.operands)
    for m in (0, 1, 5, 16, 31):
        expected = [value[SHUFFLES[mode](lane, m)] for lane in LANES]
        np.testing.assert_array_equal(evaluate(row, out, value, m=m), expected)


@pytest.mark.parametrize(("kind", "function"), [("add", np.sum), ("min", np.min), ("max", np.max)])
def test_reduction_of_a_warp(kind: str, function: Callable[..., int], rng: np.random.Generator) -> None:
    row = ROWS[f"cuda.redux.{kind}.s32"]
    out, value = (random_operand(o, rng) for o in row.operands)
    np.testing.assert_array_equal(evaluate(row, out, value), np.full((32, 1), function(value)))


def test_ballot() -> None:
    value = np.array([[lane % 3] for lane in LANES], np.int32)
    expected = sum(1 << lane for lane in range(32) if lane % 3)
    np.testing.assert_array_equal(
        evaluate(ROWS["cuda.vote.ballot"], np.zeros((32, 1), np.uint32), value), np.full((32, 1), expected, np.uint32)
    )


@pytest.mark.parametrize(("old", "new"), [(0, 1), (6, 7), (7, 0), (9, 0)])
def test_increment_up_to_a_limit(old: int, new: int) -> None:
    row, counter = ROWS["cuda.atom.inc.u32"], np.array([old], np.uint32)
    found = [np.zeros(1, np.uint32) for _ in row.results]
    for function, result in zip(row.results, found, strict=True):
        run_prim_func(function, counter, result, 7)
    assert [int(x[0]) for x in found] == [old, new]


def words(array: np.ndarray) -> np.ndarray:
    """The rows of an array as 16-bit units."""
    return np.ascontiguousarray(array).view(np.uint16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("variant", ["f16", "trans.f16", "trans.bf16", "s8", "e4m3"])
def test_ldmatrix(count: int, variant: str, rng: np.random.Generator) -> None:
    """Lane ``l`` receives units ``2 * (l % 4)`` and the next one of row ``l / 4`` of each matrix."""
    row = ROWS[f"cuda.ldmatrix.x{count}.{variant}"]
    out, rows = (random_operand(o, rng) for o in row.operands)
    got = words(evaluate(row, out, rows))
    matrices = words(rows).reshape(4, 8, 8)
    if variant.startswith("trans"):
        matrices = matrices.transpose(0, 2, 1)
    for lane in LANES:
        for m in range(count):
            expected = matrices[m, lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            np.testing.assert_array_equal(got[lane, 2 * m : 2 * m + 2], expected)


def a_position(lane: int, i: int, pack: int) -> tuple[int, int]:
    """Row and column of element ``i`` of A (PTX ISA, "Matrix Fragments for mma.m16n8k16", "... k32")."""
    group, member, register = lane >> 2, lane % 4, i // pack
    row = group if register in (0, 2) else group + 8
    column = member * pack + i % pack + (0 if register < 2 else 4 * pack)
    return row, column


def b_position(lane: int, i: int, pack: int) -> tuple[int, int]:
    """Row and column of element ``i`` of B."""
    return lane % 4 * pack + i % pack + (0 if i < pack else 4 * pack), lane >> 2


def c_position(lane: int, i: int) -> tuple[int, int]:
    """Row and column of element ``i`` of the accumulators."""
    return (lane >> 2) + (0 if i < 2 else 8), lane % 4 * 2 + (i & 1)


@pytest.mark.parametrize("name", [n for n in ROWS if n.startswith("cuda.mma.")])
def test_mma(name: str, rng: np.random.Generator) -> None:
    """The fragments of random matrices give the fragment of their product."""
    row = ROWS[name]
    acc, a, b = (random_operand(o, rng) for o in row.operands)
    pack = a.shape[1] // 4
    left, right, result = np.zeros((16, 8 * pack)), np.zeros((8 * pack, 8)), np.zeros((16, 8))
    for lane in LANES:
        for i in range(a.shape[1]):
            left[a_position(lane, i, pack)] = a[lane, i]
        for i in range(b.shape[1]):
            right[b_position(lane, i, pack)] = b[lane, i]
        for i in range(4):
            result[c_position(lane, i)] = acc[lane, i]
    result += left @ right
    expected = [[result[c_position(lane, i)] for i in range(4)] for lane in LANES]
    tolerance = 2e-2 if ".f16.f16" in name else 1e-5
    np.testing.assert_allclose(evaluate(row, acc, a, b).astype(float), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [n for n in ROWS if n.startswith("cuda.wmma.mma.")])
def test_product_of_tiles(name: str, rng: np.random.Generator) -> None:
    row = ROWS[name]
    a_order, b_order = name.split(".")[4:6]
    acc, a, b = (random_operand(o, rng) for o in row.operands)
    left, right = a.astype(float), b.astype(float)
    expected = acc + (left if a_order == "row" else left.T) @ (right if b_order == "row" else right.T)
    np.testing.assert_allclose(evaluate(row, acc, a, b), expected, rtol=1e-5, atol=1e-5)


def test_a_tile_is_loaded_from_padded_rows(rng: np.random.Generator) -> None:
    row = ROWS["cuda.wmma.load_a.row.f16.ld40"]
    out, memory = (random_operand(o, rng) for o in row.operands)
    np.testing.assert_array_equal(evaluate(row, out, memory), memory[:, :16])


@pytest.mark.parametrize("count", [0, 3, 8])
def test_copy_with_zeros(count: int, rng: np.random.Generator) -> None:
    row = ROWS["cuda.cp_async.16.zfill.f16"]
    dst, src = (random_operand(o, rng) for o in row.operands)
    expected = np.where(np.arange(8) < count, src, 0)
    np.testing.assert_array_equal(evaluate(row, dst, src, count=count), expected)


@pytest.mark.parametrize("name", ["cuda.dp4a.s8.s8", "cuda.dp4a.u8.s8"])
def test_dot_product_of_bytes(name: str, rng: np.random.Generator) -> None:
    acc, a, b = (random_operand(o, rng) for o in ROWS[name].operands)
    expected = acc + np.dot(a.astype(np.int32), b.astype(np.int32))
    np.testing.assert_array_equal(evaluate(ROWS[name], acc, a, b), expected)


def test_packed_conversions(rng: np.random.Generator) -> None:
    x = np.array([1.2345, -300.7], np.float32)
    for name, dtype in (("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)):
        np.testing.assert_array_equal(evaluate(ROWS[f"cuda.cvt.{name}.f32x2"], x.astype(dtype), x), x.astype(dtype))
