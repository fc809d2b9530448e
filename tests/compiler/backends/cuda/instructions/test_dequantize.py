"""Unpacking instructions in the simulator, for every code of quantized weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.backends.cuda.instructions.dequantize import BOOK4, Q3, Q4, Q8, Unpacking
from mlc_compiler.backends.cuda.instructions.dequantize_fp8 import float8_unpacking
from mlc_compiler.backends.cuda.instructions.operands import SHORT
from mlc_compiler.ir import dtype as dt
from tests.compiler.backends.cuda.instructions.kernels import ROWS, row_kernel
from tests.compiler.backends.cuda.instructions.test_simulated import LANES, simulate

DTYPES = ("float16", "bfloat16")
BITS = {"q3": 3, "q4": 4, "q8": 8, "book4": 4}


def _words(unpacking: Unpacking, codes: np.ndarray) -> np.ndarray:
    """Pack codes [lanes, codes per word] into words [lanes, 1]."""
    shifts = BITS[unpacking.name] * np.arange(unpacking.codes, dtype=np.uint32)
    return np.bitwise_or.reduce(codes.astype(np.uint32) << shifts, axis=1, keepdims=True)


def _every_code(unpacking: Unpacking) -> np.ndarray:
    """Codes for all lanes, with every code in every position of a word; 8-bit codes are in some word only."""
    count = 1 << BITS[unpacking.name]
    lane, place = np.arange(LANES)[:, None], np.arange(unpacking.codes)
    return (lane * (unpacking.codes if count > LANES else 1) + place) % count


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unpacking", [Q3, Q4, Q8], ids=lambda u: u.name)
def test_codes(unpacking: Unpacking, dtype: str) -> None:
    codes = np.concatenate([_every_code(unpacking) + shift for shift in (0, 128)]) % (1 << BITS[unpacking.name])
    scale = np.full((LANES, 1), 0.375, dt.to_numpy(dtype))
    for part in np.split(codes, 2):
        steps = part - ((1 << (BITS[unpacking.name] - 1)) - 1)
        for pairs in ("pairs.",) * unpacking.paired + ("",) * unpacking.in_order:
            row = ROWS[f"cuda.dequantize.{unpacking.name}.{pairs}{SHORT[dtype]}"]
            places = np.arange(unpacking.codes)
            order = places // 2 + places % 2 * (unpacking.codes // 2) if pairs else places
            out = np.zeros((LANES, unpacking.codes), dt.to_numpy(dtype))
            got = simulate(row_kernel(row), [out, _words(unpacking, part), scale])
            np.testing.assert_array_equal(got, (steps[:, order] * 0.375).astype(out.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first", range(-128, 128, 16))
def test_entries_of_codebooks(first: int, dtype: str) -> None:
    """Tables of all numbers from -128 to 127, in an order that is not sorted."""
    entries = np.roll(np.arange(first, first + 16), 5).astype(np.int8)
    codes = _every_code(BOOK4)
    out, scale = np.zeros((LANES, 8), dt.to_numpy(dtype)), np.ones((LANES, 1), dt.to_numpy(dtype))
    row = ROWS[f"cuda.dequantize.book4.{SHORT[dtype]}"]
    got = simulate(row_kernel(row), [out, _words(BOOK4, codes), scale, np.tile(entries, (LANES, 1))])
    np.testing.assert_array_equal(got, entries[codes].astype(out.dtype))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", ["float8_e4m3fn", "float8_e5m2"])
def test_all_finite_float8(source: str, dtype: str, arch: str) -> None:
    """Subnormal numbers and both zeros, bit by bit."""
    every = np.arange(256, dtype=np.uint8).view(dt.to_numpy(source))
    finite = every[np.isfinite(every.astype(np.float32))]
    name = float8_unpacking(source, dtype, arch).name
    kernel = row_kernel(ROWS[f"cuda.dequantize.{name}.{SHORT[dtype]}"])
    for part in np.resize(finite, (2, LANES, 4)):
        want = part.astype(dt.to_numpy(dtype))
        got = simulate(kernel, [np.zeros_like(want), part], sm=arch)
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


def test_not_a_number_survives_the_instruction() -> None:
    codes = np.resize(np.array([0x7F, 0xFF, 0x38, 0xB8], np.uint8).view(ml_dtypes.float8_e4m3fn), (LANES, 4))
    kernel = row_kernel(ROWS["cuda.dequantize.e4m3.f16"])
    got = simulate(kernel, [np.zeros((LANES, 4), np.float16), codes])
    np.testing.assert_array_equal(got, np.tile([np.nan, np.nan, 1, -1], (LANES, 1)))
