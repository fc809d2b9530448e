"""Draft heads, from checkpoint to compiled functions, against torch: EAGLE, Medusa, and multi-token prediction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_zoo.draft_heads import COMPARISONS, of_head
from tests.model_zoo.test_architectures import TOLERANCE, close


@pytest.mark.parametrize("name", COMPARISONS)
def test_results_equal_those_of_torch(name: str, tmp_path: Path) -> None:
    for got, expected in of_head(name, tmp_path):
        close(got, expected, TOLERANCE)
