"""Compiled folders run without the compiler installed; commands that need it raise an error that says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlc_runtime import LLM
from tests.test_packaging import shipped

ROOT = Path(__file__).resolve().parents[2]
NOT_INSTALLED = [
    *("llvmlite", "huggingface_hub", "safetensors"),
    *("mlc_compiler", "mlc_evaluation", "model_zoo", "quantization"),
]
MISSING = f"""
import sys
missing = {NOT_INSTALLED}
shipped = {sorted(shipped())}

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in missing or (name.startswith("mlc_toolchain.") and name not in shipped):
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Missing)
"""
PROMPT = ("--raw", "-p", "hello", "--greedy", "--max-tokens", "5")


def without_compiler(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MISSING + code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return without_compiler("from mlc_cli.__main__ import main; sys.exit(main(sys.argv[1:]))", *arguments)


@pytest.fixture
def folder(tiny_folder: Callable[[str, str], Path]) -> Path:
    return tiny_folder("llama-odd-llama3", "q0f32")


def test_generate_and_verify(folder: Path, opened: Callable[[Path, int], LLM]):
    expected = opened(folder, 1).generate("hello", max_tokens=5, temperature=0).text
    done = command("generate", str(folder), *PROMPT)
    assert (done.returncode, done.stdout) == (0, expected + "\n"), done.stderr
    assert command("verify", str(folder)).returncode == 0


def test_llm(folder: Path, opened: Callable[[Path, int], LLM]):
    code = (
        "from mlc_runtime import LLM; print(LLM(sys.argv[1]).generate([1, 2], max_tokens=5, temperature=0).token_ids)"
    )
    done = without_compiler(code, str(folder))
    expected = opened(folder, 1).generate([1, 2], max_tokens=5, temperature=0).token_ids
    assert done.stdout.strip() == str(expected), done.stderr


CONVERT = ("convert_weight", "{}", "--quantization", "q4f16_1", "-o", "{}")


@pytest.mark.parametrize("arguments", [("generate", "{}", *PROMPT), ("bench", "{}"), ("inspect", "{}"), CONVERT])
def test_what_needs_the_compiler(arguments: tuple[str, ...], tmp_path: Path):
    done = command(*(text.format(tmp_path) for text in arguments))
    assert done.returncode == 3 and done.stderr.startswith("error: mlc-cli-runtime is installed, which only runs")
