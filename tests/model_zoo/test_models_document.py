"""docs/models.md is up to date, and every architecture is in the tables of tests."""

from __future__ import annotations

from pathlib import Path

from model_zoo import registry
from tests.model_zoo import draft_heads, encoder_cases
from tests.model_zoo.architecture_cases import CASES
from tests.model_zoo.models_document import document
from tests.model_zoo.test_models import VARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == document(), "python -m tests.model_zoo.models_document > docs/models.md"


def test_every_architecture_is_compared_with_transformers() -> None:
    cases = {case.name for case in (*CASES, *encoder_cases.CASES, *encoder_cases.ENCODER_DECODERS)}
    assert set(registry.ARCHITECTURES) == cases | {kind for kind, _ in VARIANTS} | set(draft_heads.COMPARISONS)
