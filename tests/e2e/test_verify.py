"""`verify` and `inspect` on a compiled model folder, whole and damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_errors import MLCError
from mlc_runtime.weights import TensorCache
from mlc_toolchain.inspection import inspect
from mlc_toolchain.verify import verify_folder

NAME = "llama-bias-tied"


@pytest.fixture
def folder(tiny_folder: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """A copy of a model folder that a test may damage."""
    return shutil.copytree(tiny_folder(NAME, "q0f32"), tmp_path / "model")


def edit_index(folder: Path, change: Callable[[list[dict]], None]) -> None:
    """Change the records of the first shard."""
    path = folder / "tensor-cache.json"
    index = json.loads(path.read_text())
    change(index["records"][0]["records"])
    path.write_text(json.dumps(index))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_config(folder: Path, **values: object) -> None:
    path = folder / "mlc-chat-config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_whole_folder(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", str(folder), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    files = ["weights", "params_shard_0.bin", "mlc-chat-config.json", "tokenizer", "lib.so"]
    assert [(check["file"], check["problem"]) for check in checks] == [(file, "") for file in files]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda f: flip(f / "params_shard_0.bin"), "params_shard_0.bin: its MD5 sum is "),
        (lambda f: flip(f / "lib.so"), "lib.so: the library is damaged"),
        (lambda f: edit_config(f, context_window_size=64), "lib.so: mlc-chat-config.json has context_window_size 64;"),
        (lambda f: edit_config(f, tokenizer_files=["x.json"]), "mlc-chat-config.json: it names x.json"),
        (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer: tokenizer.json is not readable"),
        (lambda f: (f / "params_shard_0.bin").unlink(), "weights: params_shard_0.bin is missing"),
    ],
)
def test_damage_is_found(
    folder: Path, damage: Callable[[Path], object], problem: str, capsys: pytest.CaptureFixture[str]
):
    damage(folder)
    assert any(found.startswith(problem) for found in verify_folder(folder).problems)
    assert main(["verify", str(folder)]) == 1
    assert f"\n  in   {problem}" in capsys.readouterr().err


def test_records_that_overlap_are_refused(folder: Path):
    edit_index(folder, lambda records: records[1].update(byteOffset=records[1]["byteOffset"] - 4))
    with pytest.raises(MLCError, match="the index of the weights is damaged: .* and .* overlap in params_shard_0.bin"):
        TensorCache(folder)


@pytest.mark.parametrize(
    "file", ["mlc-chat-config.json", "tensor-cache.json", "tokenizer.json", "lib.so", "params_shard_0.bin"]
)
def test_files_that_are_pipes_are_not_read(folder: Path, file: str):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    assert verify_folder(folder).problems


def test_what_is_in_a_folder_and_its_library(folder: Path):
    found = inspect(str(folder))
    assert (found["kind"], found["model_type"], found["quantization"]) == ("model folder", "llama", "q0f32")
    assert found["weight_bytes"] == (folder / "params_shard_0.bin").stat().st_size
    assert [library["opt"] for library in found["libraries"]] == ["fusion=1;schedules=1;act=16"]
    library = inspect(str(folder / "lib.so"))
    assert (library["kind"], library["params_bytes"]) == ("library", found["weight_bytes"])
    assert "decode" in [function["name"] for function in library["functions"]]
    (folder / "lib.so").write_bytes(b"no library")
    assert "not a shared library" in inspect(str(folder))["libraries"][0]["target"]
