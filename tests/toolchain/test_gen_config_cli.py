"""`mlc_cli gen_config`: its output as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_cli.__main__ import main

SOURCE = str(Path(__file__).parents[1] / "data" / "reference" / "source")


def test_summary(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["gen_config", SOURCE, "--quantization", "q4f16_1", "-o", str(out), "--memory", "1MB"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    shown = {key: value.strip() for key, value in lines.items()}
    assert shown["model type"] == "llama"
    assert shown["conv template"] == "LM"
    assert shown["weight bytes"] == "279 KB"
    assert shown["kv full context bytes"] == "131 KB"
    assert shown["largest batch"] == "5"
    assert shown["notes"] == "the checkpoint has no chat template: prompts are continued as they are"
    assert sorted(path.name for path in out.iterdir()) == [
        "mlc-chat-config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_json_and_overrides(tmp_path, capsys):
    sizes = ["--context-window-size", "64", "--prefill-chunk-size", "32", "--max-batch-size", "2"]
    command = ["gen-config", SOURCE, "--quantization", "q0f32", "-o", str(tmp_path), *sizes, "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["context_window_size"], report["prefill_chunk_size"]) == (64, 32)
    assert report["kv_bytes_per_token"] == 2 * 2 * 2 * 32 * 4
    assert report["files"] == ["tokenizer.json", "tokenizer_config.json", "mlc-chat-config.json"]
    assert report["eos_token_ids"] == [2]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--quantization", "q4f16_1", "--conv-template", "llama-3"],
            1,
            "error: the conversation template 'llama-3' needs",
        ),
        (["--quantization", "q5f16_7"], 2, "q5f16_7"),
        (["--quantization", "q4f16_1", "--sliding-window-size", "8"], 2, "error: --sliding-window-size cannot be set"),
        (["--quantization", "q4f16_1", "--memory", "much"], 2, "error: not an amount of memory: got 'much'"),
        (["--quantization", "q4f16_1", "--model-type", "klingon"], 3, "error: model_type: got 'klingon'"),
        ([], 2, "--quantization"),
    ],
)
def test_errors(options, code, message, tmp_path, capsys):
    assert main(["gen_config", SOURCE, "-o", str(tmp_path / "out"), *options]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_template_check_can_be_skipped(tmp_path, capsys):
    options = ["--quantization", "q4f16_1", "--conv-template", "llama-3", "--skip-template-check"]
    assert main(["gen_config", SOURCE, "-o", str(tmp_path), *options]) == 0
    assert "conv template          llama-3" in capsys.readouterr().out
