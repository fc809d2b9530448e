"""Progress, tables and reports as text and as JSON."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlc_cli import console
from mlc_toolchain.progress import Step

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Report:
    output: Path = Path("dist/lib.so")
    functions: tuple[str, ...] = ("embed", "decode")
    num_kernels: int = 412
    params_bytes: int = 98_362_432
    seconds_per_phase: dict[str, float] = field(default_factory=lambda: {"lower": 0.0123, "link": 65.0})
    bits_per_parameter: float = 4.50123
    resumed: bool = False
    note: str | None = None


def test_report_as_text(capsys: pytest.CaptureFixture[str]):
    console.show(Report(), "report/1")
    assert capsys.readouterr().out.splitlines() == [
        "output              dist/lib.so",
        "functions           embed, decode",
        "num kernels         412",
        "params bytes        98.4 MB",
        "seconds per phase   lower 12 ms, link 1 min 05 s",
        "bits per parameter  4.501",
        "resumed             no",
    ]


def test_units_come_from_the_name(capsys: pytest.CaptureFixture[str]):
    @dataclass(frozen=True)
    class Sizes:
        kv_bytes_per_token: int = 23040
        seconds: float = 2.34
        tokens: int = 8192

    console.show(Sizes(), "sizes/1")
    assert capsys.readouterr().out.split("\n")[:3] == [
        "kv bytes per token  23 KB",
        "seconds             2.3 s",
        "tokens              8192",
    ]


def test_report_as_json(capsys: pytest.CaptureFixture[str]):
    console.show(Report(), "report/1", as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "schema": "report/1",
        "output": "dist/lib.so",
        "functions": ["embed", "decode"],
        "num_kernels": 412,
        "params_bytes": 98_362_432,
        "seconds_per_phase": {"lower": 0.0123, "link": 65.0},
        "bits_per_parameter": 4.50123,
        "resumed": False,
        "note": None,
    }


def test_long_lists_are_cut_in_text(capsys: pytest.CaptureFixture[str]):
    console.show(Report(functions=tuple(f"f{i}" for i in range(15))), "report/1")
    assert "f10, f11, and 3 more" in capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]):
    console.table(["name", "tokens/s"], [["decode", 9.5], ["prefill", 120.25]])
    assert capsys.readouterr().out.splitlines() == ["name     tokens/s", "decode        9.5", "prefill    120.25"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (98_362_432, "98.4 MB"), (2.5e12, "2.5 TB")]
)
def test_format_bytes(count: float, text: str):
    assert console.format_bytes(count) == text


def test_lines_are_ten_seconds_apart_and_close_each_stage():
    times = iter([0.0, 4.0, 10.0, 12.0, 20.0, 20.0, 31.0, 32.0])
    stream = io.StringIO()
    lines = console.Lines(stream, clock=lambda: next(times))
    for done in (0, 40, 100, 120, 272):
        lines(Step("convert", done, 272, "tensors", done * 1_000_000, 272_000_000))
    for done, detail in ((0, "passes"), (0, "linking"), (1, "")):
        lines(Step("compile", done, 1, detail=detail))
    assert stream.getvalue().splitlines() == [
        "convert  100/272 tensors  100 MB of 272 MB  10 MB/s  17.2 s left",
        "convert  272/272 tensors  272 MB of 272 MB  13.6 MB/s  in 20.0 s",
        "compile  linking",
        "compile  in 12.0 s",
    ]


def test_progress_is_silent_with_json(capsys: pytest.CaptureFixture[str]):
    with console.progress(as_json=True) as progress:
        progress(Step("convert", 1, 1))
    assert capsys.readouterr() == ("", "")


def bar_on_a_terminal(**environment: str) -> str:
    """The output of a finished bar on a 100-column terminal."""
    code = (
        "from mlc_cli import console; from mlc_toolchain.progress import Step\n"
        "with console.progress() as progress:\n"
        "    progress(Step('convert', 0, 4, 'tensors', 0, 2_000_000))\n"
        "    progress(Step('convert', 4, 4, 'tensors', 2_000_000, 2_000_000))\n"
    )
    reader, writer = os.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    settings = {**kept, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, stderr=writer, check=True)
    os.close(writer)
    text = b""
    try:
        while chunk := os.read(reader, 65536):
            text += chunk
    except OSError:  # Linux raises EIO when the other end is closed
        pass
    os.close(reader)
    return text.decode()


COLOR = re.compile(r"\x1b\[[0-9;]*3[0-9]")


def test_bar_on_a_terminal():
    text = bar_on_a_terminal()
    assert "4/4 tensors  2 MB of 2 MB" in text
    assert COLOR.search(text)


def test_no_color_is_honoured():
    text = bar_on_a_terminal(NO_COLOR="1")
    assert "4/4 tensors  2 MB of 2 MB" in text
    assert not COLOR.search(text)
