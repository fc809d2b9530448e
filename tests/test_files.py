"""Atomic writes: through symbolic links, and to regular files only."""

from __future__ import annotations

import errno
import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from mlc_errors import MLCError, ResourceError
from mlc_files import (
    NO_SUM,
    SUM_KEY,
    cannot_write,
    check_library,
    check_writable,
    copy_library,
    read_limited,
    seal_library,
    whole_file,
)


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


@pytest.mark.parametrize(("code", "text"), [(errno.ENOSPC, "No space left on device"), (errno.EFBIG, "File too large")])
def test_a_full_disk_is_a_missing_resource(code: int, text: str):
    error = cannot_write("the library", Path("/disk/x"), OSError(code, text))
    assert (type(error), str(error)) == (ResourceError, f"cannot write the library: {text}\n  in   /disk/x")


def test_a_library_is_executable_by_those_who_may_read_it(tmp_path: Path):
    before = os.umask(0o027)
    try:
        copy_library(Path(__file__), tmp_path / "lib.so")
    finally:
        os.umask(before)
    assert (tmp_path / "lib.so").stat().st_mode & 0o777 == 0o750


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


def test_reads_are_bounded_and_of_regular_files(tmp_path: Path):
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    path.write_bytes(b"x" * (1 << 20))
    os.mkfifo(pipe)
    assert read_limited(path, 1 << 20) == path.read_bytes()
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(MLCError, match="the file is larger than 1 MiB"):
        read_limited(path, 1 << 20)
    for other in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(MLCError, match="is not a regular file"):
            read_limited(other, 10)


def test_checking_that_a_file_can_be_written_changes_nothing(tmp_path: Path):
    path = tmp_path / "file"
    check_writable(path, "the report")
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    check_writable(path, "the report")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(MLCError, match="cannot write the report: Is a directory"):
        check_writable(tmp_path, "the report")


def test_a_sealed_library_has_its_sum(tmp_path: Path):
    path = tmp_path / "lib.so"
    plain = b"code" + json.dumps({"format": "x", SUM_KEY: NO_SUM}).encode() + b"more code"
    path.write_bytes(plain)
    check_library(path)
    seal_library(path)
    sealed = path.read_bytes()
    assert sealed == plain.replace(NO_SUM.encode(), sha256(plain).hexdigest().encode())
    check_library(path)
    for damaged in (sealed.replace(b"more", b"mere"), sealed[:-1], sealed.replace(b"code", b"node", 1)):
        path.write_bytes(damaged)
        with pytest.raises(MLCError, match="the library is damaged: it does not have its checksum"):
            check_library(path)


def test_a_library_whose_entry_of_the_sum_is_damaged(tmp_path: Path):
    path = tmp_path / "lib.so"
    path.write_bytes(json.dumps({"format": "x", SUM_KEY: NO_SUM}).encode())
    seal_library(path)
    path.write_bytes(path.read_bytes().replace(b"library_sha", b"libsary_sha"))
    with pytest.raises(MLCError, match="the library is damaged: it does not have its checksum"):
        check_library(path)
