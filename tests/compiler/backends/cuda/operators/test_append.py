"""Appending to the KV cache on a GPU against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.backends.cuda.operators.simulated import simulate
from tests.compiler.relax import paged
from tests.compiler.relax.paged import Batch, Sizes, random_batch

RNG = np.random.default_rng(6)


def batch_of(**changes: Any) -> Batch:
    """Tokens of three sequences in two tiles, some of them at invalid positions."""
    batch = random_batch(Sizes(spans=((0, 30), (60, 9), (5, 1)), heads=2, key=24, value=40, page=16, **changes))
    batch.token_seq[3], batch.token_pos[-1], batch.token_pos[-2] = -1, 1 << 30, -4
    batch.page_table[0, 0] = 1 << 28
    return batch


@pytest.mark.parametrize("rotation", ["none", "halves", "interleaved"])
def test_keys_and_values_are_stored(rotation: str):
    batch = batch_of(kv_dtype="float16")
    n = len(batch.q)
    turn = RNG.uniform(0, 6, (n, 8)).astype(np.float32)
    angles = [] if rotation == "none" else [np.cos(turn), np.sin(turn)]
    k, v = (RNG.standard_normal((n, 8, size), np.float32) for size in (24, 40))
    args = (batch.k_pages, batch.v_pages, k, v, *batch.args[3:], 1, angles)
    attrs = {"k_first": 4, "v_first": 6, "interleaved": rotation == "interleaved"}
    got = simulate("kv_cache.append", *args, symbolic={n}, **attrs)
    for result, wanted in zip(got, paged.append(*args, **attrs), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_codes_and_scales_are_stored(interleaved: bool, dtype: str):
    batch = batch_of(kv_dtype="int8")
    n = len(batch.q)
    turn = RNG.uniform(0, 6, (n, 8)).astype(np.float32)
    k, v = (RNG.standard_normal((n, 8, size), np.float32) for size in (24, 40))
    k[5], v[6] = 0, v[6] * 1e4
    k, v = k.astype(dtype), v.astype(dtype)
    args = (
        batch.k_pages,
        batch.v_pages,
        *batch.scales.values(),
        k,
        v,
        *batch.args[3:],
        1,
        [np.cos(turn), np.sin(turn)],
    )
    attrs = {"k_first": 4, "v_first": 6, "interleaved": interleaved}
    got = simulate("kv_cache.append_quantized", *args, symbolic={n}, **attrs)
    wanted = paged.append_quantized(*args, **attrs)
    for result, codes in zip(got[:2], wanted[:2], strict=True):
        differences = np.abs(result.astype(int) - codes)
        assert differences.max() <= 1 and differences.mean() < 1e-3  # where a sum is rounded differently
    for result, scales in zip(got[2:], wanted[2:], strict=True):
        np.testing.assert_allclose(result, scales, rtol=1e-3)


def test_float8_saturates():
    batch = batch_of(kv_dtype="float8_e4m3fn")
    k, v = (RNG.standard_normal((len(batch.q), 2, size), np.float32) * 300 for size in (24, 40))
    args = (batch.k_pages, batch.v_pages, k, v, *batch.args[3:], 1, [])
    got = simulate("kv_cache.append", *args, symbolic={len(batch.q)})
    for result, wanted in zip(got, paged.append(*args), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_latent_vectors_are_stored():
    batch = batch_of(kv_heads=1)
    latent = RNG.standard_normal((len(batch.q), 24), np.float32)
    args = (batch.k_pages, latent, *batch.args[3:], 1)
    stored = simulate("kv_cache.append_latent", *args, symbolic={len(batch.q)})
    wanted = paged.append(batch.k_pages, batch.v_pages, latent[:, None], batch.q[:, :1, :1], *batch.args[3:], 1, [])[0]
    np.testing.assert_array_equal(stored, wanted)
