"""Run the GPU's attention kernels in the simulator and compare them with numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlc_compiler.sim.counts import Counts
from tests.compiler.backends.cuda.operators.simulated import TARGET, observed
from tests.compiler.relax import paged
from tests.compiler.relax.paged import Batch, Sizes, random_batch

RNG = np.random.default_rng(4)
PROMPTS = ((0, 37), (70, 5), (9, 1), (5, 2))  # several sequences in one tile, one sequence in several
STEPS = ((300, 1), (16, 1), (0, 1))
TOLERANCES = {"float32": 5e-6, "float16": 4e-3, "bfloat16": 3e-2}


def sizes_of(**changes: Any) -> Sizes:
    return Sizes(**{"spans": PROMPTS, "heads": 6, "kv_heads": 2, "key": 32, "value": 32, "page": 16, **changes})


def symbolic(batch: Batch) -> set[int]:
    """The sizes that vary between calls, and are therefore symbolic."""
    known = {*batch.q.shape[1:], *batch.k_pages.shape[2:], *batch.v_pages.shape[2:]}
    return {len(batch.q), *batch.page_table.shape, batch.k_pages.shape[1]} - known


def check(
    sizes: Sizes, optional: dict[str, Any] | None = None, target: str = TARGET, **attrs: Any
) -> dict[str, Counts]:
    """Compare the result with numpy's; returns what the simulator counted for each kernel."""
    batch, given = random_batch(sizes), optional or {}
    batch = replace(batch, v_pages=batch.k_pages) if "value_size" in attrs else batch
    given = {**given, **batch.scales}
    attrs = {"heads": sizes.heads, "scale": 0.3, "names": tuple(given), **attrs}
    args = (*batch.args, 1, list(given.values()))
    got, counts = observed("nn.paged_attention", *args, symbolic=symbolic(batch), target=target, **attrs)
    wanted = paged.attention(*args, **attrs).astype(np.float64)
    tolerance = TOLERANCES[sizes.dtype]
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=tolerance, atol=tolerance)
    return counts


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
    "chunks": ({}, {}, {"window": 21, "chunked": True}),
    "latent": ({"heads": 5, "kv_heads": 1, "key": 40}, {}, {"value_size": 24}),
    "odd sizes": ({"heads": 5, "kv_heads": 1, "key": 20, "value": 12, "page": 4}, {}, {}),
}
ON_TENSOR_CORES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "rotated, window, sinks": (HALF, {**angles(45, 8), **SINKS}, {"window": 21, "sink_size": 3}),
    "chunks": (HALF, angles(45, 8), {"window": 21, "chunked": True}),
    "soft cap, slopes, other sizes": (
        {**HALF, "key": 80, "value": 48, "page": 8},
        {**angles(45, 40), **SLOPES},
        {"soft_cap": 0.7, "interleaved": True},
    ),
    "latent vectors": ({**HALF, "heads": 6, "kv_heads": 1, "key": 96}, SINKS, {"value_size": 64}),
    "latent vectors, slopes, more heads than a tile": (
        {**HALF, "heads": 22, "kv_heads": 1, "key": 160, "page": 8, "spans": ((70, 3), (3, 2))},
        {"slopes": (0.9 ** np.arange(22)).astype(np.float32)},
        {"value_size": 128, "soft_cap": 0.7},
    ),
    "latent vectors of DeepSeek-V2": (
        {**HALF, "heads": 16, "kv_heads": 1, "key": 576, "spans": ((70, 3), (5, 2))},
        {},
        {"value_size": 512},
    ),
    "biases": (HALF, {"biases": RNG.normal(0, 2, (6, 41)).astype(np.float32)}, {}),
    "bidirectional": (HALF, {"lengths": np.array([37, 75, 0, 7], np.int32)}, {"window": 20}),
}
