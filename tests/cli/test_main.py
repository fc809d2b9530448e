"""The main command: start-up imports, unknown commands, and failures as messages and exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mlc_cli import __main__ as command_line
from mlc_errors import MLCError, ResourceError, UnsupportedError
from mlc_version import __version__

RUNNING = ("mlc_compiler.backends", "mlc_compiler.codegen.emit", "mlc_runtime.llm", "llvmlite.binding")
ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "llvmlite", "tokenizers", "ml_dtypes", "safetensors", "huggingface_hub", "jinja2", "rich", "tvm_ffi")


DEBUG_HINT = "  hint set MLC_DEBUG=1 to see the traceback\n"
WITHOUT_COMPILER = (
    "error: mlc-cli-runtime is installed, which only runs models that are compiled already\n"
    "  hint name a folder with lib.so, or pip install mlc-cli instead\n"
)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Make `mlc_cli compile` raise a given exception."""

    def install(exception: BaseException) -> None:
        @click.command("compile")
        @click.option("--json", is_flag=True, expose_value=False)
        def fail() -> None:
            raise exception

        monkeypatch.setattr(command_line.CommandTable, "get_command", lambda self, ctx, name: fail)

    return install


def test_help_lists_the_commands_and_imports_nothing_heavy():
    code = (
        "import sys; from mlc_cli.__main__ import main; status = main(['--help'])\n"
        f"print('loaded:', *sorted(set(sys.modules) & set({HEAVY!r})), status)"
    )
    *text, loaded = run_python(code).stdout.splitlines()
    listed = [line.split()[0] for line in text[text.index("Commands:") + 1 :]]
    assert listed == [
        "convert_weight",
        "gen_config",
        "compile",
        "tune",
        "model_metadata",
        "generate",
        "chat",
        "embed",
        "inspect",
        "verify",
        "bench",
        "eval",
        "cache",
        "doctor",
        "explain",
        "schema",
        "check_kernels",
        "debug_chat",
        "debug_compare",
        "ir_opt",
    ]
    assert loaded == "loaded: 0"


def test_the_help_of_every_command_imports_nothing_heavy():
    code = (
        "import sys; from mlc_cli.__main__ import COMMANDS, main\n"
        "statuses = [main([name, '--help']) for name in COMMANDS]\n"
        f"print('loaded:', *sorted(set(sys.modules) & set({HEAVY!r})), statuses)"
    )
    assert run_python(code).stdout.splitlines()[-1] == f"loaded: {[0] * len(command_line.COMMANDS)}"


def test_an_unsupported_model_is_refused_without_the_compiler(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llamo"}')
    commands = [
        ["convert_weight", "--quantization", "q4f16_1", "-o", str(tmp_path / "out")],
        ["gen_config", "--quantization", "q4f16_1", "-o", str(tmp_path / "out")],
        ["generate", "-p", "a"],
        ["chat"],
    ]
    code = (
        "import sys; from mlc_cli.__main__ import main\n"
        f"statuses = [main([name, {str(tmp_path)!r}, *options]) for name, *options in {commands}]\n"
        f"print('loaded:', *sorted(set(sys.modules) & set({RUNNING!r})), statuses)"
    )
    done = run_python(code)
    assert done.stdout.splitlines() == ["loaded: [3, 3, 3, 3]"]
    assert done.stderr.count("error: model_type: got 'llamo', which is not supported; expected one of llama, ") == 4


def test_version(capsys: pytest.CaptureFixture[str]):
    assert command_line.main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlc_cli, version {__version__}\n"


def test_no_arguments_print_the_help_and_fail_as_usage(capsys: pytest.CaptureFixture[str]):
    assert command_line.main([]) == 2
    assert "convert_weight" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("complie", "did you mean compile?"),
        ("convert", "did you mean convert_weight?"),
        ("qqqq", "see `mlc_cli --help`"),
    ],
)
def test_unknown_command_suggests(name: str, hint: str, capsys: pytest.CaptureFixture[str]):
    assert command_line.main([name, "x"]) == 2
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: no command '{name}'; expected one of convert_weight, gen_config, compile,")
    assert second == f"  hint {hint}"


def test_dashes_in_command_names_are_underscores(capsys: pytest.CaptureFixture[str]):
    assert command_line.main(["ir-opt", "--help"]) == 0
    assert "mlc_cli ir_opt" in capsys.readouterr().out


