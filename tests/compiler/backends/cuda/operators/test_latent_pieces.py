"""Latent attention for decode on tensor cores: parts of a context are merged by a second kernel (split-K)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.sim.driver import SimulatedDriver
from tests.compiler.backends.cuda.operators.attention import HALF, sizes_of, symbolic
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import Batch, random_batch

LONG = 700  # positions: several pieces
ATTRS: dict[str, Any] = {"heads": 6, "scale": 0.3, "value_size": 64, "single_query": True}


def batch_of(lengths: tuple[int, ...]) -> Batch:
    """One query at the end of each context."""
    spans = tuple((length - 1, 1) for length in lengths)
    batch = random_batch(sizes_of(**HALF, heads=6, kv_heads=1, key=96, spans=spans, longest=LONG))
    return replace(batch, v_pages=batch.k_pages)


def only(batch: Batch, token: int) -> Batch:
    return replace(
        batch,
        q=batch.q[[token]],
        page_table=batch.page_table[[token]],
        token_seq=batch.token_seq[[0]],
        token_pos=batch.token_pos[[token]],
    )


@pytest.mark.parametrize("lengths", [(LONG, 3, 129), (257, 1, 64, 511)])
def test_results_do_not_depend_on_the_batch(lengths: tuple[int, ...]) -> None:
    """A tile has heads of several tokens in a batch, and of one token alone."""
    batch = batch_of(lengths)
    library = build(graph_of("nn.paged_attention", (*batch.args, 1, []), ATTRS, symbolic(batch)), "cuda:sm_80")
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        together = np.asarray(library["main"](*batch.args))
        alone = [np.asarray(library["main"](*only(batch, i).args)) for i in range(len(lengths))]
        assert len(driver.launches) == 2
        library.context.close()
    wanted = paged.attention(*batch.args, 1, [], **ATTRS, names=())
    np.testing.assert_allclose(together.astype(np.float64), wanted, rtol=4e-3, atol=4e-3)
    np.testing.assert_array_equal(np.concatenate(alone), together)


def test_two_queries_of_a_sequence_are_allowed() -> None:
    """That no two are is a hint."""
    spans = ((300, 2), (8, 3))
    batch = random_batch(sizes_of(**HALF, heads=6, kv_heads=1, key=96, spans=spans))
    batch = replace(batch, v_pages=batch.k_pages)
    library = build(graph_of("nn.paged_attention", (*batch.args, 1, []), ATTRS, symbolic(batch)), "cuda:sm_80")
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        got = np.asarray(library["main"](*batch.args))
        library.context.close()
    wanted = paged.attention(*batch.args, 1, [], **ATTRS, names=())
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=4e-3, atol=4e-3)
