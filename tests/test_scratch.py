"""Temporary folders are deleted with their process, or by a later one if it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import mlc_scratch
from mlc_scratch import scratch_folder, temporary_folder

ROOT = Path(__file__).parents[1]
HOLDS = """
import sys
from mlc_scratch import new_folder, scratch_folder
kept = new_folder("build")
with scratch_folder(None, "mlc-calibration-") as folder:
    (kept / "lib.so").touch()
    (folder / "model").touch()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this process and the ones that it starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def started() -> subprocess.Popen[str]:
    """A process with files in two folders, until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def folders(place: Path) -> list[str]:
    """The folders in ``place`` that are not of this process."""
    own = {path.name for path in mlc_scratch._folders.values()}
    return sorted(path.name.rpartition("-")[0] for path in place.iterdir() if path.name not in own)


def test_a_process_that_ends_leaves_nothing(place: Path) -> None:
    process = started()
    assert folders(place) == ["mlc-calibration", "mlc-process"]
    process.communicate()
    assert (process.returncode, folders(place)) == (0, [])


def test_the_next_process_deletes_what_a_killed_one_left(place: Path) -> None:
    killed, running = started(), started()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert folders(place) == ["mlc-calibration", "mlc-calibration", "mlc-process", "mlc-process"]
    with temporary_folder("build"), scratch_folder(None, "mlc-calibration-"):
        pass
    assert folders(place) == ["mlc-calibration", "mlc-process"]
    running.communicate()
    assert (running.returncode, folders(place)) == (0, [])


def test_links_are_not_followed(place: Path) -> None:
    target = place / "elsewhere"
    target.mkdir()
    (place / "mlc-process-x").symlink_to(target)
    with temporary_folder("build"):
        pass
    assert target.is_dir()


def test_a_new_folder_that_another_process_deletes_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the first folder is deleted before its lock is taken."""
    made: list[str] = []

    def mkdtemp(prefix: str, dir: Path) -> str:
        made.append(str(dir / f"{prefix}{len(made)}"))
        if len(made) > 1:
            os.mkdir(made[-1])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with scratch_folder(place, "x-") as folder:
        assert made == [str(place / "x-0"), str(folder)]


def test_a_forked_process_has_its_own(place: Path) -> None:
    program = """
import os, sys
from mlc_scratch import new_folder
mine = new_folder("build")
if (child := os.fork()) == 0:
    print(new_folder("build").parent != mine.parent, flush=True)
    sys.exit()  # runs the atexit handlers
os.waitpid(child, 0)
print(mine.is_dir())
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr, folders(place)) == ("True\nTrue\n", "", [])
