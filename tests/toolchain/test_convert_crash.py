"""After a kill or a failed write, no partial output is visible, and a rerun writes identical files."""

import errno
import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

import mlc_toolchain.writer
from mlc_errors import MLCError, ResourceError
from mlc_toolchain import output_layout
from mlc_toolchain.conversion_plan import describe_model, plan_weights
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.source import resolve_source
from quantization.schemes import get_scheme

SOURCE = Path(__file__).parent.parent / "data" / "reference" / "source"
BOUNDARIES = ("open", "write", "fsync", "replace", "unlink")
RANDOM_KILLS = 50


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(output_layout, "MLC_SHARD_BYTES", 60_000)


def convert(folder, scheme="q4f16_1"):
    source = resolve_source(str(SOURCE))
    scheme = get_scheme(scheme)
    conversion = plan_weights(describe_model(source.config(), "auto", scheme), scheme, source.weights())
    return run_conversion(conversion, folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def check_visible(folder):
    """Every file that an index names exists and is complete."""
    index = folder / "tensor-cache.json"
    if index.exists():
        for shard in json.loads(index.read_text())["records"]:
            assert hashlib.md5((folder / shard["dataPath"]).read_bytes()).hexdigest() == shard["md5sum"]


class Syscalls:
    """Replaces the module ``os`` in the writer: calls ``act(call number, name)`` before each boundary."""

    def __init__(self, act):
        self.act = act
        self.calls = 0

    def __getattr__(self, name):
        original = getattr(os, name)
        if name not in BOUNDARIES:
            return original

        def counted(*args, **kwargs):
            self.calls += 1
            return self.act(self.calls, name) or original(*args, **kwargs)

        return counted


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_layout, "MLC_SHARD_BYTES", 60_000)
        counter = Syscalls(lambda number, name: None)
        patch.setattr(mlc_toolchain.writer, "os", counter)
        convert(folder)
    return contents(folder), counter.calls


