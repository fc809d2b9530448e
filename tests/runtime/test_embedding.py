"""Text embeddings with a model whose hidden states are a token's id and the sum of the ids so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_errors import MLCError, UsageError
from mlc_runtime import LLM
from mlc_runtime.embedding_settings import EmbeddingSettings
from tests.runtime.fake_library import HIDDEN_STATES, FakeLibrary, metadata, write_folder

VOCAB = 258
TEXTS = ["a", "some text of 25 characters", "two", "three", "and", "six"]  # more than a batch, one of several chunks


def open_llm(folder: Path, **embedding: Any) -> LLM:
    return LLM(write_folder(folder, embedding_metadata=embedding or None), FakeLibrary(metadata(VOCAB)), num_threads=1)


def expected(llm: LLM, texts: list[str], pooling: str) -> np.ndarray:
    """The first two elements of each vector."""
    pooled = []
    for text in texts:
        ids = np.array(llm.tokenizer.encode(text))
        states = np.stack([ids, ids.cumsum()], axis=1)
        pooled.append({"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling])
    return np.array(pooled, np.float32)


def test_hidden_states_of_a_decoder(tmp_path: Path) -> None:
    llm = open_llm(tmp_path)
    ids = list(range(3, 30))  # four chunks
    hidden = llm.hidden_states(ids)
    assert (hidden.shape, hidden.dtype) == ((27, 8), np.float32)
    assert hidden[:, 0].tolist() == ids and hidden[:, 1].tolist() == np.cumsum(ids).tolist()
    assert llm.model.pool.num_sequences == 0


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_pooling(tmp_path: Path, pooling: str) -> None:
    llm = open_llm(tmp_path)
    got = llm.embed(TEXTS, pooling=pooling, normalize=False)
    assert got.shape == (6, 8) and not got[:, 2:].any()
    np.testing.assert_allclose(got[:, :2], expected(llm, TEXTS, pooling), rtol=1e-6)
    one = llm.embed("two", pooling=pooling)
    assert one.shape == (8,)
    np.testing.assert_allclose(one, got[2] / np.linalg.norm(got[2]), rtol=1e-6)


def test_settings_of_the_folder_and_prompts(tmp_path: Path) -> None:
    prompts = {"query": "Q: ", "document": "D: "}
    llm = open_llm(tmp_path, pooling_strategy="last", normalize=False, prompts=prompts, default_prompt_name="document")

    def vectors(*texts: str) -> list[list[float]]:
        return expected(llm, list(texts), "last").tolist()

    assert llm.embed(["x"])[:, :2].tolist() == vectors("D: x")
    assert llm.embed(["x"], prompt_name="query")[:, :2].tolist() == vectors("Q: x")
    assert llm.embed(["x"], prompt="")[:, :2].tolist() == vectors("x")
    with pytest.raises(UsageError, match="the model has no prompt 'title'; its prompts: query, document"):
        llm.embed(["x"], prompt_name="title")
    with pytest.raises(UsageError, match="exclude each other"):
        llm.embed(["x"], prompt="a", prompt_name="query")


def test_long_texts_are_cut_on_request_only(tmp_path: Path) -> None:
    llm = open_llm(tmp_path, pooling_strategy="last", normalize=False, max_seq_length=5)
    with pytest.raises(UsageError, match="text 1 has 9 tokens; expected at most 5"):
        llm.embed(["short", "far longer"[:9]])
    got = llm.embed(["short", "far longer"], truncate=True)
    assert got[:, :2].tolist() == expected(llm, ["short", "far l"], "last").tolist()
    assert len(llm.tokenizer.encode("far longer")) == 10


def test_what_cannot_be_embedded(tmp_path: Path) -> None:
    llm = open_llm(tmp_path)
    with pytest.raises(UsageError, match="do not say how its hidden states become one vector") as error:
        llm.embed(["x"])
    assert error.value.hint == "choose a pooling (--pooling): mean, cls, last"
    with pytest.raises(UsageError, match="pooling is 'max'; expected one of mean, cls, last"):
        llm.embed(["x"], pooling="max")
    with pytest.raises(UsageError, match="text 1 is empty"):
        llm.embed(["x", ""], pooling="mean")
    with pytest.raises(MLCError, match="embedding_metadata is malformed"):
        EmbeddingSettings.from_metadata({"prompts": {"query": 3}})


def test_a_library_without_the_function_says_so(tmp_path: Path) -> None:
    facts = metadata(VOCAB)
    del facts["functions"][HIDDEN_STATES]
    llm = LLM(write_folder(tmp_path), FakeLibrary(facts), num_threads=1)
    with pytest.raises(MLCError, match=f"no function {HIDDEN_STATES}"):
        llm.hidden_states([1])
