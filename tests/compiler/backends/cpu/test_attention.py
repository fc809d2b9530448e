"""The CPU's attention kernels against numpy: every option, tiles, split contexts, three targets, any number of
threads."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import Library, build
from mlc_compiler.backends.cpu.instructions.bfloat16 import DOT2
from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.driver import native_text
from mlc_compiler.ir.structural import structural_key
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.target import Target
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import Batch, Sizes, random_batch
from tests.compiler.relax.test_attention_operators import EMPTY

RNG = np.random.default_rng(8)
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")
PROMPTS = ((0, 70), (300, 9), (17, 1), (5, 40))  # several sequences in one tile, one sequence in several
STEPS = ((1, 1), (700, 1), (130, 1), (0, 1))  # one token each: some contexts are one piece, some are several
LIBRARIES: dict[Hashable, Library] = {}  # modules that differ in symbolic sizes only are compiled once


def compiled(
    batch: Batch, optional: dict[str, Any], target: str, threads: int, opt: str = "act=16", **attrs: Any
) -> Library:
    names = tuple(optional)
    given = {"heads": batch.q.shape[1], "scale": 0.3, "names": names, **attrs}
    sizes = {len(batch.q), *batch.page_table.shape, batch.k_pages.shape[1]}
    sizes -= {*batch.q.shape[1:], *batch.k_pages.shape[2:], *batch.v_pages.shape[2:]}  # which have to stay known
    mod = graph_of("nn.paged_attention", (*batch.args, 1, list(optional.values())), given, symbolic=sizes)
    key = structural_key(mod), str(target), threads, opt
    if key not in LIBRARIES:
        LIBRARIES[key] = build(mod, target, num_threads=threads, opt=opt)
    return LIBRARIES[key]


def check(
    batch: Batch, optional: dict[str, Any], target: str = "cpu", tolerance: float = 3e-6, **attrs: Any
) -> np.ndarray:
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    optional = {**optional, **batch.scales}
    got = compiled(batch, optional, target, 2, **attrs)["main"](*batch.args, *optional.values())
    attrs = {"heads": batch.q.shape[1], "scale": 0.3, "names": tuple(optional), **attrs}
    wanted = paged.attention(*batch.args, 1, list(optional.values()), **attrs)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    return got


def sizes_of(spans: tuple[tuple[int, int], ...], **changes: Any) -> Sizes:
    return Sizes(**{"spans": spans, "heads": 6, "kv_heads": 2, "key": 32, "value": 32, "page": 16, **changes})


def angles(tokens: int, pairs: int) -> dict[str, np.ndarray]:
    turn = RNG.uniform(0, 6, (tokens, pairs)).astype("f4")
    return {"cos": np.cos(turn), "sin": np.sin(turn)}


INV_FREQ = {"inv_freq": (0.5 ** np.arange(12)).astype("f4")}
TOKENS = sum(count for _, count in PROMPTS)
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}, {}),
    "one head for each": ({"heads": 2}, {}, {}),
    "many heads for one": ({"heads": 40}, {}, {}),
    "part of a fused product": ({"heads": 9}, {}, {"first": 2, "heads": 6}),
    "odd sizes": ({"heads": 5, "kv_heads": 1, "key": 20, "value": 20}, {}, {}),
    "sizes of three vectors": ({"key": 80, "value": 48}, {}, {}),
    "pages of 64": ({"page": 64}, {}, {}),
    "pages of 4": ({"page": 4}, {}, {}),
    "latent": ({"heads": 7, "kv_heads": 1, "key": 40}, {}, {"value_size": 32}),
    "inline rotation": ({}, INV_FREQ, {"rotation_factor": 1.25}),
    "inline, interleaved": ({}, INV_FREQ, {"interleaved": True}),
    "window": ({}, {}, {"window": 33}),
    "window with first positions": ({}, {}, {"window": 33, "sink_size": 3}),
    "chunks": ({}, {}, {"window": 33, "chunked": True}),
    "soft cap": ({}, {}, {"soft_cap": 0.7}),
    "sinks": ({}, {"sinks": RNG.normal(0, 2, 6).astype("f4")}, {}),
    "slopes": ({}, {"slopes": (0.5 ** np.arange(6)).astype("f4")}, {}),
    "biases": ({}, {"biases": RNG.normal(0, 2, (6, 41)).astype("f4")}, {}),
    "bidirectional, biases": (
        {},
        {"lengths": np.array([70, 309, 18, 45], "int32"), "biases": RNG.normal(0, 2, (6, 41)).astype("f4")},
        {},
    ),
    "bidirectional": ({}, {"lengths": np.array([70, 309, 18, 45], "int32")}, {}),
    "bidirectional window": ({}, {"lengths": np.array([70, 309, 18, 45], "int32")}, {"window": 20}),
    "nothing to see": ({}, {"lengths": np.zeros(4, "int32")}, {}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_tiles(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check(random_batch(sizes_of(PROMPTS, **sizes)), optional, **attrs)


@pytest.mark.parametrize("option", OPTIONS)
def test_pieces(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check(random_batch(sizes_of(STEPS, **sizes)), optional, single_query=True, **attrs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spans", [PROMPTS, STEPS], ids=["prompts", "steps"])
def test_targets(target: str, spans: tuple[tuple[int, int], ...]):
    batch = random_batch(sizes_of(spans, kv_dtype="float16"))
    optional = {**angles(len(batch.q), 12), "sinks": np.ones(6, "f4")}
    check(batch, optional, target, window=300, single_query=spans is STEPS)


@pytest.mark.parametrize("interleaved", [False, True])
def test_queries_are_rotated(interleaved: bool):
    check(random_batch(sizes_of(PROMPTS)), angles(TOKENS, 12), interleaved=interleaved)


def test_all_options_at_once():
    optional = {**INV_FREQ, "sinks": np.ones(6, "f4"), "slopes": np.full(6, 0.1, "f4")}
    attrs = {"window": 100, "sink_size": 20, "soft_cap": 1.5, "interleaved": True}
    check(random_batch(sizes_of(PROMPTS)), optional, **attrs)
    check(random_batch(sizes_of(STEPS)), optional, single_query=True, **attrs)


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "sizes of three vectors": ({"key": 80, "value": 48}, {}),
    "pages of 64": ({"page": 64}, {}),
    "latent": ({"heads": 7, "kv_heads": 1, "key": 48}, {"value_size": 32}),
    "window with first positions": ({}, {"window": 33, "sink_size": 3}),
}


@pytest.mark.skipif(not Cpu.of(Target("cpu")).has(DOT2.requires), reason="this CPU has no such instruction")
@pytest.mark.parametrize("option", PAIRS)
@pytest.mark.parametrize("count", [0, 1])  # of the last context: its positions are even, and odd
def test_pairs_of_bfloat16(option: str, count: int):
    """Queries, keys, values and weights are rounded to 8 bits; the sums are float32."""
    sizes, attrs = PAIRS[option]
    batch = random_batch(sizes_of((*PROMPTS, (32 + count, 31)), kv_dtype="float16", **sizes))
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    got = compiled(batch, {}, "cpu", 2, "O3", **attrs)["main"](*batch.args)
    rounded = replace(batch, q=as_bfloat16(batch.q * np.float32(0.3)), k_pages=as_bfloat16(batch.k_pages))
    rounded = replace(rounded, v_pages=as_bfloat16(batch.v_pages))
    wanted = paged.attention(*rounded.args, 1, [], heads=batch.q.shape[1], scale=1.0, names=(), **attrs)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2**-9 * np.abs(batch.v_pages).max())
    assert np.abs(got - wanted).max() > 1e-5  # the weights


def as_bfloat16(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("spans", [PROMPTS, STEPS], ids=["prompts", "steps"])
def test_float16(spans: tuple[tuple[int, int], ...]):
    batch = random_batch(sizes_of(spans, dtype="float16", kv_dtype="float16"))
    check(batch, {}, tolerance=1e-3, single_query=spans is STEPS)


@pytest.mark.parametrize("kv_dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("option", ["plain", "odd sizes", "pages of 4", "inline rotation", "bidirectional window"])
def test_pages_of_bytes(option: str, kv_dtype: str):
    sizes, optional, attrs = OPTIONS[option]
    check(random_batch(sizes_of(PROMPTS, **sizes, kv_dtype=kv_dtype)), optional, **attrs)
    check(random_batch(sizes_of(STEPS, **sizes, kv_dtype=kv_dtype)), optional, single_query=True, **attrs)


@pytest.mark.parametrize("target", TARGETS)
def test_pages_with_scales_and_all_options(target: str):
    optional = {"sinks": np.ones(6, "f4"), "slopes": np.full(6, 0.1, "f4")}
    attrs = {"window": 100, "sink_size": 20, "soft_cap": 1.5}
    check(random_batch(sizes_of(PROMPTS, kv_dtype="int8")), optional, target, **attrs)
    check(random_batch(sizes_of(STEPS, kv_dtype="int8")), optional, target, single_query=True, **attrs)


@pytest.mark.parametrize(("single_query", "spans"), [(True, STEPS), (False, PROMPTS)])
def test_steps_prefetch_keys_and_values(single_query: bool, spans: tuple[tuple[int, int], ...]):
    """Tiles of prompts copy blocks instead."""
    batch = random_batch(sizes_of(spans))
    attrs = {"heads": 6, "scale": 0.3, "single_query": single_query}
    mod = run_passes(graph_of("nn.paged_attention", (*batch.args, 1, []), attrs), entries())
    text = native_text(mod, Target("cpu:x86-64-v3"), "asm")
    assert ("prefetch" in text) == single_query


def test_very_long_contexts_have_longer_pieces():
    sizes = sizes_of(((9000, 1), (4100, 1)), heads=2, kv_heads=1, page=64, key=16, value=16)
    check(random_batch(sizes), {}, single_query=True, tolerance=1e-5)


@pytest.mark.parametrize("spans", [PROMPTS, STEPS], ids=["prompts", "steps"])
def test_the_same_bits_for_any_number_of_threads(spans: tuple[tuple[int, int], ...]):
    batch = random_batch(sizes_of(spans))
    results = [compiled(batch, {}, "cpu", n, single_query=spans is STEPS)["main"](*batch.args) for n in (1, 2, 5)]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_row_is_bitwise_independent_of_the_batch():
    batch = random_batch(sizes_of(PROMPTS))
    whole = compiled(batch, {}, "cpu", 2)["main"](*batch.args)
    part = slice(66, 75)  # the end of one sequence and the start of the next
    fewer = replace(batch, q=batch.q[part], token_seq=batch.token_seq[part], token_pos=batch.token_pos[part])
    np.testing.assert_array_equal(compiled(fewer, {}, "cpu", 2)["main"](*fewer.args), whole[part])


@pytest.mark.parametrize("spans", [PROMPTS, STEPS], ids=["prompts", "steps"])
def test_places_that_do_not_exist_are_clamped(spans: tuple[tuple[int, int], ...]):
    batch = random_batch(sizes_of(spans))
    batch.page_table[0, 0], batch.page_table[1, 1] = 1 << 28, -(1 << 28)
    batch.token_seq[1], batch.token_pos[-1], batch.token_pos[0] = 1 << 30, (1 << 31) - 1, -5
    check(batch, {}, single_query=spans is STEPS)


def test_sizes_known_only_at_run_time_have_the_operators_own_loops():
    batch = random_batch(sizes_of(PROMPTS, heads=8, kv_heads=4, key=24))
    given = {"heads": 8, "scale": 0.3}
    lib = build(graph_of("nn.paged_attention", (*batch.args, 1, []), given, symbolic=(24,)), num_threads=2)
    np.testing.assert_allclose(
        lib["main"](*batch.args), paged.attention(*batch.args, 1, [], **given), rtol=1e-5, atol=1e-5
    )


def test_masked_positions_are_ignored():
    batch = random_batch(sizes_of(((0, 5), (200, 1)), longest=300))
    wanted = compiled(batch, {}, "cpu", 1)["main"](*batch.args)
    positions = np.arange(batch.page_table.shape[1] * 16)
    for sequence, end in enumerate((5, 201)):
        hidden = positions[end:]
        pages, slots = batch.page_table[sequence, hidden // 16], hidden % 16
        batch.k_pages[:, pages, :, :, slots] = np.nan
        batch.v_pages[:, pages, :, slots] = np.nan
    np.testing.assert_array_equal(compiled(batch, {}, "cpu", 1)["main"](*batch.args), wanted)


WINDOWS = {
    "window": ({}, {"window": 33}),
    "window with first positions": ({}, {"window": 33, "sink_size": 3}),
    "latent": ({"heads": 7, "kv_heads": 1, "key": 40}, {"window": 33, "value_size": 32}),
    "pages of 4": ({"page": 4}, {"window": 33, "sink_size": 9}),
}


@pytest.mark.parametrize("option", WINDOWS)
@pytest.mark.parametrize("spans", [((300, 9), (70, 40), (0, 3)), STEPS], ids=["prompts", "steps"])
def test_pages_outside_of_the_window_are_ignored(spans: tuple[tuple[int, int], ...], option: str):
    """Their page table entries are invalid, and clamped to a page of NaN."""
    sizes, attrs = WINDOWS[option]
    batch = random_batch(sizes_of(spans, **sizes))
    page = batch.k_pages.shape[4]
    unused = (set(range(batch.k_pages.shape[1])) - set(batch.page_table.ravel().tolist())).pop()
    batch.page_table[batch.page_table == 0] = unused
    batch.k_pages[:, 0] = batch.v_pages[:, 0] = np.nan
    for row, (start, _) in zip(batch.page_table, spans, strict=True):
        first = max(start - attrs["window"] + 1, 0) // page
        row[-(-attrs.get("sink_size", 0) // page) : first] = -1
    assert (batch.page_table < 0).any()
    check(batch, {}, single_query=spans is STEPS, **attrs)


@pytest.mark.parametrize("spans", [PROMPTS, STEPS], ids=["prompts", "steps"])
def test_tokens_without_a_sequence_attend_to_nothing(spans: tuple[tuple[int, int], ...]):
    batch = random_batch(sizes_of(spans))
    wanted = check(batch, {}, single_query=spans is STEPS)
    batch.token_pos[1::2] = -1
    batch.token_seq[1::2] = 0
    got = check(batch, {}, single_query=spans is STEPS)
    assert not got[1::2].any()
    np.testing.assert_array_equal(got[::2], wanted[::2])


@pytest.mark.parametrize("single_query", [False, True])
@pytest.mark.parametrize("kind", EMPTY)
def test_tables_without_entries(kind: str, single_query: bool):
    rows, each, pages = EMPTY[kind]
    batch = random_batch(sizes_of(PROMPTS))
    empty = replace(
        batch,
        k_pages=batch.k_pages[:, :pages].copy(),
        v_pages=batch.v_pages[:, :pages].copy(),
        page_table=np.zeros((rows, each), "int32"),
    )
    assert not compiled(batch, {}, "cpu", 2, single_query=single_query)["main"](*empty.args).any()
