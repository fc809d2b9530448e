"""Architectures other than decoders with one KV cache, compiled and compared with numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.driver import build_library
from mlc_compiler.target import Target
from mlc_errors import MLCError, UsageError
from mlc_runtime import LLM, Library
from mlc_runtime.model import CompiledModel
from mlc_runtime.weights import TensorCache
from mlc_toolchain.library_metadata import model_metadata
from model_zoo.architecture import Architecture
from model_zoo.registry import export
from tests.e2e import toy_caches
from tests.e2e.toy_models import ENCODER, RECURRENCE, VOCAB, encode, recurrence_logits
from tests.runtime.fake_library import byte_tokenizer, write_weights

Weights = dict[str, np.ndarray]
IDS = np.random.default_rng(4).integers(0, VOCAB, 60).tolist()


def build(architecture: Architecture, folder: Path) -> Weights:
    """Write a model folder with random weights; returns them by name."""
    exported = export(architecture, architecture.tiny)
    build_library(
        exported.mod,
        Target("cpu"),
        folder / "lib.so",
        metadata=lambda mod: model_metadata(exported, "q0f32", mod),
    )
    rng = np.random.default_rng(3)
    weights = {p.name: rng.normal(0, 0.4, p.shape).astype(np.float32) for p in exported.params}
    write_weights(folder, {name: (array, "raw") for name, array in weights.items()})
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "mlc-chat-config.json").write_text(json.dumps({"temperature": 0.0}))
    return weights


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Weights]:
    folder = tmp_path_factory.mktemp("encoder")
    return folder, build(ENCODER, folder)


@pytest.fixture(scope="module")
def recurrence(tmp_path_factory: pytest.TempPathFactory) -> tuple[LLM, Weights]:
    folder = tmp_path_factory.mktemp("recurrence")
    weights = build(RECURRENCE, folder)
    return LLM(folder, num_threads=2), weights


def test_hidden_states_of_an_encoder(encoder: tuple[Path, Weights]) -> None:
    folder, weights = encoder
    model = CompiledModel(Library(folder / "lib.so"), TensorCache(folder), num_threads=2)
    assert (model.spec.task, model.spec.states) == ("embedding", ())
    texts = np.array([IDS[:9], IDS[9:18]], np.int32)
    (hidden,) = model.call("encode", {"input_ids": texts})
    np.testing.assert_allclose(hidden, [encode(weights, ids) for ids in texts], atol=1e-5)
    assert model.library.metadata["kv_state_kind"] == "none"


def test_an_encoder_does_not_chat(encoder: tuple[Path, Weights]) -> None:
    with LLM(encoder[0]) as llm, pytest.raises(MLCError, match="the task 'embedding'; expected 'chat'"):
        llm.generate([1, 2])


def test_logits_of_a_recurrence(recurrence: tuple[LLM, Weights]) -> None:
    llm, weights = recurrence
    assert llm.library.metadata["kv_state_kind"] == "rnn_state"
    np.testing.assert_allclose(llm.logits(IDS), recurrence_logits(weights, IDS), atol=1e-4)


def test_sessions_of_a_recurrence(recurrence: tuple[LLM, Weights]) -> None:
    llm, weights = recurrence
    expected = recurrence_logits(weights, IDS)
    session = llm.new_session()
    np.testing.assert_allclose(session.prefill(IDS[:11]), expected[10], atol=1e-4)
    fork = session.fork()
    for position in range(11, 20):
        np.testing.assert_allclose(session.decode_step(IDS[position]), expected[position], atol=1e-4)
    np.testing.assert_allclose(fork.prefill(IDS[11:30]), expected[29], atol=1e-4)
    assert session.prefill_to([*IDS[:20], 5]) == 1  # continues
    assert session.prefill_to(IDS[:15]) == 15  # cannot go back


def test_answers_of_a_recurrence(recurrence: tuple[LLM, Weights]) -> None:
    """Single answers, a batch that is not full, and interleaved streams are equal."""
    llm, weights = recurrence
    prompts = [IDS[:13], IDS[20:22], IDS[30:53]]
    alone = [llm.generate(p, max_tokens=10).token_ids for p in prompts]
    for prompt, answer in zip(prompts, alone, strict=True):
        likely = recurrence_logits(weights, [*prompt, *answer]).argmax(-1)
        assert tuple(likely[len(prompt) - 1 : -1]) == answer
    assert [r.token_ids for r in llm.generate(prompts, max_tokens=10)] == alone
    streams = [llm.stream(p, llm.sampling(max_tokens=10)) for p in prompts]
    pieces = [iter(stream) for stream in streams]
    for _ in range(11):
        for piece in pieces:
            next(piece, None)
    assert [stream.result.token_ids for stream in streams] == alone
    assert [r.token_ids for r in llm.generate(prompts[0], n=2, max_tokens=10)] == [alone[0]] * 2
    with pytest.raises(UsageError, match="the draft model .* has a state that cannot be cut back"):
        llm.generate(prompts[0], num_draft=1, draft=llm)


@pytest.mark.parametrize("right", range(4))
def test_guesses_for_a_recurrence(recurrence: tuple[LLM, Weights], right: int) -> None:
    """Wrong ones leave no trace in its state: tokens that follow have the logits that they have without."""
    llm, weights = recurrence
    sampling = llm.sampling(temperature=0.0)
    text = list(IDS[:13])
    for _ in range(5):
        text.append(int(recurrence_logits(weights, text)[-1].argmax()))
    guesses = [text[14 + i] if i < right else (text[14 + i] + 1) % VOCAB for i in range(3)]
    session = llm.new_session()
    session.extend(text[:13])
    drawn = session.verify([text[13], *guesses], sampling, [], [0.0] * 4)
    assert [d.token for d in drawn] == text[14 : 15 + right]
    assert session.token_ids == text[: 14 + right]
    expected = recurrence_logits(weights, text)
    for position in range(14 + right, len(text)):
        np.testing.assert_allclose(session.decode_step(text[position]), expected[position], atol=1e-4)
    before = llm.model.pool.num_sequences
    session.close()
    assert llm.model.pool.num_sequences == before - 2


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> tuple[LLM, Weights]:
    folder = tmp_path_factory.mktemp("caches")
    weights = build(toy_caches.ARCHITECTURE, folder)
    return LLM(folder, num_threads=2), weights


def test_groups_of_layers_with_caches_of_their_own(caches: tuple[LLM, Weights]) -> None:
    """A sequence longer than window and rollback: pages of the windowed group are freed, others are kept."""
    llm, weights = caches
    ids = np.random.default_rng(5).integers(0, VOCAB, 500).tolist()
    expected = toy_caches.logits(weights, ids)
    kinds = [(s["kind"], s["prefix"], s["sliding_window_size"]) for s in llm.library.metadata["states"]]
    assert kinds == [("paged_kv", "", -1), ("paged_kv", "local_", 20), ("latent_kv", "latent_", -1)]
    np.testing.assert_allclose(llm.logits(ids), expected, atol=1e-4)
    session = llm.new_session()
    np.testing.assert_allclose(session.prefill(ids[:290]), expected[289], atol=1e-4)
    for position in range(290, 450):
        np.testing.assert_allclose(session.decode_step(ids[position]), expected[position], atol=1e-4)
    session.truncate(449 - 200)
    np.testing.assert_allclose(session.prefill(ids[249:470]), expected[469], atol=1e-4)
    with pytest.raises(
        MLCError, match="cannot cut the sequence of 470 tokens to 60: its state of fewer tokens is gone"
    ) as e:
        session.truncate(60)
    assert list(e.value.where) == ["the state of local_k_pages, local_v_pages, local_page_table"]
