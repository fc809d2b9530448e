"""`inspect` on checkpoints, presets and unsupported files; tests/e2e has libraries and model folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_errors import MLCError
from mlc_toolchain.inspection import inspect

REFERENCE = Path(__file__).parents[1] / "data" / "reference"
SOURCE = REFERENCE / "source"


def test_a_checkpoint():
    found = inspect(str(SOURCE))
    assert (found["kind"], found["supported"], found["parameters"]) == ("folder", True, 490112)
    shards = json.loads((REFERENCE / "q4f16_1" / "tensor-cache.json").read_text())["records"]
    assert found["weight_bytes"]["q4f16_1"] == sum(shard["nbytes"] for shard in shards)
    assert found["dtypes"] == {"float16": 21} and len(found["tensors"]) == 21
    assert {"name": "model.norm.weight", "dtype": "float16", "shape": [128]} in found["tensors"]


def test_the_formats_of_a_gguf_file(smollm2_gguf: Path):
    assert inspect(str(smollm2_gguf))["quantized_as"] == "Q4_1 210, F32 61, Q8_0 1"


def test_a_preset_has_no_tensors():
    found = inspect("qwen3-0.6b")
    assert (found["kind"], found["model_type"], "tensors" in found) == ("preset", "qwen3", False)


def test_an_architecture_that_is_not_supported(tmp_path: Path):
    shutil.copytree(SOURCE, tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"unheard_of"'))
    found = inspect(str(tmp_path / "model"))
    assert found["supported"] is False and "unheard_of" in found["reason"] and found["parameters"] == 490112


@pytest.mark.parametrize("path", ["nosuch", __file__])
def test_what_is_no_model(path: str):
    with pytest.raises(MLCError, match="cannot find the model|is no checkpoint"):
        inspect(path)


def test_the_command_prints_tables(capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(SOURCE), "--tensors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["kind", "folder"]
    assert lines[lines.index("tensors") + 1].split() == ["name", "dtype", "shape"]
