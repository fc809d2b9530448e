"""`mlc_cli embed` on the fake model: sources of texts, and output formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mlc_runtime.llm
from mlc_cli.embed import embed
from mlc_errors import UsageError
from tests.runtime.fake_library import FakeLibrary, metadata, write_folder

RealLLM = mlc_runtime.llm.LLM


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def open_fake(folder, model_lib, num_threads, progress, device):
        return RealLLM(folder, FakeLibrary(metadata(258)), num_threads, progress=progress)

    monkeypatch.setattr(mlc_runtime.llm, "LLM", open_fake)
    settings = {"pooling_strategy": "last", "normalize": False, "prompts": {"query": "Q: "}}
    (tmp_path / "lib.so").touch()
    return write_folder(tmp_path, embedding_metadata=settings)


def run(*args: object, text: str | None = None) -> str:
    result = CliRunner().invoke(embed, list(map(str, args)), input=text, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_lines(folder: Path) -> None:
    expected = RealLLM(folder, FakeLibrary(metadata(258))).embed(["one", "zwölf"])
    lines = [json.loads(line) for line in run(folder, "--text", "one", "--text", "zwölf").splitlines()]
    assert [line["text"] for line in lines] == ["one", "zwölf"]
    assert [line["embedding"] for line in lines] == expected.tolist()
    assert run(folder, text="one\n\nzwölf\n") == run(folder, "--text", "one", "--text", "zwölf")


def test_files(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("one\nzwölf\n", encoding="utf-8")
    run(folder, "--file", texts, "--prompt-name", "query", "--normalize", "-o", tmp_path / "vectors.npy")
    run(folder, "--text", "Q: one", "--text", "Q: zwölf", "--normalize", "-o", tmp_path / "vectors.jsonl")
    array = np.load(tmp_path / "vectors.npy")
    assert array.dtype == np.float32
    lines = (tmp_path / "vectors.jsonl").read_text(encoding="utf-8").splitlines()
    assert np.array_equal(array, np.array([json.loads(line)["embedding"] for line in lines], np.float32))
    np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "x", "--file", "y"], "--text and --file exclude each other"),
        (["--text", "x", "-o", "vectors.txt"], "expected the suffix .npy or .jsonl"),
        ([], "no text"),
    ],
)
def test_mistakes(folder: Path, options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(embed, [str(folder), *options], catch_exceptions=False)
