"""docs/evaluation.md has the figures of the committed results."""

import json
from pathlib import Path

import evaluation

RESULTS = json.loads(evaluation.RESULTS.read_text())
DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_table_is_written_from_the_results():
    text = DOCUMENT.read_text()
    assert evaluation.table(RESULTS) in text and f"{RESULTS['scored']:,}\nscored tokens" in text


def test_both_engines_have_the_same_perplexity_in_float16():
    rows = {row["name"]: row for row in RESULTS["rows"]}
    ours, theirs = rows["q0f16"], rows["llama.cpp:F16"]
    assert abs(ours["perplexity"] - theirs["perplexity"]) < theirs["error"] / 100
