"""A model compiled for AArch64 and run in emulation gives the logits of this machine's library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from mlc_runtime import LLM
from tests.compiler.backends.cpu.emulated import EmulatedLibrary
from tests.e2e.building import run_command
from tests.e2e.checkpoints import VOCAB

IDS = np.random.default_rng(4).integers(0, VOCAB, 30).tolist()


def test_a_model_with_4_bit_weights(tiny_folder: Callable[[str, str], Path], tmp_path: Path):
    """Prefill logits are equal, and greedy decoding takes the largest logits."""
    folder = tiny_folder("llama-bias-tied", "q4f16_1")
    target = ("--device", "cpu:neoverse-n1", "--host", "aarch64-linux-gnu", "--opt", "act=16")
    run_command("compile", folder, *target, "-o", tmp_path / "lib.so")
    emulated = LLM(folder, EmulatedLibrary(tmp_path / "lib.so"), num_threads=1)
    expected = LLM(folder).logits(IDS)
    np.testing.assert_allclose(emulated.logits(IDS), expected, rtol=0, atol=1e-3 * np.abs(expected).max())
    tokens = emulated.generate(IDS[:5], max_tokens=6, temperature=0.0).token_ids
    assert emulated.logits([*IDS[:5], *tokens])[4:-1].argmax(axis=1).tolist() == list(tokens)
