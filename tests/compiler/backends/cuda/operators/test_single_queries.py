"""Decode attention (one query per sequence) on a GPU, against numpy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.backends.cuda.operators.attention import HALF, ON_TENSOR_CORES, ONE_EACH, OPTIONS, check, sizes_of


@pytest.mark.parametrize("option", OPTIONS)
def test_single_queries(option: str):
    sizes, optional, attrs = OPTIONS[option]
    check(sizes_of(**sizes, **ONE_EACH), optional, single_query=True, **attrs)


@pytest.mark.parametrize("option", [name for name in ON_TENSOR_CORES if "latent" in name])
def test_single_queries_of_latent_vectors_in_pieces(option: str):
    sizes, optional, attrs = ON_TENSOR_CORES[option]
    check(sizes_of(**{**sizes, **ONE_EACH}), optional, single_query=True, **attrs)


@pytest.mark.parametrize(("group", "size"), [(4, 128), (3, 64), (1, 64)])
def test_single_queries_pass_through_shared_memory_without_conflicts(group: int, size: int):
    sizes = {"heads": group * 2, "kv_heads": 2, "key": size, "value": size, **HALF, **ONE_EACH}
    (counts,) = check(sizes_of(**sizes), single_query=True).values()
    assert counts.bank_conflicts <= 0.05 * counts.ideal_wavefronts


@settings(max_examples=3)
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
