"""Small files are written atomically, with the permissions of the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_toolchain.text_files import write_files


def test_files_are_written_and_stale_ones_removed(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    write_files(folder, {"a": b"1", "b": b"2"})
    write_files(folder, {"b": b"3"}, stale=["a", "b", "c"])
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"b": b"3"}


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_mask_of_the_process(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        write_files(tmp_path, {"a": b""})
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inside").touch()
    with pytest.raises(MLCError, match="cannot write to the output folder: Is a directory"):
        write_files(tmp_path, {"a": b"1"})
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
