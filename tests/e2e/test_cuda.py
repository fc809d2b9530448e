"""A model for GPUs, from checkpoint to tokens, on a simulated driver and simulated kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.sim.driver import SimulatedDriver
from mlc_runtime import LLM
from mlc_runtime.library import Library
from tests.e2e.building import SharedFolders, run_command
from tests.e2e.checkpoints import VOCAB

IDS = np.random.default_rng(3).integers(0, VOCAB, 12).tolist()
NAME, SCHEME = "llama-odd-llama3", "q4f16_1"


@pytest.fixture
def library(shared: SharedFolders, tiny_folder: Callable[[str, str], Path]) -> Library:
    folder = tiny_folder(NAME, SCHEME)
    made = shared.get("cuda", lambda f: run_command("compile", folder, "--device", "cuda:sm_80", "-o", f / "lib.so"))
    return Library(made / "lib.so")


def test_tokens_are_those_of_the_cpu(library: Library, tiny_folder: Callable[[str, str], Path]):
    folder = tiny_folder(NAME, SCHEME)
    with LLM(folder) as cpu:
        logits = cpu.logits(IDS)
        alone = cpu.generate(IDS[:5], max_tokens=4, temperature=0).token_ids
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        with LLM(folder, library) as gpu:
            np.testing.assert_allclose(gpu.logits(IDS), logits, rtol=0, atol=5e-3 * np.abs(logits).max())
            assert gpu.generate(IDS[:5], max_tokens=4, temperature=0).token_ids == alone
            assert driver.calls["cuGraphLaunch"] > 3  # embed, decode and sample, after their first calls
        assert (driver.objects, driver.allocations, driver.fault) == ({}, {}, None)
