"""Answers with a checkpoint's head for multi-token prediction, against those without it and guesses of torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlc_cli.generate import generate
from mlc_errors import UnsupportedError, UsageError
from mlc_runtime import LLM
from mlc_runtime.draft_heads import head_proposer
from mlc_runtime.hidden_states import HiddenSessions
from mlc_toolchain import preparation
from mlc_toolchain.prepare import prepared_model
from mlc_toolchain.prepare_plan import PrepareOptions, plan_preparation
from model_zoo import registry
from tests.model_zoo.draft_heads import write_source
from tests.model_zoo.mtp_reference import Reference
from tests.model_zoo.test_drafting import PROMPT, SETTINGS

CPU = PrepareOptions(device="cpu")
PREPARING = replace(CPU, quantization="q0f32", overrides="prefill_chunk_size=16;max_batch_size=5")


def test_models_without_the_layer() -> None:
    with pytest.raises(
        UnsupportedError, match="llama models have no layer for multi-token prediction; expected one of"
    ):
        registry.resolve("mtp", "llama")
    assert registry.resolve("mtp", "mimo_mtp") == registry.resolve("mtp", "mimo") == "mimo_mtp"


def prepare(source: Path, kind: str) -> LLM:
    """The model of a checkpoint, or the head that is in it, by way of the cache."""
    options = replace(PREPARING, model_type=kind, draft_heads=kind == "auto")
    made = prepared_model(str(source), options)
    return LLM(made.folder, made.library, num_threads=2)


@dataclass(frozen=True)
class Opened:
    reference: Reference
    source: Path
    llm: LLM
    head: LLM


@pytest.fixture(scope="module", params=["glm4_moe", "qwen3_5_text", "mimo_v2_flash"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Of attention in all layers, of delta nets, whose states cannot be cut back to the guesses that are right, and
    with a head that takes states before the last norm, its own too.
    """
    folder = tmp_path_factory.mktemp(request.param)
    reference = Reference(request.param)
    source = write_source(*reference.checkpoint(folder), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLC_CACHE_DIR", str(folder / "cache"))
        with prepare(source, "auto") as llm, prepare(source, "mtp") as head:
            yield Opened(reference, source, llm, head)


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_without_the_head(opened: Opened, name: str) -> None:
    settings = {**SETTINGS[name], "max_tokens": 24, "ignore_eos": True, "top_logprobs": 1}
    plain = opened.llm.generate(PROMPT, **settings)
    drafted = opened.llm.generate(PROMPT, num_draft=3, draft=opened.head, **settings)
    assert (drafted.token_ids, drafted.logprobs) == (plain.token_ids, plain.logprobs)
    assert drafted.guessed > 20
    assert opened.head.model.pool.num_sequences == 0


def test_guesses_are_those_of_the_reference(opened: Opened) -> None:
    """Of a prompt in several calls, and of the model's hidden states and embeddings."""
    sessions = HiddenSessions(opened.llm.model)
    proposer = head_proposer(opened.head.compiled, sessions, opened.llm.sampling(temperature=0.0))
    for length in (len(PROMPT), 2):
        with sessions.lease([]) as session:
            session.extend(PROMPT[: length - 1])
            assert proposer.propose(PROMPT[:length], [0.0] * 3) == opened.reference.guesses(PROMPT[:length], 3)
    proposer.close()


def test_the_command_finds_the_head_of_the_checkpoint(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "prepare", lambda *_: pytest.fail("both are prepared"))
    same = ["--quantization", "q0f32", "--overrides", PREPARING.overrides, "--device", "cpu", "--draft", "mtp"]
    prompt = ["-p", "abc", "--raw", "--greedy", "--max-tokens", "9", "--json", "--threads", "2"]
    result = CliRunner().invoke(generate, [str(opened.source), *same, *prompt], catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["guessed"] >= 4
    assert answer["token_ids"] == list(opened.llm.generate("abc", max_tokens=9, temperature=0.0).token_ids)


def test_a_model_folder_without_its_head(tmp_path: Path) -> None:
    (tmp_path / "mlc-chat-config.json").touch()
    with pytest.raises(UsageError, match="has no draft head") as error:
        prepared_model(str(tmp_path), replace(CPU, model_type="mtp"))
    assert error.value.hint == f"convert_weight and gen_config write it, with --model-type mtp -o {tmp_path / 'mtp'}"
    (tmp_path / "mtp").mkdir()
    (tmp_path / "mtp" / "mlc-chat-config.json").touch()
    assert plan_preparation(str(tmp_path), replace(CPU, model_type="mtp")).folder == tmp_path / "mtp"
