"""Attention kernels of GPUs against numpy: single queries, tiles in float32, tiles on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import compile_kernels, find_assembler
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.operators.simulated import simulate
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import Batch, Sizes, random_batch

RNG = np.random.default_rng(4)
PROMPTS = ((0, 37), (70, 5), (9, 1), (5, 2))  # several sequences in one tile, one sequence in several
STEPS = ((300, 1), (16, 1), (0, 1))
TOLERANCES = {"float32": 5e-6, "float16": 4e-3, "bfloat16": 3e-2}


def sizes_of(**changes: Any) -> Sizes:
    return Sizes(**{"spans": PROMPTS, "heads": 6, "kv_heads": 2, "key": 32, "value": 32, "page": 16, **changes})


def symbolic(batch: Batch) -> set[int]:
    """The sizes that differ from call to call."""
    known = {*batch.q.shape[1:], *batch.k_pages.shape[2:], *batch.v_pages.shape[2:]}
    return {len(batch.q), *batch.page_table.shape, batch.k_pages.shape[1]} - known


def check(sizes: Sizes, optional: dict[str, Any] | None = None, **attrs: Any) -> None:
    batch, given = random_batch(sizes), optional or {}
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    attrs = {"heads": sizes.heads, "scale": 0.3, "names": tuple(given), **attrs}
    args = (*batch.args, 1, list(given.values()))
    got = simulate("nn.paged_attention", *args, symbolic=symbolic(batch), **attrs)
    wanted = paged.attention(*args, **attrs).astype(np.float64)
    tolerance = TOLERANCES[sizes.dtype]
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=tolerance, atol=tolerance)


def angles(tokens: int, pairs: int) -> dict[str, np.ndarray]:
    turn = RNG.uniform(0, 6, (tokens, pairs)).astype(np.float32)
    return {"cos": np.cos(turn), "sin": np.sin(turn)}


INV_FREQ = {"inv_freq": (0.5 ** np.arange(12)).astype(np.float32)}
SINKS = {"sinks": RNG.normal(0, 2, 6).astype(np.float32)}
SLOPES = {"slopes": (0.5 ** np.arange(6)).astype(np.float32)}
HALF = {"dtype": "float16", "kv_dtype": "float16"}
ONE_EACH = {"spans": STEPS}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "inline rotation, all options": (
        {},
        {**INV_FREQ, **SINKS, **SLOPES},
        {"window": 30, "sink_size": 5, "soft_cap": 1.5, "interleaved": True, "rotation_factor": 1.25},
    ),
    "latent": ({"heads": 5, "kv_heads": 1, "key": 40}, {}, {"value_size": 24}),
    "odd sizes": ({"heads": 5, "kv_heads": 1, "key": 20, "value": 12, "page": 4}, {}, {}),
}
ON_TENSOR_CORES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "rotated, window, sinks": (HALF, {**angles(45, 8), **SINKS}, {"window": 21, "sink_size": 3}),
    "soft cap, slopes, other sizes": (
        {**HALF, "key": 80, "value": 48, "page": 8},
        {**angles(45, 40), **SLOPES},
        {"soft_cap": 0.7, "interleaved": True},
    ),
    "bidirectional": (HALF, {"lengths": np.array([37, 75, 0, 7], np.int32)}, {"window": 20}),
}


@pytest.mark.parametrize("option", [*OPTIONS, *ON_TENSOR_CORES])
def test_tiles(option: str):
    sizes, optional, attrs = {**OPTIONS, **ON_TENSOR_CORES}[option]
    check(sizes_of(**sizes), optional, **attrs)


@pytest.mark.parametrize("option", OPTIONS)
def test_single_queries(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check(sizes_of(**sizes, **ONE_EACH), optional, single_query=True, **attrs)


@settings(max_examples=4)
@given(
    heads=st.sampled_from([(1, 1), (3, 2), (11, 1), (4, 1)]),
    key=st.sampled_from([8, 24, 64]),
    value=st.sampled_from([5, 16, 64]),
    page=st.sampled_from([2, 16, 32, 64]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    window=st.sampled_from([0, 40]),
)
def test_single_queries_of_any_shape(heads: tuple[int, int], key: int, value: int, page: int, dtype: str, window: int):
    group, kv_heads = heads
    sizes = {"heads": group * kv_heads, "kv_heads": kv_heads, "key": key, "value": value, "page": page}
    check(sizes_of(**sizes, **ONE_EACH, dtype=dtype, kv_dtype=dtype), window=window, single_query=True)


@pytest.mark.parametrize("single_query", [False, True])
def test_sequences_without_pages_give_zeros(single_query: bool):
    batch = random_batch(sizes_of(**HALF))
    table = np.zeros((2, 0), np.int32)
    attrs = {"heads": 6, "scale": 0.3, "single_query": single_query, "symbolic": {0}}
    args = (batch.q, batch.k_pages, batch.v_pages, table, batch.token_seq, batch.token_pos, 1, [])
    assert not np.asarray(simulate("nn.paged_attention", *args, **attrs)).any()


LARGE = {"heads": 32, "kv_heads": 8, **HALF}


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("single_query", [False, True])
def test_registers_suffice(size: int, single_query: bool):
    batch = random_batch(sizes_of(**LARGE, key=size, value=size, spans=((0, 9),)))
    attrs = {"heads": 32, "scale": 0.1, "single_query": single_query}
    target = Target("cuda:sm_90a")
    graph = graph_of("nn.paged_attention", (*batch.args, 1, []), attrs, symbolic(batch))
    code = compile_kernels(run_passes(graph, (*entries(), *pipeline(target))), target)
    assemble = find_assembler()
    assert assemble is not None
    resources = assemble(code.images[0].ptx, "sm_90a").resources
    assert len(resources) == len(code.kernels) > 0
    assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources.values())
