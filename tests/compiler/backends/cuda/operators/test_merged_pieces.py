"""Decode attention on a GPU: the last thread block of a token merges the partial results of its context (split-K)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends.cuda import images
from mlc_compiler.backends.cuda.launches import LAUNCH
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.expr import Call
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_runtime.library import Library
from tests.compiler.backends.cuda.as_loops import build_as_loops
from tests.compiler.backends.cuda.operators.attention import SINKS, sizes_of, symbolic
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.relax.paged import Batch, random_batch

TARGET = "cuda:sm_80"
FENCE = "fence.acq_rel.gpu;"
LONG = 700  # positions: several pieces
ATTRS: dict[str, Any] = {"heads": 6, "scale": 0.3, "names": ("sinks",), "single_query": True}


def batch_of(lengths: tuple[int, ...]) -> Batch:
    """One query at the end of each context."""
    return random_batch(sizes_of(spans=tuple((length - 1, 1) for length in lengths), longest=LONG))


def arguments(batch: Batch) -> list[np.ndarray]:
    return [*batch.args, SINKS["sinks"]]


def graph(batch: Batch) -> IRModule:
    return graph_of("nn.paged_attention", (*batch.args, 1, [SINKS["sinks"]]), ATTRS, symbolic(batch))


def only(batch: Batch, token: int) -> Batch:
    """The batch reduced to one token and its context."""
    return replace(
        batch,
        q=batch.q[[token]],
        page_table=batch.page_table[[token]],
        token_seq=batch.token_seq[[0]],
        token_pos=batch.token_pos[[token]],
    )


def test_one_kernel_with_counters_in_zeroed_memory() -> None:
    mod = run_passes(graph(batch_of((LONG, 3))), (*entries(), *pipeline(Target(TARGET))))
    assert sum(isinstance(n, Call) and n.op == LAUNCH for f in mod.of_type(PrimFunc).values() for n in walk(f)) == 1
    assert mod["main"].attrs["zeroed_bytes"] == -(-3 * 108 * 4 // 64) * 64  # a counter for each block of an A100


@pytest.mark.parametrize("lengths", [(LONG, 3, 129), (257, 1, 64, 511, LONG)])
def test_results_do_not_depend_on_the_blocks_of_a_token(lengths: tuple[int, ...]) -> None:
    """Alone, a token has more blocks than in a batch. Calls are repeated: launched, recorded, replayed."""
    batch = batch_of(lengths)
    library = build(graph(batch), TARGET)
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        together = [np.asarray(library["main"](*arguments(batch))) for _ in range(3)]
        alone = [np.asarray(library["main"](*arguments(only(batch, i)))) for i in range(len(lengths))]
        again = np.asarray(library["main"](*arguments(batch)))
        library.context.close()
    wanted = paged.attention(*batch.args, 1, [SINKS["sinks"]], **ATTRS)
    np.testing.assert_allclose(together[0], wanted, rtol=5e-6, atol=5e-6)
    for result in (*together[1:], np.concatenate(alone), again):
        np.testing.assert_array_equal(result, together[0])


@pytest.mark.parametrize("number", [0, 1], ids=["release", "acquire"])
def test_a_missing_fence_is_a_race(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(modules: Iterable[str], target: Target) -> list[str]:
        parts = [text.split(FENCE) for text in assemble_modules(modules, target)]
        assert [len(part) for part in parts] == [3]
        return [FENCE.join(p[:1] + [p[1] + p[2]] if number else [p[0] + p[1], p[2]]) for p in parts]

    monkeypatch.setattr(images, "assemble_modules", without)
    batch = batch_of((LONG, 3, 129))
    library = build(graph(batch), TARGET)
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        with pytest.raises(RuntimeError):
            library["main"](*arguments(batch))
        assert driver.fault is not None
        assert "data race" in driver.fault.message
        with pytest.raises(RuntimeError):  # repeats the fault
            library.context.close()


@pytest.mark.parametrize("descending", [False, True])
def test_as_loops(descending: bool, tmp_path: Path) -> None:
    batch = batch_of((LONG, 5, 64))
    build_as_loops(run_passes(graph(batch), entries()), Target(TARGET), {descending: tmp_path / "lib.so"})
    result = np.asarray(Library(tmp_path / "lib.so")["main"](*arguments(batch)))
    wanted = paged.attention(*batch.args, 1, [SINKS["sinks"]], **ATTRS)
    np.testing.assert_allclose(result, wanted, rtol=5e-6, atol=5e-6)
