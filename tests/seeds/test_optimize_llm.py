"""The tutorial that builds, optimizes and runs a TinyLlama: its code runs as printed, on the CPU, with a small
model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.compat import relax_pipeline
from tests.seeds import small_llama
from tests.seeds.notebook import Ran, run

CPU = {'tvm.device("cuda", 0)': "tvm.cpu()"}
SMALL = {
    f"    {name}: int = {size}": f"    {name}: int = {small_llama.SIZES[name]}"
    for name, size in {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_attention_heads": 32,
        "num_hidden_layers": 22,
        "vocab_size": 32000,
        "num_key_value_heads": 4,
        "head_dim": 64,
    }.items()
}


@dataclass(frozen=True)
class Reference:
    """Results of transformers: the logits after the prompt, and the tokens that follow it."""

    logits: np.ndarray
    tokens: list[int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small_llama")


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    logits, tokens = small_llama.greedy(small_llama.save(folder))
    (folder / "eos.txt").write_text(str(tokens[-1]))
    return Reference(logits.numpy(), tokens)


@pytest.fixture(scope="module")
def ran(folder: Path, reference: Reference) -> Iterator[Ran]:
    path = {"HF_WEIGHT_PATH = None": f"HF_WEIGHT_PATH = Path({str(folder)!r})"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI", "")
        patch.setattr(relax_pipeline, "_PIPELINES", dict(relax_pipeline._PIPELINES))
        yield run("optimize_llm", replaced=CPU | SMALL | path)


def test_every_cell_runs(ran: Ran):
    assert ran.counts() == {"run": 14}


def test_the_full_model_exports_as_shown():
    ran = run("optimize_llm", replaced=CPU, up_to="export")
    printed = ran.output["export"]
    assert ran.shown("parameters shown") in printed
    shown = re.sub(r"_weight1:", "_weight:", ran.shown("weights shown")).splitlines()
    lines = [line for line in printed.splitlines() if "= packed_params[" in line]
    assert len(lines) >= 5 and lines == shown[: len(lines)]


def test_logits_after_the_prompt(ran: Ran, reference: Reference):
    logits = ran.after["prefill"]["prefill_logits"]
    assert logits.shape == (1, 1, small_llama.SIZES["vocab_size"])
    np.testing.assert_allclose(logits, reference.logits, rtol=0.02, atol=0.02 * np.abs(reference.logits).max())


def test_tokens_are_those_of_transformers(ran: Ran, reference: Reference):
    assert ran.after["decode"]["output_tokens"] == reference.tokens
    assert ran.output["decode"] == "The generated token:\n" + " ".join(map(str, reference.tokens)) + "\n"


def test_the_cache_is_returned_itself(ran: Ran):
    cache = ran.after["create the cache"]["kv_cache"]
    assert ran.after["decode"]["kv_cache"] is cache
    assert [page for page in cache.arrays[2][0] if page >= 0] != []
