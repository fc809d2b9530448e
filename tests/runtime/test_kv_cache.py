"""The page manager against a plain model of it: no page has two owners, none is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlc_errors import ResourceError
from mlc_runtime.kv_cache import PagedKVCache
from mlc_runtime.metadata import KVCacheSpec

SPEC = KVCacheSpec(num_hidden_layers=2, num_key_value_heads=3, head_dim=5, page_size=16, dtype="float16")


def test_shapes_and_first_pages():
    cache = PagedKVCache(SPEC, num_sequences=2, max_tokens=40)
    assert cache.k_pages.shape == (2, 6, 3, 5, 16) and cache.v_pages.shape == (2, 6, 3, 16, 5)
    assert cache.k_pages.dtype == np.float16 and cache.page_table.shape == (2, 3)
    assert (cache.extend(0, 17), cache.extend(1, 1), cache.extend(0, 2)) == (0, 0, 17)
    assert cache.page_table.tolist() == [[0, 1, 0], [2, 0, 0]]
    assert cache.page_table.dtype == np.int32


def test_full_sequence_changes_nothing():
    cache = PagedKVCache(SPEC, num_sequences=1, max_tokens=40)
    cache.extend(0, 40)
    with pytest.raises(ResourceError, match="context is full: 41 tokens; expected at most 40"):
        cache.extend(0, 1)
    assert cache.lengths == [40] and cache.num_free_pages == 0


def test_memory_comes_with_use():
    spec = KVCacheSpec(num_hidden_layers=4, num_key_value_heads=8, head_dim=128, page_size=16, dtype="float16")
    before = resident_bytes()
    cache = PagedKVCache(spec, num_sequences=1, max_tokens=131_072)
    cache.extend(0, 200)
    assert cache.k_pages.nbytes == 1 << 30
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 70), st.booleans()), max_size=40))
def test_pages_have_one_owner(operations):
    cache = PagedKVCache(SPEC, num_sequences=3, max_tokens=70)
    lengths = [0, 0, 0]
    for sequence, count, grow in operations:
        if grow and lengths[sequence] + count <= 70:
            assert cache.extend(sequence, count) == lengths[sequence]
            lengths[sequence] += count
        elif not grow and count <= lengths[sequence]:
            cache.truncate(sequence, count)
            lengths[sequence] = count
        owned = [p for row, n in zip(cache.page_table, lengths, strict=True) for p in row[: -(-n // 16)].tolist()]
        assert len(set(owned)) == len(owned) == 15 - cache.num_free_pages
        assert cache.lengths == lengths
