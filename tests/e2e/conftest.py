"""Fixtures for model folders and opened models, each made once and on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import torch

from mlc_runtime import LLM
from tests.e2e.building import SharedFolders, build_folder
from tests.e2e.checkpoints import random_model, save_checkpoint
from tests.unoptimized import with_llvm_optimizations

torch.set_num_threads(1)  # torch's spinning threads slow down the worker team and other test processes
SIZES = ("--prefill-chunk-size", 24, "--max-batch-size", 5)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SharedFolders:
    """One root folder for all processes of the run."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "model-folders"
    root.mkdir(exist_ok=True)
    return SharedFolders(root)


@pytest.fixture(scope="session")
def checkpoint(shared: SharedFolders) -> Callable[[str], Path]:
    """A function: name of a random model -> its Hugging Face folder."""
    return lambda name: shared.get(f"{name}-hf", lambda folder: save_checkpoint(random_model(name), folder))


@pytest.fixture(scope="session")
def tiny_folder(shared: SharedFolders, checkpoint: Callable[[str], Path]) -> Callable[[str, str], Path]:
    """A function: name of a random model, quantization -> its folder with lib.so, optimized."""

    def build(name: str, scheme: str) -> Path:
        source = checkpoint(name)
        with with_llvm_optimizations():
            return shared.get(f"{name}-{scheme}", lambda folder: build_folder(source, folder, scheme, *SIZES))

    return build


@pytest.fixture(scope="session")
def smollm2_folder(shared: SharedFolders, smollm2_gguf: Path) -> Callable[[str], Path]:
    """A function: quantization -> SmolLM2's folder with lib.so, optimized."""

    def build(scheme: str) -> Path:
        with with_llvm_optimizations():
            return shared.get(f"smollm2-{scheme}", lambda folder: build_folder(smollm2_gguf, folder, scheme))

    return build


@pytest.fixture(scope="session")
def opened() -> Iterator[Callable[[Path, int], LLM]]:
    """A function: folder, number of threads -> the opened model, which is closed at the end."""
    with ExitStack() as stack:
        yield cache(lambda folder, num_threads: stack.enter_context(LLM(folder, num_threads=num_threads)))
