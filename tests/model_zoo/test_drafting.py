"""Speculative decoding with draft heads: answers do not depend on the head; correct guesses are accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

from mlc_cli.generate import generate
from mlc_errors import UsageError
from mlc_runtime import LLM
from mlc_runtime.draft_heads import LayerHead, head_proposer
from mlc_runtime.hidden_states import HiddenSessions
from mlc_toolchain.compile import CompileOptions, compile_model
from model_zoo import registry
from tests.model_zoo.architecture_cases import COMMON, LLAMA_LIKE, VOCAB
from tests.model_zoo.draft_heads import SIZE, made, write_source
from tests.runtime.fake_library import FakeLibrary, metadata, write_folder

RNG = np.random.default_rng(2)
PROMPT = RNG.integers(3, VOCAB, 21).tolist()
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_k": 40, "seed": 3},
    "penalized": {"temperature": 0.0, "presence_penalty": 0.4, "repetition_penalty": 1.1},
}
HEADS = 3
Tensors = dict[str, torch.Tensor]


def random_llama() -> transformers.LlamaForCausalLM:
    torch.manual_seed(6)
    options = {**COMMON, **LLAMA_LIKE, "tie_word_embeddings": False, "num_hidden_layers": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (parameter.ndim == 1))
    return model


def counting_llama() -> transformers.LlamaForCausalLM:
    """A Llama that predicts t + 1 after token t: hidden states are the token's own embedding, normalized."""
    model = random_llama()
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight.copy_(counted(model, 1))
    return model


def counted(model: transformers.LlamaForCausalLM, steps: int) -> torch.Tensor:
    """An output head that predicts the token ``steps`` after that of a hidden state."""
    table = model.model.embed_tokens.weight
    return torch.roll(table / table.square().mean(dim=1, keepdim=True).sqrt(), steps, dims=0).detach()


def eagle_tensors(model: transformers.LlamaForCausalLM, fuse: torch.Tensor) -> Tensors:
    """An EAGLE head of the model's own layer, applied to ``fuse`` [D, 2 D] times embeddings and hidden states."""
    state = {name.removeprefix("model."): t for name, t in model.model.state_dict().items()}
    kept = {name: t for name, t in state.items() if name != "norm.weight" and "input_layernorm" not in name}
    return {**kept, "fc.weight": fuse, "fc.bias": torch.zeros(SIZE)}


def medusa_tensors(heads: list[torch.Tensor]) -> Tensors:
    return {f"{i}.0.linear.weight": torch.zeros(SIZE, SIZE) for i in range(HEADS)} | {
        **{f"{i}.0.linear.bias": torch.zeros(SIZE) for i in range(HEADS)},
        **{f"{i}.1.weight": head for i, head in enumerate(heads)},
    }


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that opens a model with these tensors; models of one kind share a library."""
    libraries: dict[str, Path] = {}
    models: list[LLM] = []
    configs: Mapping[str, Mapping[str, Any]] = {
        "llama": {**random_llama().config.to_dict(), "eos_token_id": None},
        "medusa": {"hidden_size": SIZE, "vocab_size": VOCAB, "medusa_num_heads": HEADS, "medusa_num_layers": 1},
    }

    def open_model(kind: str, tensors: Tensors) -> LLM:
        folder = made(configs.get(kind, configs["llama"]), tensors, kind, tmp_path_factory.mktemp(kind))
        if kind not in libraries:
            options = CompileOptions(folder, folder / "lib.so", device="cpu", draft_heads=kind == "llama")
            compile_model(options)
            libraries[kind] = folder / "lib.so"
        models.append(LLM(folder, libraries[kind], num_threads=2))
        return models[-1]

    yield open_model
    for model in models:
        model.close()


@pytest.fixture(scope="module")
def llm(opened: Any) -> LLM:
    return opened("llama", random_llama().state_dict())


@pytest.fixture(scope="module")
def eagle(opened: Any) -> LLM:
    return opened("eagle", eagle_tensors(random_llama(), torch.randn(SIZE, 2 * SIZE) * 0.2))


@pytest.fixture(scope="module")
def medusa(opened: Any) -> LLM:
    return opened("medusa", medusa_tensors([torch.randn(VOCAB, SIZE) for _ in range(HEADS)]))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_answers_are_those_without_a_head(llm: LLM, kind: str, name: str, request: pytest.FixtureRequest) -> None:
    head, settings = request.getfixturevalue(kind), {**SETTINGS[name], "max_tokens": 30, "ignore_eos": True}
    plain = llm.generate(PROMPT, top_logprobs=1, **settings)
    drafted = llm.generate(PROMPT, top_logprobs=1, num_draft=3, draft=head, **settings)
    assert (drafted.token_ids, drafted.logprobs) == (plain.token_ids, plain.logprobs)
    assert drafted.guessed > 20
    assert llm.model.pool.num_sequences <= 1 and (kind == "medusa" or head.model.pool.num_sequences == 0)


def test_a_context_that_is_cut(llm: LLM, eagle: LLM) -> None:
    plain, drafted = (
        llm.generate(PROMPT, max_tokens=70, temperature=0.0, ignore_eos=True, overflow="sinks", **guess)
        for guess in ({}, {"num_draft": 2, "draft": eagle})
    )
    assert drafted.token_ids == plain.token_ids and drafted.forgotten == plain.forgotten > 0


def test_guesses_follow_from_the_text_alone(llm: LLM, eagle: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was guessed and cut off before: those of a head that reads the whole text at once."""
    made_of: list[tuple[list[int], list[int]]] = []
    propose = LayerHead.propose

    def recorded(self: LayerHead, ids: list[int], uniforms: list[float]) -> list[int]:
        made_of.append((list(ids), propose(self, ids, uniforms)))
        return made_of[-1][1]

    monkeypatch.setattr(LayerHead, "propose", recorded)
    llm.generate(PROMPT, max_tokens=12, temperature=0.0, ignore_eos=True, num_draft=3, draft=eagle)
    monkeypatch.undo()
    sessions = HiddenSessions(llm.model)
    assert len(made_of) > 4
    for ids, guesses in made_of:
        with sessions.lease([]) as session:
            session.extend(ids[:-1])
            proposer = head_proposer(eagle.compiled, sessions, llm.sampling(temperature=0.0))
            assert proposer.propose(ids, [0.0] * len(guesses)) == guesses
            proposer.close()


