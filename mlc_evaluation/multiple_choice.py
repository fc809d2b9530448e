"""Multiple-choice questions from a JSON-lines file, scored as in lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_evaluation.scorers import Scorer
from mlc_runtime.tokenizer import Tokenizer
from mlc_toolchain.text_files import read_text

DELIMITER = " "


@dataclass(frozen=True)
class Question:
    """A question. query: the context, followed by a space and a choice; gold: index of the right choice."""

    query: str
    choices: tuple[str, ...]
    gold: int


@dataclass(frozen=True)
class ChoiceScore:
    """Accuracies with standard errors. accuracy: by the sum of a choice's log-probabilities; accuracy_norm: by the
    sum per byte of the choice.
    """

    questions: int
    accuracy: float
    accuracy_error: float
    accuracy_norm: float
    accuracy_norm_error: float


def read_questions(path: Path) -> list[Question]:
    """The questions of a file with a JSON object in each line.

    Either ``query``, ``choices`` (a list) and ``gold`` (an index), as in preprocessed HellaSwag; or
    ``question``, ``choices`` with ``text`` and ``label``, and ``answerKey``, as in ARC. Raises MLCError with the number
    of a line of any other form.
    """
    lines = [(n, line) for n, line in enumerate(read_text(path).splitlines(), 1) if line.strip()]
    if not lines:
        raise MLCError(f"{path} has no questions")
    return [_question(path, number, line) for number, line in lines]


def _question(path: Path, number: int, line: str) -> Question:
    try:
        entry: Mapping[str, Any] = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError("expected a JSON object")
        if "query" in entry:
            question = Question(entry["query"], _texts(entry["choices"]), int(entry["gold"]))
        else:
            labels, texts = entry["choices"]["label"], entry["choices"]["text"]
            if entry["answerKey"] not in labels:
                raise ValueError(f"answerKey is {entry['answerKey']!r}; expected one of {labels}")
            right = labels.index(entry["answerKey"])
            question = Question(f"Question: {entry['question']}\nAnswer:", _texts(texts), right)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise MLCError(f"{path}, line {number}: no question: {reason}") from None
    if problem := _problem(question):
        raise MLCError(f"{path}, line {number}: {problem}")
    return question


def _texts(choices: object) -> tuple[Any, ...]:
    if not isinstance(choices, list):
        raise ValueError(f"choices are {choices!r}; expected a list of texts")
    return tuple(choices)


def _problem(question: Question) -> str:
    """What is wrong with a question, empty if nothing is. A choice without a text would be certain."""
    if not isinstance(question.query, str):
        return f"query is {question.query!r}; expected a text"
    for choice in question.choices:
        if not isinstance(choice, str) or not choice:
            return f"a choice is {choice!r}; expected a text that is not empty"
    if not 0 <= question.gold < len(question.choices):
        return f"gold is {question.gold}; there are {len(question.choices)} choices"
    return ""


def answer(model: Scorer, tokenizer: Tokenizer, questions: Sequence[Question]) -> ChoiceScore:
    """Score questions: the shares for which the right choice is the most likely one."""
    right, right_norm = [], []
    for question in questions:
        sums = np.array([log_likelihood(model, tokenizer, question.query, DELIMITER + c)[0] for c in question.choices])
        lengths = np.array([max(len(c.encode()), 1) for c in question.choices])
        right.append(int(sums.argmax()) == question.gold)
        right_norm.append(int((sums / lengths).argmax()) == question.gold)
    return ChoiceScore(len(questions), *_mean(right), *_mean(right_norm))


def log_likelihood(model: Scorer, tokenizer: Tokenizer, context: str, continuation: str) -> tuple[float, bool]:
    """The sum of the log-probabilities of a continuation's tokens, and whether each is the most likely one.

    Spaces at the end of the context belong to the continuation. The continuation's tokens are those of the whole text
    without the first n, n being the number of tokens of the context alone. A context that does not fit is truncated on
    the left.
    """
    stripped = context.rstrip()
    continuation = context[len(stripped) :] + continuation
    whole = tokenizer.encode(stripped + continuation)
    split = len(tokenizer.encode(stripped)) if stripped else len(tokenizer.encode(""))
    return score_tokens(model, whole, max(split, 1))


def score_tokens(model: Scorer, ids: Sequence[int], split: int) -> tuple[float, bool]:
    """The sum of the log-probabilities of ``ids[split:]``, and whether each is the most likely one; split >= 1."""
    kept = ids if model.context_size is None else ids[-(model.context_size + 1) :]
    first = max(split - (len(ids) - len(kept)), 1)
    expected = np.asarray(kept[first:])
    rows = np.concatenate([*model.log_probabilities(kept[:-1], first - 1)]) if len(expected) else np.zeros((0, 1))
    chosen = rows[np.arange(len(expected)), expected]
    return float(chosen.sum()), bool((rows.argmax(-1) == expected).all())


def _mean(right: Sequence[bool]) -> tuple[float, float]:
    """The share of right answers and its standard error."""
    share = float(np.mean(right))
    return share, float(np.sqrt(share * (1 - share) / max(len(right) - 1, 1)))