def test_bad_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert command_line.main(["compile", "--ouptut", "x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: No such option")
    assert error.endswith("  hint see `mlc_cli compile --help`\n  more mlc_cli explain MLC2\n")


@pytest.mark.parametrize(
    ("exception", "status", "text"),
    [
        (
            MLCError("w has shape [2]; expected [3]", where=["a.safetensors"], hint="check config.json"),
            1,
            "error: w has shape [2]; expected [3]\n  in   a.safetensors\n  hint check config.json\n",
        ),
        (UnsupportedError("no such architecture"), 3, "error: no such architecture\n"),
        (ResourceError("no device"), 4, "error: no device\n"),
        (MemoryError(), 4, "error: out of memory\n  hint close other programs, or take a smaller model or context\n"),
        (OSError(errno.ENOSPC, "No space left", "/x/y"), 4, "error: no space left on the disk: /x/y\n"),
        (OSError(errno.EFBIG, "File too large", "/x/y"), 4, "error: no space left on the disk: /x/y\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.json"), 1, "error: a.json: No such file\n"),
        (ModuleNotFoundError(name="mlc_toolchain.compile"), 3, WITHOUT_COMPILER),
        (ModuleNotFoundError("no x", name="x"), 1, f"error: unexpected ModuleNotFoundError: no x\n{DEBUG_HINT}"),
        (KeyError("q"), 1, f"error: unexpected KeyError: 'q'\n{DEBUG_HINT}"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)  # fmt: skip
def test_failures(exception: BaseException, status: int, text: str, failing, capsys: pytest.CaptureFixture[str]):
    failing(exception)
    assert command_line.main(["compile"]) == status
    code = exception.code if isinstance(exception, MLCError) else {3: "MLC3", 4: "MLC4"}.get(status, "MLC1")
    more = "" if status == 130 else f"  more mlc_cli explain {code}\n"
    assert capsys.readouterr().err == text + more


def test_an_error_as_json(failing, capsys: pytest.CaptureFixture[str]):
    failing(UnsupportedError("no such model", where=["a"], hint="b"))
    assert command_line.main(["compile", "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["error"] == {
        "code": "MLC3",
        "message": "no such model",
        "where": ["a"],
        "hint": "b",
        "exit_code": 3,
    }


def test_debug_shows_the_traceback(failing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("MLC_DEBUG", "1")
    failing(MLCError("broken"))
    assert command_line.main(["compile"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and error.endswith("\nerror: broken\n  more mlc_cli explain MLC1\n")


STREAMS = {
    "--version >&-": (0, "", ""),
    "frobnicate 2>&-": (2, "", ""),
    "generate nosuch <&-": (2, "", "error: no prompt\n"),
    "generate nosuch -p x <&- >&-": (2, "", "error: cannot find the model: 'nosuch' is no folder, file or preset\n"),
    "embed nosuch <&-": (2, "", "error: no text\n"),
    "ir_opt \u2192.py": (1, "", "error: ?.py: No such file or directory\n"),
}


@pytest.mark.parametrize("command", STREAMS)
def test_closed_streams_and_narrow_encodings(command: str):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT)}
    line = f"{sys.executable} -m mlc_cli {command}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True)
    status, output, error = STREAMS[command]
    assert (done.returncode, done.stdout) == (status, output)
    assert done.stderr.startswith(error) and "unexpected" not in done.stderr


def test_a_prompt_that_is_no_text_is_named(tmp_path: Path):
    (tmp_path / "bytes").write_bytes(b"a\xff")
    for command in ("generate", "embed"):
        line = f"{sys.executable} -m mlc_cli {command} nosuch < {tmp_path}/bytes"
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
        assert (
            done.returncode == 2 and "error: standard input is not UTF-8 text: byte 0xff at position 1" in done.stderr
        )


def test_a_closed_pipe_is_quiet():
    code = (
        "import os, sys; from mlc_cli.__main__ import main\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
        "sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")


def test_packages_of_the_current_folder_are_not_ours(tmp_path: Path):
    for name in ("quantization", "configs", "model_zoo"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('of the current folder')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mlc_cli", "inspect", "qwen3-0.6b"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
