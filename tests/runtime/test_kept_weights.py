"""Packed weights in a file: what is read back, when it is used, and when it is not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mlc_files import NO_SUM, SUM_KEY
from mlc_runtime import kept_weights
from mlc_runtime.kept_weights import HEADER_BYTES, huge_bytes, identity, is_whole, read_kept, write_kept
from mlc_runtime.model_spec import PackedLayout, ParamSpec
from mlc_runtime.weights import TensorCache, load_params
from tests.runtime.fake_library import write_weights

PLAIN = ParamSpec("plain", (3,), "uint8", None)
CODES = ParamSpec("codes", (4, 2), "uint32", PackedLayout((2, 4), "uint32", "pack"))
SCALES = ParamSpec("scales", (3,), "float16", PackedLayout((1, 3), "float16", "pack"))
SPECS = (PLAIN, CODES, SCALES)
ARRAYS = (np.arange(8, dtype=np.uint32).reshape(2, 4), np.float16([[1.5, -2, 0.25]]))
LIBRARY = {SUM_KEY: "1" * 64}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packed weights of SPECS, on a system that maps them in huge pages."""
    monkeypatch.setattr(kept_weights, "huge_bytes", lambda address: 1 << 30)
    write_kept(tmp_path / "lib.weights", "key", SPECS, ARRAYS)
    return tmp_path / "lib.weights"


@pytest.mark.parametrize("chunk", [1, 40, 64, 1 << 20])
def test_arrays_are_those_that_were_written(file: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "CHUNK_BYTES", max(chunk, HEADER_BYTES // 64))
    write_kept(file, "key", SPECS, ARRAYS)
    kept = read_kept(file, "key", SPECS)
    assert kept is not None and is_whole(file) and kept.find(PLAIN) is None
    for spec, array in zip(SPECS[1:], ARRAYS, strict=True):
        found = kept.find(spec)
        assert found is not None and found.ctypes.data % 64 == 0 and not found.flags.writeable
        np.testing.assert_array_equal(found, array, strict=True)


def test_they_are_not_packed_again(file: Path, tmp_path: Path) -> None:
    stored = {"plain": np.arange(3, dtype=np.uint8), "codes": ARRAYS[0].T.copy(), "scales": ARRAYS[1][0].copy()}
    write_weights(tmp_path, {name: (array, "raw") for name, array in stored.items()})
    kept, cache = read_kept(file, "key", SPECS), TensorCache(tmp_path)
    params = load_params(SPECS, cache, lambda function, *_: pytest.fail(function), kept=kept)
    assert [a.tolist() for a in params.arrays] == [[0, 1, 2], *(a.tolist() for a in ARRAYS)]
    assert params.table.tolist() == [a.ctypes.data for a in params.arrays]


def test_other_weights_and_libraries(file: Path) -> None:
    assert read_kept(file, "another key", SPECS) is None
    assert read_kept(file, None, SPECS) is None
    assert read_kept(file.with_name("missing"), "key", SPECS) is None


def test_a_file_that_is_cut_off_or_damaged(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert read_kept(file, "key", SPECS) is None
    file.write_bytes(b"[" + whole[1:])
    assert read_kept(file, "key", SPECS) is None
    file.write_bytes(b"")
    assert read_kept(file, "key", SPECS) is None
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert not is_whole(file)


def test_a_system_with_small_pages_for_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "huge_bytes", lambda address: 0)
    assert read_kept(file, "key", SPECS) is None


def test_a_small_file_is_not_in_huge_pages(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "small", np.uint8, "w+", shape=(4096,))
    array[0] = 1
    assert huge_bytes(array.ctypes.data) == 0


def test_what_they_depend_on(tmp_path: Path) -> None:
    write_weights(tmp_path, {"plain": (np.arange(3, dtype=np.uint8), "raw")})
    shards = TensorCache(tmp_path).shards
    first = identity(LIBRARY, tmp_path, shards)
    assert first == identity(LIBRARY, tmp_path, shards) != identity({SUM_KEY: "2" * 64}, tmp_path, shards)
    os.utime(tmp_path / shards[0].name, ns=(1, 1))
    assert identity(LIBRARY, tmp_path, shards) != first
    assert identity({SUM_KEY: NO_SUM}, tmp_path, shards) is identity({}, tmp_path, shards) is None
