"""Text embeddings, from a checkpoint with sentence-transformers' files to the command line, against torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from mlc_errors import MLCError
from mlc_runtime import LLM
from tests.e2e.building import run_command
from tests.model_zoo.architecture_cases import CONTEXT
from tests.model_zoo.compiled import BATCH, random_model, save
from tests.model_zoo.encoder_cases import CASES
from tests.runtime.fake_library import byte_tokenizer
from tests.toolchain.sentence_files import write_modules

TEXTS = ["one", "a text that is longer", "x", "and four of them in two calls, or three"]
RNG = np.random.default_rng(8)
HEADS = [RNG.normal(0, 0.3, shape).astype(np.float32) for shape in ((36, 60), (20, 36))]
PROMPTS = {"query": "ask: ", "document": ""}
GEMMA = next(case for case in CASES if case.name == "embeddinggemma")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    """The folder of a compiled model, and the opened model."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "compiled"))
    model = random_model(GEMMA)
    save(GEMMA, model, source)
    prompts = {"prompts": PROMPTS, "default_prompt_name": None}
    write_modules(source, "mean_tokens", [{"linear.weight": head} for head in HEADS], prompts=prompts)
    run_command("convert_weight", source, "--quantization", "q0f32", "-o", folder)
    run_command("gen_config", source, "--quantization", "q0f32", "--max-batch-size", BATCH, "-o", folder)
    run_command("compile", folder, "--device", "cpu", "-o", folder / "lib.so")
    return folder, model


def expected(model: PreTrainedModel, texts: list[str]) -> np.ndarray:
    rows = []
    for text in texts:
        with torch.no_grad():
            hidden = model(torch.tensor([byte_tokenizer().encode(text).ids])).last_hidden_state[0].numpy()
        vector = HEADS[1] @ (HEADS[0] @ hidden.mean(0))
        rows.append(vector / np.linalg.norm(vector))
    return np.stack(rows)


def test_pooling_dense_heads_and_prompts(embedder: tuple[Path, PreTrainedModel]) -> None:
    folder, model = embedder
    config = json.loads((folder / "mlc-chat-config.json").read_text())
    assert (config["model_task"], config["embedding_metadata"]) == (
        "embedding",
        {"model_type": "encoder", "pooling_strategy": "mean", "normalize": True, "prompts": PROMPTS},
    )
    with LLM(folder, num_threads=2) as llm:
        np.testing.assert_allclose(llm.embed(TEXTS), expected(model, TEXTS), atol=1e-5)
        asked = expected(model, [f"ask: {text}" for text in TEXTS])
        np.testing.assert_allclose(llm.embed(TEXTS, prompt_name="query"), asked, atol=1e-5)
        with pytest.raises(MLCError, match=f"the context is full: 65 tokens; expected at most {CONTEXT}"):
            llm.hidden_states([5] * 65)


def test_the_command(embedder: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, model = embedder
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    run_command("embed", folder, "--file", tmp_path / "texts.txt", "-o", tmp_path / "vectors.npy", "--threads", 1)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected(model, TEXTS), atol=1e-5)


def test_an_encoder_does_not_answer(embedder: tuple[Path, PreTrainedModel], capsys: pytest.CaptureFixture[str]) -> None:
    from mlc_cli.__main__ import main

    assert main(["generate", str(embedder[0]), "--prompt", "hey"]) == 1
    shown = capsys.readouterr().err
    assert "the library's model is for the task 'embedding'; expected 'chat'" in shown
    assert "python -m mlc_cli embed" in shown
