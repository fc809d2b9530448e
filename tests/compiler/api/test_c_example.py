"""The C program of examples/c: built by cc, it loads a library and calls it without Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "c"

EXPECTED = """\
metadata: {"format": "mlc-lib-3", ...
y[0] = 4.5 2
y[1] = 0.5 0
refused: main: argument out0 has size 3 on axis 0; expected 2
"""


def run(*command: str | Path, folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_a_c_program_calls_a_library(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run(sys.executable, EXAMPLE / "make_library.py", "linear.so", folder=tmp_path, env=environment)
    source = EXAMPLE / "call_library.c"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "call_library", source, "-ldl", folder=tmp_path)
    assert run("./call_library", "./linear.so", folder=tmp_path) == EXPECTED
