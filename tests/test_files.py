"""Atomic writes: through symbolic links, and to regular files only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_files import copy_library, whole_file


def write(path: Path, data: bytes) -> None:
    with whole_file(path) as file:
        file.write(data)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_link_to_nothing_makes_the_file(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing")
    write(link, b"new")
    assert link.is_symlink() and (tmp_path / "missing").read_bytes() == b"new"


def test_pipes_and_devices_are_refused(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(OSError, match="it is not a regular file"):
            write(path, b"new")
    with pytest.raises(MLCError, match="cannot write the library: it is not a regular file"):
        copy_library(Path(__file__), pipe)
    assert pipe.is_fifo() and [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_a_failed_write_leaves_the_file(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ValueError), whole_file(path) as file:
        file.write(b"new")
        raise ValueError
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1
