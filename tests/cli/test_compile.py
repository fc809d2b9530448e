"""`compile`: flags to options, report to text or JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_runtime import kept_weights
from mlc_runtime.elf import read_data_symbol
from mlc_toolchain import compile as toolchain
from mlc_toolchain.progress import Step


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[toolchain.CompileOptions]:
    """The options passed to ``compile_model``, which is replaced."""
    options: list[toolchain.CompileOptions] = []

    def compile_model(given: toolchain.CompileOptions, progress=None) -> toolchain.CompileReport:
        options.append(given)
        progress(Step("compile", 1, 1))
        sizes = {"workspace_bytes": 4096, "params_bytes": 75_700_000, "kv_bytes_per_token": 23040}
        return toolchain.CompileReport(given.output, ["decode"], 30, {"llvm": 24.7}, **sizes, target={"kind": "cpu"})

    monkeypatch.setattr(toolchain, "compile_model", compile_model)
    return options


def test_defaults(received: list[toolchain.CompileOptions], capsys: pytest.CaptureFixture[str]):
    assert main(["compile", "dist", "-o", "dist/lib.so"]) == 0
    assert received == [toolchain.CompileOptions("dist", Path("dist/lib.so"))]
    assert "params bytes        75.7 MB" in capsys.readouterr().out.splitlines()


def test_every_flag_reaches_the_options(received: list[toolchain.CompileOptions]):
    flags = {
        "--quantization": "q0f32",
        "--model-type": "llama",
        "--device": "cpu:znver4",
        "--host": "x86_64-linux-gnu",
        "--opt": "O3",
        "--overrides": "max_batch_size=4",
        "--kv-cache-dtype": "int8",
        "--debug-dump": "dump",
        "--emit": "llvm",
        "--output": "lib.a",
        "--system-lib-prefix": "llama_",
        "--tune": "60s",
    }
    assert (
        main(["compile", "dist", "--keep-weights", "--emit", "asm", *(word for pair in flags.items() for word in pair)])
        == 0
    )
    assert received == [
        toolchain.CompileOptions(
            model="dist",
            output=Path("lib.a"),
            device="cpu:znver4",
            host="x86_64-linux-gnu",
            opt="O3",
            overrides="max_batch_size=4",
            kv_cache_dtype="int8",
            quantization="q0f32",
            model_type="llama",
            debug_dump=Path("dump"),
            emit=("asm", "llvm"),
            system_lib_prefix="llama_",
            tune="60s",
            keep_weights=True,
        )
    ]


def test_json_is_the_only_output(received: list[toolchain.CompileOptions], capsys: pytest.CaptureFixture[str]):
    assert main(["compile", "dist", "-o", "lib.so", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["seconds_per_phase"] == {"llvm": 24.7}
    assert captured.err == ""


def test_text_has_no_times_of_phases(received: list[toolchain.CompileOptions], capsys: pytest.CaptureFixture[str]):
    assert main(["compile", "dist", "-o", "lib.so"]) == 0
    shown = capsys.readouterr().out
    assert "num kernels" in shown and "llvm" not in shown


def test_enable_subgroups_is_refused(received: list[toolchain.CompileOptions], capsys: pytest.CaptureFixture[str]):
    assert main(["compile", "dist", "-o", "lib.so", "--enable-subgroups"]) == 2
    assert capsys.readouterr().err.startswith("error: --enable-subgroups concerns WebGPU")
    assert not received


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nowhere", "-o", "lib.so"], "error: nowhere does not exist"),
        (
            ["nowhere", "-o", "lib.so", "--opt", "O9"],
            "error: --opt: got 'O9'; expected O0, O1, O2, O3 or KEY=VALUE;...",
        ),
        (["nowhere", "-o", "missing/lib.so"], "error: nowhere does not exist"),
        (
            ["nowhere", "-o", "lib.so", "--overrides", "sliding_window_size=-5"],
            "error: --overrides: sliding_window_size is -5; expected -1 to 2147483647",
        ),
        (["nowhere", "-o", "lib.so", "--emit", "wasm"], "error: --emit: got 'wasm'; expected one of llvm, asm, ptx"),
        (
            ["nowhere", "-o", "lib.a", "--keep-weights"],
            "error: --keep-weights: lib.a is not loaded as a library; expected a .so file",
        ),
        (
            ["nowhere", "-o", "lib.so", "--keep-weights", "--device", "cuda:sm_90a"],
            "error: --keep-weights: weights are packed for CPUs; the target is cuda -arch=sm_90a",
        ),
    ],
)
def test_wrong_values_are_usage_errors(
    arguments: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[0] == error
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a chat configuration, the only input of compile."""
    folder = tmp_path_factory.mktemp("model")
    source = Path(__file__).parents[1] / "data" / "reference" / "source"
    sizes = ["--context-window-size", "64", "--prefill-chunk-size", "8"]
    assert main(["gen_config", str(source), "--quantization", "q4f16_1", *sizes, "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    ("flags", "arch", "attributes"),
    [
        (["--host", "aarch64-linux-gnu"], "aarch64", {"mcpu": "generic", "mtriple": "aarch64-linux-gnu"}),
        (["--device", "llvm -mcpu=znver4 -num-cores=4"], "x86_64", {"mcpu": "znver4", "num-cores": 4}),
    ],
)
def test_targets(flags: list[str], arch: str, attributes: dict[str, object], folder: Path, tmp_path: Path):
    library = tmp_path / "lib.so"
    assert main(["compile", str(folder), *flags, "-o", str(library)]) == 0
    symbol = read_data_symbol(library, "__mlc_metadata")
    assert symbol.machine == arch
    assert attributes.items() <= json.loads(symbol.data)["target"].items()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--host", "sparc-sun-solaris"], "error: target cpu: mtriple is 'sparc-sun-solaris'"),
        (
            ["--host", "aarch64-linux-gnu", "--device", "cpu:znver4"],
            "error: target cpu: mcpu znver4 is x86_64; mtriple is",
        ),
        (["--device", "llvm -mcpu=z80"], "error: target cpu: mcpu is 'z80'"),
        (["--device", "opencl"], "error: no kind of target 'opencl'"),
    ],
)
def test_targets_that_are_not_known(
    flags: list[str], error: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["compile", str(folder), *flags, "-o", str(tmp_path / "lib.so")]) == 3
    assert capsys.readouterr().err.startswith(error)


def test_weights_are_kept_beside_the_library(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    model, source = tmp_path / "model", Path(__file__).parents[1] / "data" / "reference" / "source"
    shutil.copytree(folder, model)
    command = ["compile", str(model), "-o", str(model / "lib.so"), "--device", "cpu", "--keep-weights"]
    assert main(command) == 1  # there are no weights
    assert "tensor-cache.json" in capsys.readouterr().err and not (model / "lib.so").exists()
    assert main(["convert_weight", str(source), "--quantization", "q4f16_1", "-o", str(model)]) == 0
    monkeypatch.setattr(kept_weights, "huge_bytes", lambda address: 1 << 30)  # as a system with huge pages for files
    assert main(command) == 0
    assert kept_weights.is_whole(model / "lib.weights")
    monkeypatch.setattr(kept_weights, "huge_bytes", lambda address: 0)
    assert main(command) == 1
    assert "leave --keep-weights away" in capsys.readouterr().err and not (model / "lib.weights").exists()
