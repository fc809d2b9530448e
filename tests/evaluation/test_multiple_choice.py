"""Files of questions: what is wrong in a line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_evaluation.multiple_choice import Question, read_questions

ARC = '{"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "%s"}'


def test_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"query": "q", "choices": ["a", "b"], "gold": "1"}\n\n' + ARC % "A")
    assert read_questions(path) == [Question("q", ("a", "b"), 1), Question("Question: q\nAnswer:", ("a", "b"), 0)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{}", "no question: choices is missing"),
        ("[1]", "no question: expected a JSON object"),
        (ARC % "Z", "no question: answerKey is 'Z'; expected one of ['A', 'B']"),
        ('{"query": "a", "choices": [], "gold": 0}', "gold is 0; there are 0 choices"),
        ('{"query": "a", "choices": ["x"], "gold": -1}', "gold is -1; there are 1 choices"),
        ('{"query": "a", "choices": ["x", 3], "gold": 0}', "a choice is 3; expected a text that is not empty"),
        ('{"query": "a", "choices": ["", "b"], "gold": 0}', "a choice is ''; expected a text that is not empty"),
        ('{"query": 3, "choices": ["a", "b"], "gold": 0}', "query is 3; expected a text"),
        ('{"query": "a", "choices": "xy", "gold": 0}', "no question: choices are 'xy'; expected a list of texts"),
        (ARC.replace('["a", "b"]', '"ab"') % "A", "no question: choices are 'ab'; expected a list of texts"),
        ("", "has no questions"),
    ],
)
def test_lines_that_are_no_question(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(line)
    with pytest.raises(MLCError) as error:
        read_questions(path)
    assert problem in error.value.message
