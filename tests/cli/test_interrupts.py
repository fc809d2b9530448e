"""Ctrl-C while packages are imported, and elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
SWALLOWING = "try:\n    import slow\nexcept BaseException:\n    raise ImportError('half a module')\n"
START = "import sys; sys.argv = ['-m']; import mlc_cli\n"
SCRIPT = "import sys; sys.argv = ['/usr/bin/mlc_cli', 'chat']; import mlc_cli\n"
OTHER = "import sys; sys.argv = ['/usr/bin/other']; import mlc_cli\n"


@pytest.mark.parametrize(
    ("program", "status", "shown"),
    [
        (START + "import slow", 130, "\ninterrupted\n"),
        (START + "import swallowing", 130, "\ninterrupted\n"),
        (SCRIPT + "import slow", 130, "\ninterrupted\n"),
        (OTHER + "import slow", -signal.SIGINT, "KeyboardInterrupt\n"),
        (START + SLOW, -signal.SIGINT, "KeyboardInterrupt\n"),
    ],
)
def test_an_interrupt(tmp_path: Path, program: str, status: int, shown: str):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "swallowing.py").write_text(SWALLOWING)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    assert process.returncode == status and error.endswith(shown)
    assert ("Traceback" in error) == (status != 130)
