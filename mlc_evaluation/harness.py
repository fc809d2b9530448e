"""Adapter for lm-evaluation-harness: ``lm_eval.simple_evaluate(harness_model(llm), tasks=["hellaswag"])``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from mlc_errors import MLCError
from mlc_evaluation.multiple_choice import log_likelihood, score_tokens
from mlc_evaluation.scorers import CompiledScorer
from mlc_runtime.llm import LLM

MAX_TOKENS = 256


class HarnessRequests:
    """The request methods of the harness's ``LM``. Each request has ``args``; results keep the order of requests."""

    def __init__(self, llm: LLM):
        super().__init__()
        self.llm, self.scorer = llm, CompiledScorer(llm)

    def loglikelihood(self, requests: Iterable[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """args: context and continuation. Returns the log-likelihood of the continuation, and whether it is greedy."""
        return [log_likelihood(self.scorer, self.llm.tokenizer, *request.args) for request in requests]

    def loglikelihood_rolling(self, requests: Iterable[Any], disable_tqdm: bool = False) -> list[float]:
        """args: a text. Returns its log-likelihood, in non-overlapping windows of the context length."""
        return [self._rolling(*request.args) for request in requests]

    def generate_until(self, requests: Iterable[Any], disable_tqdm: bool = False) -> list[str]:
        """args: a prompt, and ``until``, ``max_gen_toks``, ``temperature``. Returns the answer without stop text."""
        return [self._generate(*request.args) for request in requests]

    def _rolling(self, text: str) -> float:
        ids, size = self.llm.encode(text), self.llm.model.spec.context_window_size
        starts = range(0, max(len(ids) - 1, 1), size)
        return sum(score_tokens(self.scorer, ids[start : start + size + 1], 1)[0] for start in starts)

    def _generate(self, prompt: str, options: dict[str, Any]) -> str:
        until = options.get("until") or []
        result = self.llm.generate(
            prompt,
            max_tokens=int(options.get("max_gen_toks", MAX_TOKENS)),
            temperature=float(options.get("temperature", 0.0)),
            stop=list(filter(None, [until] if isinstance(until, str) else until)),
        )
        assert not isinstance(result, list)
        return result.text


def harness_model(llm: LLM) -> Any:
    """The model as an ``lm_eval.api.model.LM``. Raises MLCError if the harness is not installed."""
    try:
        base = importlib.import_module("lm_eval.api.model").LM
    except ImportError:
        raise MLCError("the package lm_eval is not installed", hint="pip install lm_eval") from None
    return type("CompiledLM", (HarnessRequests, base), {})(llm)
