"""The Python code of examples/README.md, run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[3] / "examples" / "README.md"


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": "examples"}
    linear, mlp, instruction = blocks
    exec(compile(linear, "linear", "exec"), names)
    assert np.asarray(names["y"]).tolist() == [[3.0, 3.0]] * 4
    assert (tmp_path / "linear.so").stat().st_size > 0
    exec(compile(mlp, "mlp", "exec"), names)
    assert np.asarray(names["y"]).tolist() == [[0.0] * 10] * 2
    exec(compile(instruction, "instruction", "exec"), names)
    assert np.asarray(names["out"]).tolist() == [[2.0] * 8] * 4
    assert "intrinsic.my.add8" in names["s"].func.script()  # type: ignore[attr-defined]
