"""`mlc_cli cache` on entries that are whole, outdated and incomplete."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from mlc_cli.__main__ import main
from mlc_errors import MLCError
from mlc_toolchain import model_cache
from mlc_toolchain.model_cache import MANIFEST, Manifest, entry_path, partial, publish, tool_stamp


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three entries: one of today, one that another version has made ten days ago, one that is incomplete."""
    monkeypatch.setenv("MLC_CACHE_DIR", str(tmp_path))
    for name, stamp, age in (("new", tool_stamp(), 0), ("old", "0.0.1", 10)):
        (partial(entry_path(name)) / "weights").write_bytes(bytes(1000))
        publish(partial(entry_path(name)), entry_path(name), Manifest(f"/models/{name}", "q4f16_1", stamp))
        used = time.time() - age * 86400
        os.utime(entry_path(name) / MANIFEST, (used, used))
    (partial(entry_path("half")) / "weights").write_bytes(bytes(10))
    os.utime(partial(entry_path("half")), (time.time() - 86400,) * 2)
    return tmp_path


def names() -> list[str]:
    return sorted(entry.path.name for entry in model_cache.entries())


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["cache", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list(cache: Path, capsys: pytest.CaptureFixture[str]):
    found = {entry["state"]: entry for entry in listed(capsys, "list")["entries"]}
    assert set(found) == {"ready", "outdated", "incomplete"}
    assert (found["ready"]["model"], found["ready"]["quantization"]) == ("/models/new", "q4f16_1")
    assert found["incomplete"]["bytes"] == 10 and found["outdated"]["used"] < found["ready"]["used"]
    assert main(["cache", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["used", "size", "state", "weights", "model"]
    assert [row.split()[4] for row in sorted(rows)] == ["outdated", "incomplete", "ready"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], ["new"]),
        (["--older-than", "1d"], ["new"]),
        (["--older-than", "0s"], []),
        (["--all"], []),
        (["--all", "--dry-run"], ["half.partial", "new", "old"]),
    ],
)
def test_prune(options: list[str], kept: list[str], capsys: pytest.CaptureFixture[str]):
    count = len(names())
    assert len(listed(capsys, "prune", *options)["entries"]) == (count if "--dry-run" in options else count - len(kept))
    assert names() == kept


def test_prune_says_what_it_does(capsys: pytest.CaptureFixture[str]):
    assert main(["cache", "prune"]) == 0
    assert sorted(line.split()[0] for line in capsys.readouterr().out.splitlines()) == ["removed"] * 2
    assert main(["cache", "prune", "--older-than", "x"]) == 2
    assert "--older-than: got 'x'; expected a number and one of s, m, h, d, w" in capsys.readouterr().err


def test_an_empty_cache(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("MLC_CACHE_DIR", str(cache / "none"))
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().err == f"nothing is prepared in {cache / 'none'}\n"


def test_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch):
    (cache / "file").touch()
    monkeypatch.setenv("MLC_CACHE_DIR", str(cache / "file"))
    with pytest.raises(MLCError, match="cannot write to the cache of prepared models: Not a directory"):
        partial(entry_path("x"))
