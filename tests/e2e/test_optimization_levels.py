"""--opt: every level gives the model's logits; levels differ in how they are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlc_runtime import LLM
from mlc_runtime.metadata import read_metadata
from tests.e2e import oracle
from tests.e2e.building import run_command
from tests.e2e.checkpoints import CONTEXT, VOCAB, configs

NAME, SCHEME = "llama-bias-tied", "q4f32_1"
IDS = np.random.default_rng(4).integers(0, VOCAB, CONTEXT).tolist()
EXACT, SIXTEEN_BITS, EIGHT_BITS = 3e-5, 1e-3, 0.1
"""Bounds of the logits' errors, by the activations of products: in float32, 16 bits or 8 bits."""


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str, str], Path]) -> Path:
    return tiny_folder(NAME, SCHEME)


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    return oracle.logits(oracle.from_folder(configs()[NAME], folder), IDS)


def error_with(folder: Path, library: Path, opt: str, expected: np.ndarray) -> float:
    """The largest error of a logit with a library compiled with ``--opt opt``."""
    run_command("compile", folder, "--device", "cpu", "--opt", opt, "-o", library)
    with LLM(folder, library, num_threads=2) as llm:
        return float(np.abs(llm.logits(IDS) - expected).max())


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_lower_levels_multiply_in_float32(level: str, folder: Path, expected: np.ndarray, tmp_path: Path):
    assert error_with(folder, tmp_path / "lib.so", level, expected) < EXACT


def test_width_of_the_activations(folder: Path, expected: np.ndarray, tmp_path: Path):
    sixteen = error_with(folder, tmp_path / "16.so", "act=16", expected)
    eight = error_with(folder, tmp_path / "8.so", "O3", expected)
    assert read_metadata(tmp_path / "8.so")["opt"] == "fusion=1;schedules=1;act=8"
    assert EXACT < sixteen < SIXTEEN_BITS < eight < EIGHT_BITS


def test_metadata_says_the_options(folder: Path, tmp_path: Path):
    run_command("compile", folder, "--device", "cpu", "--opt", "O1;fusion=0", "-o", tmp_path / "lib.so")
    assert read_metadata(tmp_path / "lib.so")["opt"] == "fusion=0;schedules=0;act=exact"
    assert read_metadata(folder / "lib.so")["opt"] == "fusion=1;schedules=1;act=16"