def in_child(work):
    """Run ``work`` in a forked process; returns its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def test_output_has_several_shards(undisturbed):
    files, calls = undisturbed
    assert len(files) >= 5
    assert calls > 30


def test_killed_at_every_boundary_a_rerun_ends_identical(undisturbed, tmp_path, monkeypatch):
    expected, calls = undisturbed
    killed = 0
    for boundary in range(1, calls + 1):
        folder = tmp_path / str(boundary)

        def die(number, name, boundary=boundary):
            if number == boundary:
                os.kill(os.getpid(), signal.SIGKILL)

        def work(folder=folder, die=die):
            mlc_toolchain.writer.os = Syscalls(die)
            convert(folder)

        _, status = os.waitpid(in_child(work), 0)
        killed += os.WIFSIGNALED(status)
        check_visible(folder)
        convert(folder)
        assert contents(folder) == expected
        assert not (folder / ".mlc-partial").exists()
    assert killed == calls


def test_killed_at_random_moments_a_rerun_ends_identical(undisturbed, tmp_path):
    expected, _ = undisturbed
    started = time.monotonic()
    convert(tmp_path / "timed")
    span = time.monotonic() - started
    moments = random.Random(4)
    killed = 0
    for attempt in range(RANDOM_KILLS):
        folder = tmp_path / str(attempt % 5)  # folders are reused: a killed run may find an earlier output
        child = in_child(lambda folder=folder: convert(folder))
        time.sleep(moments.random() * span)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        else:  # it had ended: the machine is less busy now than when an undisturbed run was timed
            span *= 0.8
        if folder.exists():
            check_visible(folder)
        if attempt % 5 == 4:
            convert(folder)
            assert contents(folder) == expected
    for folder in map(str, range(5)):
        convert(tmp_path / folder)
        assert contents(tmp_path / folder) == expected
    assert killed > RANDOM_KILLS / 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=["ENOSPC", "EIO", "EDQUOT"])
def test_every_failing_call_is_an_error_and_a_rerun_succeeds(code, undisturbed, tmp_path, monkeypatch):
    expected, calls = undisturbed
    convert(tmp_path / "before", "q0f16")
    previous = contents(tmp_path / "before")
    for failing in range(1, calls + 1):
        folder = tmp_path / str(failing)
        folder.mkdir()
        for name, data in previous.items():
            (folder / name).write_bytes(data)

        def fail(number, name, failing=failing):
            if number == failing:
                raise OSError(code, os.strerror(code), "params_shard_0.bin")

        with monkeypatch.context() as patch:
            patch.setattr(mlc_toolchain.writer, "os", Syscalls(fail))
            with pytest.raises(MLCError) as caught:
                convert(folder)
        assert isinstance(caught.value, ResourceError) == (code != errno.EIO)
        check_visible(folder)
        if not (folder / "tensor-cache.json").exists():
            assert failing > calls - 25  # only the final renaming removes the previous output
        else:
            assert contents(folder) in (previous, expected)
        convert(folder)
        assert contents(folder) == expected


def test_short_writes_are_continued(undisturbed, tmp_path, monkeypatch):
    class ShortWrites(Syscalls):
        def write(self, descriptor, data):
            return os.write(descriptor, data[: max(1, len(data) // 3)])

    monkeypatch.setattr(mlc_toolchain.writer, "os", ShortWrites(lambda number, name: None))
    convert(tmp_path)
    assert contents(tmp_path) == undisturbed[0]


def test_a_full_disk_reports_the_missing_bytes(tmp_path, monkeypatch):
    class Usage:
        free = 1000

    monkeypatch.setattr(mlc_toolchain.writer.shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(ResourceError, match="277912 missing"):
        convert(tmp_path)


def test_a_resumed_run_keeps_what_was_complete(tmp_path, monkeypatch, undisturbed):
    def fail(number, name):
        if number == undisturbed[1] // 2:
            raise OSError(errno.EIO, "stop")

    with monkeypatch.context() as patch:
        patch.setattr(mlc_toolchain.writer, "os", Syscalls(fail))
        with pytest.raises(MLCError):
            convert(tmp_path)
    resumed, _ = convert(tmp_path)
    assert 5 < resumed < 25
    assert contents(tmp_path) == undisturbed[0]


def test_damaged_staging_is_not_trusted(tmp_path, monkeypatch, undisturbed):
    def fail(number, name):
        if number == undisturbed[1] // 2:
            raise OSError(errno.EIO, "stop")

    with monkeypatch.context() as patch:
        patch.setattr(mlc_toolchain.writer, "os", Syscalls(fail))
        with pytest.raises(MLCError):
            convert(tmp_path)
    shard = tmp_path / ".mlc-partial" / "params_shard_0.bin"
    shard.write_bytes(bytes(shard.stat().st_size))
    (tmp_path / ".mlc-partial" / "journal.jsonl").open("ab").write(b'{"file": "params_sh')
    convert(tmp_path)
    assert contents(tmp_path) == undisturbed[0]


def test_another_scheme_does_not_continue_a_killed_run(tmp_path, monkeypatch, undisturbed):
    def fail(number, name):
        if number == undisturbed[1] // 2:
            raise OSError(errno.EIO, "stop")

    with monkeypatch.context() as patch:
        patch.setattr(mlc_toolchain.writer, "os", Syscalls(fail))
        with pytest.raises(MLCError):
            convert(tmp_path, "q4f32_1")
    assert convert(tmp_path)[0] == 0
    assert contents(tmp_path) == undisturbed[0]


def test_stale_shards_of_an_earlier_run_are_removed(tmp_path, undisturbed):
    convert(tmp_path, "q0f16")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "params_shard_99.bin").write_bytes(b"old")
    convert(tmp_path)
    assert contents(tmp_path) == {**undisturbed[0], "notes.txt": b"mine"}


def test_two_runs_on_one_folder_exclude_each_other(tmp_path):
    from mlc_toolchain.writer import _locked

    with _locked(tmp_path), pytest.raises(ResourceError, match="another conversion is writing"):
        convert(tmp_path)
