"""--verbose: what was found and decided, on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlc_cli.__main__ import main

SOURCE = str(Path(__file__).parents[1] / "data" / "reference" / "source")


@pytest.fixture(autouse=True)
def logger() -> Iterator[None]:
    logger = logging.getLogger("mlc_toolchain")
    yield
    logger.handlers, logger.level = [], logging.NOTSET


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            ["convert_weight", SOURCE, "--dry-run"],
            [
                f"convert_weight: found the model configuration of 'llama' in {SOURCE}",
                "convert_weight: quantizing to q4f16_1 on the CPU",
                f"readers.checkpoint: found the weight formats safetensors in {SOURCE}; looking for auto",
                f"readers.checkpoint: using the weights in {SOURCE}/model.safetensors",
            ],
        ),
        (
            ["gen_config", SOURCE, "--max-batch-size", "7"],
            [
                f"gen_config: found the model configuration of 'llama' in {SOURCE}",
                "model_sizes: max_batch_size is 7 instead of 128",
                "generation_defaults: [generation_config.json] top_p is 0.9",
                "generation_defaults: [generation_config.json] eos_token_id is 2",
            ],
        ),
    ],
)
def test_decisions(command: list[str], lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = [*command, "--quantization", "q4f16_1", "-o", str(tmp_path / "out")]
    assert main(command) == 0
    assert "INFO" not in capsys.readouterr().err
    assert main([*command, "--verbose"]) == 0
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in lines if f"INFO mlc_toolchain.{line}" not in shown] == []


def test_decisions_of_a_command_that_converts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path))
    command = ["generate", SOURCE, "--quantization", "q4f16_1", "--dry-run"]
    assert main([*command, "-v"]) == 0
    assert f"INFO mlc_toolchain.readers.checkpoint: using the weights in {SOURCE}/model" in capsys.readouterr().err