def test_a_head_with_the_layer_of_the_model_is_accepted(opened: Any) -> None:
    """Its hidden states are the model's but for their length, and but for the text's first token, which it lacks."""
    model = random_llama()
    with torch.no_grad():
        table = model.model.embed_tokens.weight
        table.copy_(table / table.square().mean(dim=1, keepdim=True).sqrt())
        model.model.layers[0].input_layernorm.weight.fill_(1.0)
        model.model.layers[0].self_attn.o_proj.weight.mul_(0.5)
        model.model.norm.weight.fill_(1.0)
    llm = opened("llama", model.state_dict())
    head = opened("eagle", eagle_tensors(model, torch.eye(SIZE, 2 * SIZE)))
    result = llm.generate(PROMPT, max_tokens=30, temperature=0.0, ignore_eos=True, num_draft=4, draft=head)
    assert result.token_ids == llm.generate(PROMPT, max_tokens=30, temperature=0.0, ignore_eos=True).token_ids
    assert result.accepted == result.guessed >= 20


def test_heads_that_count_are_accepted(opened: Any) -> None:
    model = counting_llama()
    llm = opened("llama", model.state_dict())
    heads = opened("medusa", medusa_tensors([counted(model, 2 + i) for i in range(HEADS)]))
    result = llm.generate([*PROMPT, 17], max_tokens=30, temperature=0.0, ignore_eos=True, num_draft=4, draft=heads)
    assert list(result.token_ids) == list(range(18, 48))
    assert result.accepted == result.guessed >= 20


def test_the_command_compiles_a_checkpoint_for_the_head(
    llm: LLM, eagle: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path / "cache"))
    model = random_llama()
    source = write_source({**model.config.to_dict(), "eos_token_id": None}, model.state_dict(), tmp_path)
    given = [str(source), "--quantization", "q0f32", "--overrides", "prefill_chunk_size=16;max_batch_size=5"]
    prompt = ["-p", "abc", "--raw", "--greedy", "--max-tokens", "9", "--num-draft", "3", "--json", "--threads", "2"]
    result = CliRunner().invoke(generate, [*given, "--draft", str(eagle.folder), *prompt], catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["guessed"] >= 4
    assert answer["token_ids"] == list(llm.generate("abc", max_tokens=9, temperature=0.0).token_ids)


def test_heads_that_are_refused(llm: LLM, medusa: LLM, tmp_path: Path) -> None:
    without = LLM(write_folder(tmp_path), FakeLibrary(metadata(258, batch=6)))
    with pytest.raises(UsageError, match="the model's library has no function batch_decode_to_last_hidden_states"):
        without.generate([1, 2], num_draft=2, draft=medusa)
    with pytest.raises(UsageError, match="a draft head is given for a prompt with images"):
        llm.stream([5, -1], num_draft=2, draft=medusa)
    spec = medusa.compiled.spec
    try:
        medusa.compiled.spec = replace(spec, vocab_size=7)
        with pytest.raises(UsageError, match="for 7 tokens and hidden states of 60 elements; the model has 261 and 60"):
            llm.generate([1, 2], num_draft=2, draft=medusa)
    finally:
        medusa.compiled.spec = spec


def test_models_that_take_no_heads() -> None:
    with pytest.raises(UsageError, match="t5 models take no draft heads; expected a decoder"):
        registry.export_model(registry.get("t5").tiny, draft_heads=True)
