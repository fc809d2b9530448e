"""Attention over tiles of queries (prefill) on a GPU, in float32 and on tensor cores, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.backends.cuda.operators.attention import HALF, ON_TENSOR_CORES, OPTIONS, check, sizes_of, symbolic
from tests.compiler.backends.cuda.operators.simulated import simulate
from tests.compiler.relax import paged
from tests.compiler.relax.paged import random_batch


@pytest.mark.parametrize("option", [*OPTIONS, *ON_TENSOR_CORES])
def test_tiles(option: str):
    sizes, optional, attrs = {**OPTIONS, **ON_TENSOR_CORES}[option]
    check(sizes_of(**sizes), optional, **attrs)


def test_slots_after_the_context_do_not_count():
    """Latent vectors there may be any bits: NaN times a weight of 0 is no 0."""
    batch = random_batch(sizes_of(**HALF, heads=6, kv_heads=1, key=96, spans=((0, 37),)))
    attrs = {"heads": 6, "scale": 0.3, "value_size": 64}
    wanted = paged.attention(batch.q, batch.k_pages, batch.k_pages, *batch.args[3:], 1, [], **attrs, names=())
    pages = batch.k_pages.copy()
    last = int(batch.page_table[0, 37 // 16])
    pages[:, last, :, :, 37 % 16 :] = np.nan
    args = (batch.q, pages, pages, *batch.args[3:], 1, [])
    got = simulate("nn.paged_attention", *args, symbolic=symbolic(replace(batch, k_pages=pages)), **attrs)
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=4e-3, atol=4e-3)
