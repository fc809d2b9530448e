"""Attention, appending to the KV cache, rotary embedding: every option of the operators against numpy, interpreted."""

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
    names = tuple(n for n in optional or {})
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    attrs = {"heads": batch.q.shape[1], "scale": 0.3, "names": names, **attrs}
    arrays = list((optional or {}).values())
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


def test_heads_divide_into_groups():
    with pytest.raises(OperatorError, match="heads: got 3 over"):
        check_attention(random_batch(BASE), heads=3)
