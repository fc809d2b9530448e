"""Attention over KV caches of int8 with scales and of float8_e4m3fn on a GPU, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler import Library
from mlc_compiler.backends.cuda.images import compile_kernels, find_assembler
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.as_loops import build_as_loops
from tests.compiler.backends.cuda.operators.attention import (
    INV_FREQ,
    ONE_EACH,
    SINKS,
    SLOPES,
    angles,
    check,
    sizes_of,
    symbolic,
)
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import random_batch

INT8, FLOAT8 = {"kv_dtype": "int8"}, {"kv_dtype": "float8_e4m3fn"}
TARGETS = ["cuda:sm_80", "cuda:sm_90a"]
HALF = {"dtype": "float16"}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "inline rotation, all options": (
        INT8,
        {**INV_FREQ, **SINKS, **SLOPES},
        {"window": 30, "sink_size": 5, "soft_cap": 1.5, "interleaved": True, "rotation_factor": 1.25},
    ),
    "odd sizes": ({**INT8, "heads": 5, "kv_heads": 1, "key": 20, "value": 12, "page": 4}, {}, {}),
    "float8, odd sizes": ({**FLOAT8, "heads": 5, "kv_heads": 1, "key": 20, "value": 12, "page": 4}, {}, {}),
}
ON_TENSOR_CORES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "rotated, window, sinks": ({**HALF, **INT8}, {**angles(45, 8), **SINKS}, {"window": 21, "sink_size": 3}),
    "bidirectional": ({**HALF, **INT8, "page": 32}, {"lengths": np.array([37, 75, 0, 7], np.int32)}, {"window": 20}),
    "soft cap, slopes": ({"dtype": "bfloat16", **INT8, "key": 80, "value": 48}, SLOPES, {"soft_cap": 0.7}),
    "float8": ({**HALF, **FLOAT8, "key": 48}, {}, {}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_single_queries(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check(sizes_of(**sizes, **ONE_EACH), optional, single_query=True, **attrs)


@pytest.mark.parametrize("option", [*OPTIONS, *ON_TENSOR_CORES])
def test_tiles(option: str):
    sizes, optional, attrs = {**OPTIONS, **ON_TENSOR_CORES}[option]
    check(sizes_of(**sizes), optional, "cuda:sm_90a" if option == "float8" else "cuda:sm_80", **attrs)


@settings(max_examples=3)
@given(
    target=st.sampled_from(TARGETS),
    heads=st.sampled_from([(1, 1), (2, 1), (3, 2), (11, 1), (4, 1)]),
    key=st.sampled_from([8, 24, 64]),
    value=st.sampled_from([5, 16, 64]),
    page=st.sampled_from([2, 16, 32, 64]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    stored=st.sampled_from([INT8, FLOAT8]),
    window=st.sampled_from([0, 40]),
)
def test_single_queries_of_any_shape(
    target: str,
    heads: tuple[int, int],
    key: int,
    value: int,
    page: int,
    dtype: str,
    stored: dict[str, Any],
    window: int,
):
    sizes = {"heads": heads[0] * heads[1], "kv_heads": heads[1], "key": key, "value": value, "page": page}
    check(sizes_of(**sizes, **ONE_EACH, **stored, dtype=dtype), None, target, window=window, single_query=True)


@settings(max_examples=3)
@given(
    target=st.sampled_from(TARGETS),
    heads=st.sampled_from([(1, 1), (3, 2), (5, 1)]),
    key=st.sampled_from([16, 48, 64]),
    value=st.sampled_from([16, 32, 80]),
    page=st.sampled_from([16, 32, 64]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    stored=st.sampled_from([INT8, FLOAT8]),
    window=st.sampled_from([0, 40]),
)
def test_tiles_of_any_shape(
    target: str,
    heads: tuple[int, int],
    key: int,
    value: int,
    page: int,
    dtype: str,
    stored: dict[str, Any],
    window: int,
):
    sizes = {"heads": heads[0] * heads[1], "kv_heads": heads[1], "key": key, "value": value, "page": page}
    check(sizes_of(**sizes, **stored, dtype=dtype), None, target, window=window)


@pytest.mark.parametrize("single_query", [False, True])
def test_as_loops_in_both_orders_of_threads(single_query: bool, tmp_path: Path):
    batch = random_batch(sizes_of(**HALF, **INT8, **(ONE_EACH if single_query else {})))
    attrs = {"heads": 6, "scale": 0.3, "names": tuple(batch.scales), "single_query": single_query}
    args = (*batch.args, 1, list(batch.scales.values()))
    graph = run_passes(graph_of("nn.paged_attention", args, attrs, symbolic(batch)), entries())
    libraries = {descending: tmp_path / f"{descending}.so" for descending in (False, True)}
    build_as_loops(graph, Target("cuda:sm_80"), libraries)
    results = [np.asarray(Library(path)["main"](*batch.args, *batch.scales.values())) for path in libraries.values()]
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], paged.attention(*args, **attrs), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(("size", "single_query"), [(128, False), (256, False), (256, True)])
def test_registers_suffice(size: int, single_query: bool):
    large = {"heads": 32, "kv_heads": 8, **HALF, **INT8, "key": size, "value": size, "spans": ((0, 9),)}
    batch = random_batch(sizes_of(**large))
    attrs = {"heads": 32, "scale": 0.1, "names": tuple(batch.scales), "single_query": single_query}
    target = Target("cuda:sm_90a")
    graph = graph_of("nn.paged_attention", (*batch.args, 1, list(batch.scales.values())), attrs, symbolic(batch))
    code = compile_kernels(run_passes(graph, (*entries(), *pipeline(target))), target)
    assemble = find_assembler()
    assert assemble is not None
    assert ("mma.sync" in code.images[0].ptx) is not single_query
    resources = assemble(code.images[0].ptx, "sm_90a").resources
    assert len(resources) == len(code.kernels) > 0
    assert all(r.stack_bytes == r.spill_bytes == 0 for r in resources.values())
