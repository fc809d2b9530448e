"""`tune`: flags to options, the table of gains, and the image."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_toolchain import tune as toolchain
from mlc_toolchain.compile import CompileOptions
from mlc_toolchain.tune import KernelGain, TuneOptions, TuneReport

KERNELS = [KernelGain("linear", 10, 12.5, 10.0, 1.25, 40, 2), KernelGain("rope", 5, None, None, None, 0, 0, "no time")]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[TuneOptions]:
    """The options passed to ``tune_model``, which is replaced."""
    options: list[TuneOptions] = []

    def tune_model(given: TuneOptions, progress=None) -> TuneReport:
        options.append(given)
        return TuneReport("cpu", given.database, 40, KERNELS)

    monkeypatch.setattr(toolchain, "tune_model", tune_model)
    return options


def test_every_flag_reaches_the_options(received: list[TuneOptions]):
    flags = {
        "--quantization": "q0f32",
        "--model-type": "llama",
        "--device": "cpu:znver4",
        "--opt": "O2",
        "--overrides": "max_batch_size=4",
        "--kv-cache-dtype": "int8",
        "--database": "db",
        "--budget": "90s",
        "--strategy": "beam",
        "--workers": "tcp://host:8786",
    }
    assert main(["tune", "dist", *(word for pair in flags.items() for word in pair)]) == 0
    compiling = CompileOptions(
        model="dist",
        output=Path("lib.so"),
        device="cpu:znver4",
        opt="O2",
        overrides="max_batch_size=4",
        quantization="q0f32",
        kv_cache_dtype="int8",
        model_type="llama",
    )
    assert received == [TuneOptions(compiling, Path("db"), "90s", "beam", "tcp://host:8786")]


def test_gains_are_printed(received: list[TuneOptions], capsys: pytest.CaptureFixture[str]):
    assert main(["tune", "dist", "--database", "db"]) == 0
    title, head, first, second = capsys.readouterr().out.splitlines()
    assert title == "target cpu, 40 trials, database db"
    assert head.split("  ")[0] == "kernel"
    assert first.split() == ["linear", "10", "12.50", "10.00", "1.25", "40", "2"]
    assert second.split() == ["rope", "5", "-", "-", "-", "0", "0", "no", "time"]
    assert main(["tune", "dist", "--database", "db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["gain"] == 1.25


def test_predictions_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    report = TuneReport("cuda:sm_90a", Path("db"), 40, KERNELS, predicted=True)
    monkeypatch.setattr(toolchain, "tune_model", lambda given, progress=None: report)
    assert main(["tune", "dist", "--database", "db"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[1] == "times are predictions: this machine has no GPU that runs this code"
    )


def test_a_plot_needs_matplotlib(
    received: list[TuneOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["tune", "dist", "--database", "db", "--plot", "gains.png"]) == 4
    assert received == [] and "--plot needs matplotlib" in capsys.readouterr().err
    assert main(["tune", "dist", "--database", "db", "--plot", "gains.jpg"]) == 2
    assert "got '.jpg'; expected one of .png, .svg, .pdf" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--budget", "soon"), ("--strategy", "luck")])
def test_wrong_values_are_named(flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["tune", str(tmp_path), "--database", str(tmp_path / "db"), flag, value]) == 2
    assert value in capsys.readouterr().err and not (tmp_path / "db").exists()
