"""`bench` on a tiny model: measurements are complete and consistent, and unsupported ones are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_evaluation import benchmark
from mlc_evaluation.benchmark import MachineLimits
from mlc_runtime.metadata import read_metadata

SMALL = ("--prompt-lengths", "7,30", "--generate", "4", "--batch", "1,3", "--depth", "0,20", "--repeat", "2")
LIMITS = MachineLimits(2e10, 2e11, None)


@pytest.fixture
def folder(tiny_folder: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(benchmark, "_limits", lambda threads: LIMITS)
    return tiny_folder("llama-odd-llama3", "q0f32")


def test_speed_and_shares(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", str(folder), *SMALL, "--json", "--threads", "1"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    metadata = read_metadata(folder / "lib.so")
    assert report["load_seconds"] > 0 and report["peak_bytes"] > report["params_bytes"] > 1e6
    assert [p["tokens"] for p in report["prefill"]] == [7, 30]
    for p in report["prefill"]:
        median = p["time_to_first_token_seconds"]["p50"]
        assert p["tokens_per_second"] == pytest.approx(p["tokens"] / median)
        assert p["share"] == pytest.approx(p["operations"] / median / LIMITS.operations)
    rows = {(d["batch"], d["depth"]): d for d in report["decode"]}
    assert [*rows] == [(1, 0), (1, 20), (3, 0), (3, 20)]
    for (batch, _), d in rows.items():
        assert d["tokens_per_second"] == pytest.approx(batch / d["step_seconds"]["p50"])
        assert d["step_seconds"]["p10"] <= d["step_seconds"]["p50"] <= d["step_seconds"]["p99"]
    cache = 20 * metadata["kv_bytes_per_token"]
    assert rows[1, 20]["step_bytes"] - rows[1, 0]["step_bytes"] == cache
    assert rows[3, 20]["step_bytes"] - rows[3, 0]["step_bytes"] == 3 * cache
    assert report["params_bytes"] > rows[1, 0]["step_bytes"] > 0.5 * report["params_bytes"]


def test_profile_has_every_kernel(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "kernels.html"
    options = ("--prompt-lengths", "7", "--generate", "2", "--repeat", "1", "--profile", "--html", str(page))
    assert main(["bench", str(folder), *options, "--json", "--threads", "1"]) == 0
    kernels = json.loads(capsys.readouterr().out)["profile"]["kernels"]
    accounting = read_metadata(folder / "lib.so")["accounting"]
    for function in ("prefill", "decode"):
        rows = [k for k in kernels if k["function"] == function]
        expected = {k["kernel"]: k["calls"] for k in accounting[function]}
        assert {k["kernel"]: k["calls"] for k in rows} == expected
        assert sum(k["share"] for k in rows) == pytest.approx(1) and all(k["seconds"] > 0 for k in rows)
    text = page.read_text()
    assert text.count("<circle") == sum(bool(k["operations"]) for k in kernels)
    assert "http" not in text and text.count("<tr>") == len(kernels) + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt-lengths", "101"], "needs 101 tokens; the context holds 100"),
        (["--depth", "90", "--generate", "20"], "needs 110 tokens; the context holds 100"),
        (["--batch", "6"], "--batch: got 6; the library has max_batch_size 5"),
        (["--repeat", "0"], "--repeat: got 0; expected at least 1"),
        (["--batch", "1,x"], "--batch: got '1,x'; expected numbers with commas"),
        (["--html", "x.html"], "--html is for --profile"),
    ],
)
def test_what_cannot_be_measured(folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    small = ["--prompt-lengths", "7", "--generate", "2", *options]
    assert main(["bench", str(folder), *small]) == 2
    assert message in capsys.readouterr().err
