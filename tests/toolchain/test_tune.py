"""`tune` and `compile --tune`: a short search for a small model, its report, and the library with the tuned
schedules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlc_compiler.optimization import Optimization
from mlc_compiler.target import Target
from mlc_compiler.tuning import predict
from mlc_compiler.tuning.database import RECORDS, Database
from mlc_errors import MLCError
from mlc_toolchain import tuning
from mlc_toolchain.compile import CompileOptions, compile_model, source_of
from mlc_toolchain.tune import TuneOptions, tune_model
from mlc_toolchain.tuning import check_tuning, seconds_of
from tests.runtime.test_native import write_config


@pytest.fixture
def compiling(tmp_path: Path) -> CompileOptions:
    write_config(tmp_path)
    return CompileOptions(tmp_path, tmp_path / "lib.so", "cpu")


def test_what_a_search_finds_is_compiled(compiling: CompileOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tuning, "STEP", 2)
    seen: list[str] = []
    database = tmp_path / "db"
    report = tune_model(TuneOptions(compiling, database, "0.1s", "random"), lambda step: seen.append(step.detail))
    best = report.kernels[0]
    assert report.trials == best.trials > 0 and best.gain is not None and best.gain >= 1
    assert best.note == "" and all("share of the time" in k.note for k in report.kernels[1:])
    assert any(detail.startswith(f"{best.kernel}: 1 trials, best ") for detail in seen)
    assert len(Database(database)) == best.trials
    dump = tmp_path / "dump"
    compile_model(CompileOptions(tmp_path, tmp_path / "lib.so", "cpu", tune=str(database), debug_dump=dump))
    (scheduled, _) = sorted(dump.glob("*-apply-schedules.py"))
    assert '"schedule": "Tuned"' in scheduled.read_text()


def test_times_for_a_gpu_that_is_not_here_are_predictions(
    compiling: CompileOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tuning, "STEP", 2)
    monkeypatch.setattr(predict, "find_assembler", lambda: None)
    on_gpu = replace(compiling, device="cuda:sm_90a")
    seen: list[str] = []
    report = tune_model(TuneOptions(on_gpu, tmp_path / "db", "0.1s", "random"), lambda step: seen.append(step.detail))
    best = report.kernels[0]
    assert any(detail.endswith(" us predicted") for detail in seen)
    assert report.predicted and report.trials == best.trials >= 1 and best.gain is not None and best.gain >= 1
    records = (tmp_path / "db" / RECORDS).read_text().splitlines()
    assert [json.loads(line)[1][4]["predicted"] for line in records] == [True] * report.trials


def test_kernels_are_tasks_weighed_by_calls(compiling: CompileOptions):
    source = source_of(compiling)
    found = {t.name: t for t in tuning.tasks_of(source.exported.mod, source.machine, source.optimization, tuning.SIZES)}
    assert found["rms_norm"].calls == 25 and found["rms_norm"].described()[0] == ("float32", (1, 64, 40))
    assert not any("attention" in name for name in found)  # a kernel of its own


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5m", 90), ("1h", 3600), ("90", None), ("", None)])
def test_times(text: str, seconds: float | None):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "target", "opt", "message"),
    [
        ("quick", "cpu", "O3", "--tune: got 'quick'; expected a time such as 90s"),
        ("60s", "cpu", "O1", "--tune: schedules are off"),
    ],
)
def test_what_cannot_be_done_is_refused_first(text: str, target: str, opt: str, message: str):
    with pytest.raises(MLCError, match=message):
        check_tuning(text, Target(target), Optimization.parse(opt))
