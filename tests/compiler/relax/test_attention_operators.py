"""Attention, appending to the KV cache, RoPE: every option of the operators in the interpreter, against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlc_compiler.relax.ops import OperatorError
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import check_op, run_op
from tests.compiler.relax.paged import Batch, Sizes, random_batch

RNG = np.random.default_rng(5)
BASE = Sizes(spans=((0, 3), (6, 1), (2, 4)))


def angles(tokens: int, half: int) -> list[np.ndarray]:
    turn = RNG.uniform(0, 6, (tokens, half)).astype("f4")
    return [np.cos(turn), np.sin(turn)]


def check_attention(
    batch: Batch, optional: dict[str, Any] | None = None, tolerance: float = 2e-6, **attrs: Any
) -> None:
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    optional = {**(optional or {}), **batch.scales}
    attrs = {"heads": batch.q.shape[1], "scale": 0.3, "names": tuple(optional), **attrs}
    arrays = list(optional.values())
    check_op(
        "nn.paged_attention",
        *batch.args,
        1,
        arrays,
        reference=lambda *a: paged.attention(*a, **attrs),
        tolerance=tolerance,
        **attrs,
    )


INV_FREQ = np.array([1.0, 0.3, 0.1], "f4")
OPTIONS: dict[str, tuple[Sizes, dict[str, Any], dict[str, Any]]] = {
    "plain": (BASE, {}, {}),
    "one head for each": (Sizes(heads=2), {}, {}),
    "some heads of a fused product": (Sizes(heads=7), {}, {"first": 1, "heads": 4}),
    "values of another size": (Sizes(value=5), {}, {}),
    "latent": (Sizes(heads=4, kv_heads=1, key=12), {}, {"value_size": 8}),
    "rotated queries": (BASE, dict(zip(("cos", "sin"), angles(8, 3), strict=True)), {}),
    "interleaved": (BASE, dict(zip(("cos", "sin"), angles(8, 3), strict=True)), {"interleaved": True}),
    "inline rotation": (BASE, {"inv_freq": INV_FREQ}, {"rotation_factor": 1.25}),
    "window": (BASE, {}, {"window": 2}),
    "window with first positions": (BASE, {}, {"window": 2, "sink_size": 1}),
    "chunks": (BASE, {}, {"window": 3, "chunked": True}),
    "soft cap": (BASE, {}, {"soft_cap": 0.7}),
    "sinks": (BASE, {"sinks": np.array([0.5, -2.0, 4.0, 0.0], "f4")}, {}),
    "slopes": (BASE, {"slopes": np.array([0.5, 0.25, 0.125, 0.0625], "f4")}, {}),
    "bidirectional": (BASE, {"lengths": np.array([3, 7, 6], "int32")}, {}),
    "cross attention": (Sizes(longest=11), {"lengths": np.array([11, 2], "int32")}, {}),
    "bidirectional window": (BASE, {"lengths": np.array([3, 7, 6], "int32")}, {"window": 2}),
    "nothing to see": (Sizes(), {"lengths": np.array([0, 0], "int32")}, {}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_attention(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check_attention(random_batch(sizes), optional, **attrs)


def test_all_options_at_once():
    optional = {"inv_freq": INV_FREQ, "sinks": np.ones(4, "f4"), "slopes": np.full(4, 0.1, "f4")}
    check_attention(random_batch(BASE), optional, window=3, sink_size=2, soft_cap=1.5, interleaved=True)


def test_float16_pages_and_queries():
    check_attention(random_batch(Sizes(dtype="float16", kv_dtype="float16")), tolerance=2e-3)


@pytest.mark.parametrize("option", ["plain", "inline rotation", "cross attention", "window with first positions"])
def test_pages_of_codes_with_scales(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check_attention(random_batch(replace(sizes, kv_dtype="int8")), optional, **attrs)


def test_pages_of_float8():
    check_attention(random_batch(replace(BASE, kv_dtype="float8_e4m3fn")))


def test_out_of_range_places_are_clamped():
    batch = random_batch(BASE)
    batch.page_table[0, 0], batch.page_table[2, 1] = 1 << 28, -(1 << 28)
    batch.token_seq[1], batch.token_pos[-1] = 1 << 30, 1 << 30
    check_attention(batch)


def test_tokens_with_out_of_range_places_are_not_stored():
    batch = random_batch(BASE)
    batch.page_table[0, 0] = 1 << 28
    batch.token_seq[3], batch.token_pos[-1], batch.token_pos[-2] = -1, 1 << 30, -4
    qkv = RNG.standard_normal((len(batch.q), 8, 8), np.float32)
    stored = (batch.k_pages, batch.v_pages, qkv, qkv, *batch.args[3:])
    attrs = {"k_first": 4, "v_first": 6}
    check_op("kv_cache.append", *stored, 0, [], reference=lambda *a: paged.append(*a, **attrs), **attrs)


def stored_vectors(batch: Batch) -> np.ndarray:
    """Queries, keys and values [n, 8, 8]: very large and very small ones, zeros, halves between two codes."""
    vectors = RNG.standard_normal((len(batch.q), 8, 8), np.float32)
    vectors[0] *= 1e5
    vectors[1] = 0
    vectors[2] = [127, 0.5, 1.5, -2.5, -127, 126.5, 1e-3, -1]
    vectors[3] = 1e-9
    vectors[4] = 3e38
    return vectors


@pytest.mark.parametrize("rotation", [[], angles(8, 3)], ids=["plain", "rotated"])
def test_codes_and_scales_are_stored(rotation: list[np.ndarray]):
    batch = random_batch(replace(BASE, kv_dtype="int8"))
    batch.page_table[0, 0], batch.token_seq[7], batch.token_pos[6] = 1 << 28, -1, -4
    qkv = stored_vectors(batch) if not rotation else RNG.standard_normal((8, 8, 8), np.float32)
    args = (batch.k_pages, batch.v_pages, *batch.scales.values(), qkv, qkv, *batch.args[3:], 1, rotation)
    attrs = {"k_first": 4, "v_first": 6}
    reference = lambda *a: paged.append_quantized(*a, **attrs)  # noqa: E731
    check_op("kv_cache.append_quantized", *args, reference=reference, tolerance=1e-3, **attrs)


def test_stored_floats_of_8_bits_saturate():
    batch = random_batch(replace(BASE, kv_dtype="float8_e4m3fn"))
    qkv = stored_vectors(batch)
    args = (batch.k_pages, batch.v_pages, qkv, qkv, *batch.args[3:], 1, [])
    stored = run_op("kv_cache.append", *args)
    assert np.abs(stored[0].astype("f4")).max() == 448
    for got, wanted in zip(stored, paged.append(*args), strict=True):
        np.testing.assert_array_equal(got, wanted)


EMPTY = {"no sequences": (0, 3, 5), "no pages of a sequence": (2, 0, 5), "no pages": (2, 3, 0)}


@pytest.mark.parametrize("kind", EMPTY)
def test_tables_without_entries(kind: str):
    """Attention gives zeros and ``append`` stores nothing."""
    rows, each, pages = EMPTY[kind]
    batch = random_batch(Sizes())
    k_pages, v_pages = batch.k_pages[:, :pages], batch.v_pages[:, :pages]
    places = (np.zeros((rows, each), "int32"), batch.token_seq, batch.token_pos)
    attrs = {"heads": 4, "scale": 0.3, "symbolic": {0}}
    assert not run_op("nn.paged_attention", batch.q, k_pages, v_pages, *places, 1, [], **attrs).any()
    lengths = np.full(rows, 3, "int32")
    attrs |= {"names": ("lengths",)}
    assert not run_op("nn.paged_attention", batch.q, k_pages, v_pages, *places, 1, [lengths], **attrs).any()
    stored = run_op("kv_cache.append", k_pages, v_pages, batch.q, batch.q, *places, 1, [], symbolic={0})
    np.testing.assert_array_equal(stored[0], k_pages)
    latent = run_op("kv_cache.append_latent", k_pages[:, :, :1], batch.q[:, 0], *places, 1, symbolic={0})
    np.testing.assert_array_equal(latent, k_pages[:, :, :1])


@pytest.mark.parametrize("interleaved", [False, True])
def test_keys_are_rotated_when_they_are_stored(interleaved: bool):
    batch = random_batch(BASE)
    qkv = RNG.standard_normal((len(batch.q), 8, 8), np.float32)
    stored = (batch.k_pages, batch.v_pages, qkv, qkv, *batch.args[3:], 1, angles(len(qkv), 3))
    attrs = {"k_first": 4, "v_first": 6, "interleaved": interleaved}
    check_op("kv_cache.append", *stored, reference=lambda *a: paged.append(*a, **attrs), **attrs)


def test_latent_vectors_are_stored():
    batch = random_batch(Sizes(kv_heads=1))
    latent = RNG.standard_normal((len(batch.q), 8), np.float32)

    def reference(pages: np.ndarray, latent: np.ndarray, *places: np.ndarray) -> np.ndarray:
        return paged.append(pages, batch.v_pages, latent[:, None], latent[:, None], *places, [])[0]

    check_op("kv_cache.append_latent", batch.k_pages, latent, *batch.args[3:], 1, reference=reference)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved: bool):
    x = RNG.standard_normal((5, 6, 8), np.float32)

    def reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        return paged.rotated(x[:, 1:4], cos[:, None], sin[:, None], interleaved).astype("f4")

    attrs = {"first": 1, "heads": 3, "interleaved": interleaved}
    check_op("nn.rotary_embedding", x, *angles(5, 3), reference=reference, **attrs)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cos",), "names: got cos; expected cos and sin, or inv_freq"),
        (("cos", "sin", "inv_freq"), "names: got cos, sin, inv_freq"),
        (("alibi",), "names: got alibi"),
    ],
)
def test_optional_inputs_are_checked(names: tuple[str, ...], message: str):
    batch = random_batch(BASE)
    with pytest.raises(OperatorError, match=message):
        check_attention(batch, {name: INV_FREQ for name in names})


@pytest.mark.parametrize(
    ("kv_dtype", "names", "message"),
    [
        ("int8", (), "names: got no scales with int8 pages; expected k_scales and v_scales"),
        ("int8", ("v_scales",), "names: got v_scales with int8 pages"),
        ("float16", ("k_scales", "v_scales"), "names: got k_scales and v_scales with float16 pages"),
    ],
)
def test_codes_and_scales_belong_together(kv_dtype: str, names: tuple[str, ...], message: str):
    scales = random_batch(replace(BASE, kv_dtype="int8")).scales
    batch = replace(random_batch(replace(BASE, kv_dtype=kv_dtype)), scales={})
    with pytest.raises(OperatorError, match=message):
        check_attention(batch, {name: scales[name] for name in names})


def test_only_codes_are_quantized():
    batch, codes = random_batch(BASE), random_batch(replace(BASE, kv_dtype="int8"))
    args = (batch.k_pages, batch.v_pages, *codes.scales.values(), batch.q, batch.q, *batch.args[3:], 1, [])
    with pytest.raises(OperatorError, match="got pages or scales of float32; expected int8 pages, float16 scales"):
        run_op("kv_cache.append_quantized", *args)


def test_heads_divide_into_groups():
    with pytest.raises(OperatorError, match="heads: got 3 over"):
        check_attention(random_batch(BASE), heads=3)
