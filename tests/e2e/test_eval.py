"""`eval` on tiny models: perplexity and divergence against transformers, multiple choice, requests of lm-eval."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlc_cli.__main__ import main
from mlc_errors import MLCError
from mlc_evaluation.harness import harness_model
from mlc_runtime import LLM
from tests.e2e import oracle
from tests.e2e.checkpoints import CONTEXT, random_model

NAME, PROSE = "llama-bias-tied", Path(__file__).parent / "prose.txt"
WINDOW, COUNT = 90, 3
FIRST = WINDOW // 2


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str, str], Path]) -> Path:
    return tiny_folder(NAME, "q0f32")


@pytest.fixture(scope="module")
def llm(folder: Path, opened: Callable[[Path, int], LLM]) -> LLM:
    return opened(folder, 2)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))


def evaluated(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["eval", *map(str, words), "--json", "--threads", "2"]) == 0
    return json.loads(capsys.readouterr().out)


def test_perplexity_of_the_second_half_of_every_window(folder: Path, llm: LLM, capsys):
    report = evaluated(capsys, folder, "--text", PROSE, "--window", WINDOW, "--windows", COUNT)["text"]
    ids = llm.encode(PROSE.read_text())
    hf, nll = random_model(NAME), []
    for start in range(0, COUNT * WINDOW, WINDOW):
        window = ids[start : start + WINDOW]
        log_p = log_softmax(oracle.logits(hf, window))
        nll += [-log_p[i, window[i + 1]] for i in range(FIRST, WINDOW - 1)]
    assert report["windows"] == COUNT and report["scored_tokens"] == len(nll) == COUNT * (WINDOW - 1 - FIRST)
    (score,) = report["models"]
    assert score["perplexity"] == pytest.approx(np.exp(np.mean(nll)), rel=1e-4)
    error = np.std(nll, ddof=1) / np.sqrt(len(nll)) * np.exp(np.mean(nll))
    assert score["error"] == pytest.approx(error, rel=1e-3)


def test_divergence_from_transformers(
    folder: Path, tiny_folder: Callable[[str, str], Path], checkpoint: Callable[[str], Path], opened, capsys
):
    quantized = tiny_folder(NAME, "q4f16_1")
    words = (quantized, "--text", PROSE, "--window", WINDOW, "--windows", 1)
    report = evaluated(capsys, *words, "--compare", folder, "--against", f"hf:{checkpoint(NAME)}")["text"]
    ids = opened(folder, 2).encode(PROSE.read_text())[: WINDOW - 1]
    p = log_softmax(oracle.logits(random_model(NAME), ids))[FIRST:]
    q = log_softmax(opened(quantized, 2).logits(ids))[FIRST:]
    kl = (np.exp(p) * (p - q)).sum(-1)
    coarse, exact = (score["divergence"] for score in report["models"])
    assert coarse["mean"] == pytest.approx(kl.mean(), rel=1e-3) and kl.mean() > 1e-3
    assert coarse["p99"] == pytest.approx(np.quantile(kl, 0.99), rel=1e-3)
    assert coarse["error"] == pytest.approx(kl.std(ddof=1) / np.sqrt(len(kl)), rel=1e-3)
    assert coarse["same_top"] == np.mean(p.argmax(-1) == q.argmax(-1))
    assert abs(exact["mean"]) < 1e-8 and exact["same_top"] == 1.0
    assert report["reference"]["perplexity"] == pytest.approx(report["models"][1]["perplexity"], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to evaluate"),
        (("--choices", PROSE), "line 1: no question"),
        (("--against", "float32", "--choices", PROSE), "--against measures a divergence on a text"),
        (("--text", PROSE, "--window", CONTEXT + 1), f"--window: got {CONTEXT + 1}; the context of a model holds"),
        (("--text", PROSE, "--window", 5000), "tokens; a window has 5000"),
        (("--text", PROSE, "--window", 8, "--against", "float32"), "is converted already"),
        (("--text", PROSE, "--window", 8, "--against", "hf:/nowhere"), "/nowhere does not exist"),
    ],
)
def test_what_cannot_be_evaluated(words: tuple[object, ...], message: str, folder: Path, capsys):
    assert main(["eval", str(folder), *map(str, words)]) != 0
    assert message in capsys.readouterr().err


# -- choices -----------------------------------------------------------------------------------------------------------


def likelihood(llm: LLM, text: str, continuation: str) -> float:
    """The sum of log p of the continuation's tokens; the tokenizer has one token for each byte."""
    ids = llm.encode(text + continuation)
    log_p = log_softmax(llm.logits(ids[:-1]))
    count = len(llm.encode(continuation))
    return sum(log_p[i - 1, ids[i]] for i in range(len(ids) - count, len(ids)))


