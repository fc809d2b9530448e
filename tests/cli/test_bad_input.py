"""Bad input to the commands: one clear error before the work begins, nothing written, and the exit code for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_cli import __main__ as command_line
from tests.runtime.test_native import write_config

SOURCE = Path(__file__).parents[1] / "data" / "reference" / "source"
ONE_LAYER = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "vocab_size": 30,
}
SHARED = {"num_attention_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with MODEL (a checkpoint's config.json), DIR (a Llama's mlc-chat-config.json) and BIN (bytes
    that are not UTF-8)."""
    monkeypatch.chdir(tmp_path)
    for name in ("MODEL", "DIR"):
        (tmp_path / name).mkdir()
    (tmp_path / "MODEL" / "config.json").write_text(json.dumps({**ONE_LAYER, **SHARED}))
    write_config(tmp_path / "DIR")
    (tmp_path / "BIN").write_bytes(bytes(range(128, 140)))
    return tmp_path


CASES = {
    "convert_weight MODEL --quantization q0f16 -o ": (2, "--output': the name is empty; . is the current folder"),
    "gen_config MODEL --quantization q0f16 -o ": (2, "--output': the name is empty; . is the current folder"),
    "compile DIR --device cpu -o ": (2, "--output': the name is empty"),
    f"convert_weight {SOURCE} --quantization q0f16 -o out --report no/r.json": (
        1,
        "cannot write the report: No such file or directory\n  in   no/r.json",
    ),
    "compile DIR --device cpu -o /proc/x.so": (
        1,
        "cannot write the library: No such file or directory\n  in   /proc/x.so",
    ),
    "compile DIR --device cpu -o x.so --overrides max_batch_size=0": (
        2,
        f"--overrides: max_batch_size is 0; expected 1 to {2**31 - 1}",
    ),
    "compile DIR --device cpu -o x.so --overrides context_window_size=-3": (
        2,
        "context_window_size is -3; expected 1 to",
    ),
    "compile DIR --device cpu -o x.so --overrides context_window_size=4294967296": (
        2,
        "4294967296; expected 1 to 214748",
    ),
    "gen_config MODEL --quantization q0f16 -o out --max-batch-size 4294967296": (2, f"expected 1 to {2**31 - 1}"),
    "generate  -p x --dry-run": (2, "'MODEL': the name is empty; . is the current folder"),
    f"generate {SOURCE} -p x --dry-run --opt O7": (2, "--opt: got 'O7'; expected O0, O1, O2, O3 or"),
    f"generate {SOURCE} -p x --dry-run --overrides max_batch_size=0": (2, "max_batch_size is 0; expected 1 to"),
    f"generate {SOURCE} -p x --dry-run --conv-template nope": (2, "conversation template 'nope' is not registered"),
    "chat ": (2, "'MODEL': the name is empty"),
    "compile  -o x.so": (2, "'MODEL': the name is empty"),
    "convert_weight  --quantization q0f16 -o out": (2, "'MODEL': the name is empty"),
    "inspect ": (2, "'PATH': the name is empty"),
    "verify ": (2, "'FOLDER': the name is empty"),
    "eval DIR --text BIN": (1, "BIN is not UTF-8 text"),
    "eval DIR --text nowhere": (1, "nowhere: No such file or directory"),
    "eval DIR --text BIN --windows 0": (2, "--windows: got 0; expected at least 1"),
    "eval DIR --text BIN --window 3": (2, "--window: got 3; expected at least 4"),
    "eval DIR --text BIN --compare DIR": (2, "--compare: a model is named twice"),
    "bench DIR --depth -1": (2, "--depth: got -1; expected at least 0"),
    "bench DIR --profile --html no/x.html": (1, "cannot write the page: No such file or directory\n  in   no/x.html"),
    "embed DIR --text x --pooling foo": (2, "--pooling: got 'foo'; expected one of mean, cls, last"),
    "embed DIR --file BIN": (1, "BIN is not UTF-8 text: byte 0x80 at position 0"),
    "embed DIR --file /dev/zero": (1, "/dev/zero is not a regular file"),
    "embed DIR --text x -o no/x.npy": (1, "cannot write the vectors: No such file or directory\n  in   no/x.npy"),
    "debug_chat DIR -p x --debug-dir .": (2, "--debug-dir: . is not empty"),
    "debug_chat DIR -p x --debug-dir new --generate-len 0": (2, "--generate-len is 0; expected at least 1"),
    "debug_chat DIR -p x --debug-dir new --tolerance nan": (2, "--tolerance: got nan; expected a number of at least 0"),
    "debug_chat DIR -p x --debug-dir /proc/x/y": (
        1,
        "cannot write the kernels: No such file or directory\n  in   /proc/x/y",
    ),
    "debug_compare DIR -p x --reference BIN --tolerance -1": (2, "--tolerance: got -1; expected a number of"),
    "debug_compare DIR -p x --reference nowhere.so": (1, "nowhere.so"),
    "ir_opt BIN": (1, "BIN is not UTF-8 text: byte 0x80 at position 0"),
    "ir_opt /dev/zero": (1, "/dev/zero is not a regular file"),
}


@pytest.mark.parametrize("command", CASES)
def test_bad_input(folder: Path, capsys: pytest.CaptureFixture[str], command: str):
    before = sorted(folder.rglob("*"))
    status = command_line.main(command.split(" "))
    code, message = CASES[command]
    error = capsys.readouterr().err
    assert status == code and message in error, error
    assert error.startswith("error: ") and error.count("error:") == 1
    assert sorted(folder.rglob("*")) == before


def test_sizes_beyond_the_limit_are_named(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "MODEL" / "config.json").write_text(json.dumps({**ONE_LAYER, **SHARED, "hidden_size": 2**40}))
    assert command_line.main(["gen_config", "MODEL", "--quantization", "q0f16", "-o", "out"]) == 1
    assert f"hidden_size: got {2**40}; expected a positive integer below {2**31}" in capsys.readouterr().err
