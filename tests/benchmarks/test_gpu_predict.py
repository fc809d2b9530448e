"""Predictions for a GPU: bytes and launches of kernels by counting loops; times against figures worked out by hand."""

from __future__ import annotations

from math import prod

import pytest
from predict import LAUNCH_SECONDS, OVERLAPPED_SECONDS, Step, compiled_step, planned_step, predict
from presets import export_preset
from traffic import launches_of

from mlc_compiler import parse
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target

TARGET = Target("cuda:sm_90a")
KERNELS = {
    "copy": ("for i in range(96):\n        for j in range(40):\n            y[i, j] = x[i, j]", 2 * 96 * 40),
    "rows_by_index": (
        "for i in range(n):\n        for j in range(40):\n            y[i, j] = x[ids[i], j]",
        5 * (40 + 1 + 40),
    ),
    "two_halves": (
        "for i in range(48):\n        for j in range(40):\n            y[i, j] = x[i, j] + x[i + 48, j]",
        48 * 120,
    ),
    "one_column": ("for i in range(96):\n        y[i, 0] = x[i, 3]", 2 * 96),
    "read_again": ("for i in range(96):\n        for k in range(9):\n            y[i, 0] = y[i, 0] + x[i, 3]", 2 * 96),
    "unknown_length": ("for i in range(ids[0]):\n        y[0, 0] = y[0, 0] + x[i, 3]", 96 + 1 + 1),
}


@pytest.mark.parametrize("name", KERNELS)
def test_bytes_of_a_kernel(name: str) -> None:
    """Every element has 4 bytes."""
    body, elements = KERNELS[name]
    text = f"""
@T.prim_func
def main(x: T.Buffer((96, 40), "float32"), var_ids: T.handle, y: T.Buffer((96, 40), "float32")):
    n = T.int64()
    ids = T.match_buffer(var_ids, (n,), "int32")
    for b in T.thread_binding(1, thread="blockIdx.x"):
{"".join(f"    {line}{chr(10)}" for line in ("    " + body).splitlines())}
"""
    mod = run_passes(parse(text), (*entries(), *pipeline(TARGET)))
    (launched,) = launches_of(mod, "main", {"n": 5})
    assert launched.nbytes == 4 * elements


def test_launches_of_loops_and_conditions_on_the_host() -> None:
    text = """
@T.prim_func
def main(var_x: T.handle, count: T.int64):
    n = T.int64()
    x = T.match_buffer(var_x, (n,), "float32")
    for i in range(count):
        for b in T.thread_binding(n, thread="blockIdx.x"):
            x[b] = x[b] + 1.0
    if n > 8:
        for b in T.thread_binding(n - 8, thread="blockIdx.x"):
            x[b] = 0.0
"""
    mod = run_passes(parse(text), (*entries(), *pipeline(TARGET)))
    assert [k.nbytes for k in launches_of(mod, "main", {"n": 8, "count": 3})] == [32] * 3
    assert [k.nbytes for k in launches_of(mod, "main", {"n": 10, "count": 1})] == [40, 8]
    assert launches_of(mod, "main", {"n": 0, "count": 4}) == []


def test_a_model_reads_its_weights_and_the_cache_of_its_batch() -> None:
    preset = export_preset("tinyllama-1.1b-chat", "q4f16_1", TARGET, num_hidden_layers=1, prefill_chunk_size=64)
    layer = 2048 * (2048 + 2 * 256) + 2048 * 2048 + 3 * 2048 * 5632
    head, norms = 32000 * 2048, 3 * 2048
    assert preset.weight_bytes == (layer + head) * 4.5 / 8 + 2 * norms
    assert preset.cache_bytes == 2 * 4 * 64 * 2
    lowered = run_passes(preset.exported.mod, pipeline(TARGET))
    for batch, context in ((2, 64), (8, 512)):
        compiled, planned = compiled_step(lowered, batch, context), planned_step(preset, batch, context)
        assert compiled.prefetching == 5  # the products
        assert planned == Step(6, 6, preset.weight_bytes + batch * context * preset.cache_bytes)
        assert planned.nbytes < compiled.nbytes < 1.2 * planned.nbytes  # the logits are many beside one layer
    assert prod(preset.exported.params[0].shape) * 4 < preset.weight_bytes


@pytest.mark.parametrize(
    ("model", "gigabytes", "kernels", "limit", "graph", "overlapped"),
    [
        ("8 B, 4.5 bits", 4.24, 161, 944, 737, 865),
        ("8 B, bf16", 15.0, 161, 266, 247, 260),
        ("1.1 B, 4.5 bits", 0.613, 111, 6530, 2790, 4550),
    ],
)
def test_times_of_five_kernels_in_a_layer(
    model: str, gigabytes: float, kernels: int, limit: float, graph: float, overlapped: float
) -> None:
    """1 / (kernels * fixed + bytes / 4 TB/s)."""
    step = Step(kernels, kernels, gigabytes * 1e9)
    speeds = predict(step, step, batch=1)
    assert speeds.limit == pytest.approx(limit, rel=0.01)
    assert speeds.graph == pytest.approx(graph, rel=0.01)
    assert speeds.overlapped == speeds.planned == pytest.approx(overlapped, rel=0.01)
    assert predict(step, step, batch=8).graph == 8 * speeds.graph


def test_presets_at_the_limit() -> None:
    """As ``test_times_of_five_kernels_in_a_layer``, with the bytes of the preset instead of a figure."""
    preset = export_preset("llama-3.1-8b-instruct", "q4f16_1", TARGET)
    planned = planned_step(preset, batch=1, context=0)
    assert planned.kernels == 161
    speeds = predict(planned, planned, batch=1)
    assert speeds.limit == pytest.approx(944, rel=0.01)
    assert speeds.graph == pytest.approx(737, rel=0.01)
    assert speeds.overlapped == pytest.approx(865, rel=0.01)


def test_a_kernel_that_does_not_prefetch_keeps_its_whole_fixed_time() -> None:
    planned = Step(5, 5, 1e6)
    speeds = predict(Step(6, 4, 1e6), planned, batch=1)
    fixed = 2 * LAUNCH_SECONDS + 4 * OVERLAPPED_SECONDS
    assert 1 / speeds.overlapped - 1 / speeds.limit == pytest.approx(fixed)
