"""The runtime stands alone: what it imports, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_no_compiler_and_no_framework():
    loaded = modules_after("from mlc_runtime import LLM, Library, load_library")
    foreign = {"mlc_compiler", "mlc_toolchain", "model_zoo", "quantization", "llvmlite", "torch", "transformers"}
    assert "mlc_runtime.llm" in loaded
    assert not loaded & foreign


def test_names_are_loaded_when_used():
    assert not {"numpy", "tvm_ffi", "tokenizers"} & modules_after("import mlc_runtime")


def test_torch_can_be_imported_afterwards():
    assert "torch" in modules_after("from mlc_runtime import LLM\nimport torch; torch.zeros(1)")