def test_choices_in_both_forms(folder: Path, llm: LLM, tmp_path: Path, capsys):
    queries = [f"case {i}:" for i in range(6)]
    choices = ["yes", "no, not at all", "it depends"]
    sums = np.array([[likelihood(llm, q, " " + c) for c in choices] for q in queries])
    best, best_norm = sums.argmax(-1), (sums / [len(c) for c in choices]).argmax(-1)
    golds = [int(best[0]), int(best[1]), *[int(b + 1) % 3 for b in best[2:]]]
    lines = [{"query": q, "choices": choices, "gold": g} for q, g in zip(queries, golds, strict=True)]
    path = tmp_path / "choices.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    (score,) = evaluated(capsys, folder, "--choices", path)["choices"].values()
    assert score["questions"] == 6 and score["accuracy"] == pytest.approx(2 / 6)
    assert score["accuracy_norm"] == pytest.approx(np.mean(best_norm == golds))
    assert score["accuracy_error"] == pytest.approx(np.sqrt(2 / 6 * 4 / 6 / 5))
    gold = "ABC"[int(np.argmax([likelihood(llm, "Question: why\nAnswer:", " " + c) for c in choices]))]
    path.write_text(json.dumps({"question": "why", "choices": {"text": choices, "label": [*"ABC"]}, "answerKey": gold}))
    (score,) = evaluated(capsys, folder, "--choices", path)["choices"].values()
    assert (score["questions"], score["accuracy"]) == (1, 1.0)


# -- the harness -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    args: tuple[Any, ...]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> type:
    """Install a fake ``lm_eval.api.model`` module, and return its base class ``LM``."""
    module = ModuleType("lm_eval.api.model")
    module.LM = type("LM", (), {"__init__": lambda self: None})
    for name in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", module)
    return module.LM


def test_requests_of_the_harness(llm: LLM, harness: type):
    model = harness_model(llm)
    assert isinstance(model, harness)
    greedy = llm.generate("the answer", max_tokens=4, temperature=0)
    (first, is_greedy), (second, _) = model.loglikelihood([Request(("a b ", "c")), Request(("x", " yz"))])
    assert first == pytest.approx(likelihood(llm, "a b", " c"), abs=1e-3) and not is_greedy
    assert second == pytest.approx(likelihood(llm, "x", " yz"), abs=1e-3)
    text = PROSE.read_text()[: CONTEXT + 30]
    ids = llm.encode(text)
    halves = [ids[: CONTEXT + 1], ids[CONTEXT:]]
    rows = [(half, log_softmax(llm.logits(half[:-1]))) for half in halves]
    expected = sum(log_p[i, half[i + 1]] for half, log_p in rows for i in range(len(half) - 1))
    assert model.loglikelihood_rolling([Request((text,))]) == [pytest.approx(expected, rel=1e-5)]
    assert model.generate_until([Request(("the answer", {"until": [], "max_gen_toks": 4}))]) == [greedy.text]


def test_without_the_harness(llm: LLM):
    with pytest.raises(MLCError, match="the package lm_eval is not installed"):
        harness_model(llm)
