"""Weight files: the two storage formats, alignment, and damaged indexes."""

from __future__ import annotations

import json
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from mlc_errors import MLCError, ResourceError
from mlc_runtime import weights
from mlc_runtime.arrays import Region
from mlc_runtime.model_spec import PackedLayout, ParamSpec
from mlc_runtime.weight_index import is_plain_name
from mlc_runtime.weights import TensorCache, load_params
from tests.runtime.fake_library import write_weights

F32 = np.array([[1.5, -2.0, 1.00390625]], np.float32)  # the last one is not a bfloat16


@pytest.fixture
def folder(tmp_path):
    tensors = {
        "odd": (np.arange(3, dtype=np.uint8), "raw"),
        "q": (np.arange(8, dtype=np.uint32).reshape(2, 4), "f32-to-bf16"),
        "exact": (F32, "raw"),
        "rounded": (F32, "f32-to-bf16"),
        "half": (np.array([1, 2], np.float16), "f32-to-bf16"),
        "brain": (np.array([1, 2], ml_dtypes.bfloat16), "raw"),
    }
    write_weights(tmp_path, tensors)
    return tmp_path


def spec(name, shape, dtype, packed=None):
    return ParamSpec(name, tuple(shape), dtype, packed)


def no_packing(function, source, packed):
    raise AssertionError(function)


def test_values(folder):
    cache = TensorCache(folder, verify=True)
    assert cache.read("q").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert np.array_equal(cache.read("exact"), F32)
    assert cache.read("rounded").dtype == np.float32 and cache.read("rounded").tolist() == [[1.5, -2.0, 1.0]]
    assert cache.read("half").tolist() == [1, 2]
    assert cache.read("brain").dtype == ml_dtypes.bfloat16


def test_table_holds_aligned_addresses_in_order(folder):
    specs = [spec("q", [2, 4], "uint32"), spec("exact", [1, 3], "float32"), spec("odd", [3], "uint8")]
    seen = []
    params = load_params(specs, TensorCache(folder), no_packing, lambda *counts: seen.append(counts))
    assert params.table.tolist() == [a.ctypes.data for a in params.arrays]
    assert all(address % 64 == 0 for address in params.table)
    assert [a.tobytes() for a in params.arrays] == [np.arange(8, dtype="<u4").tobytes(), F32.tobytes(), b"\0\1\2"]
    assert seen == [(1, 3, 32, 47), (2, 3, 44, 47), (3, 3, 47, 47)]


def test_packing_goes_through_the_library(folder):
    def pack(function, source, packed):
        assert (function, str(source.dtype), packed.shape) == ("pack_0", "uint32", (4, 2))
        np.from_dlpack(packed)[...] = np.from_dlpack(source).T

    layout = PackedLayout((4, 2), "uint32", "pack_0")
    cache = TensorCache(folder)
    params = load_params([spec("q", [2, 4], "uint32", layout)], cache, pack)
    assert params.arrays[0].tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]] and params.nbytes == 32
    assert cache.read("q")[1, 3] == 7


def test_packed_weights_follow_each_other_in_huge_pages(folder):
    def pack(function, source, packed):
        np.from_dlpack(packed)[...] = np.from_dlpack(source).reshape(packed.shape)

    specs = [
        spec("q", [2, 4], "uint32", PackedLayout((4, 2), "uint32", "pack_0")),
        spec("exact", [1, 3], "float32"),
        spec("odd", [3], "uint8", PackedLayout((3,), "uint8", "pack_1")),
    ]
    params = load_params(specs, TensorCache(folder), pack)
    first, _, last = (int(address) for address in params.table)
    assert first % (2 << 20) == 0 and last == first + 64
    assert (params.arrays[0].tolist(), params.arrays[2].tolist()) == ([[0, 1], [2, 3], [4, 5], [6, 7]], [0, 1, 2])


def test_no_address_space_for_weights():
    with pytest.raises(ResourceError, match="(?s)cannot reserve 1152921504609 MB of address space.*fewer bits"):
        Region(1 << 60)


def test_weights_are_freed_when_they_are_dropped(folder, monkeypatch):
    freed = []
    monkeypatch.setattr(weights, "return_free_memory", lambda: freed.append(1))
    names = next(iter(TensorCache(folder).records.values()))
    params = load_params([spec(names.name, list(names.shape), names.dtype)], TensorCache(folder), no_packing)
    arrays = params.arrays
    del params
    assert (arrays, freed) == ([], [1])


def test_mismatches_are_listed(folder):
    specs = [spec("q", [2, 4], "int32"), spec("exact", [3], "float32"), spec("gone", [1], "int8")]
    with pytest.raises(MLCError, match="3 of 3 parameters") as caught:
        load_params(specs, TensorCache(folder), no_packing)
    assert caught.value.where[:3] == (
        "q is uint32 [2, 4]; the library expects int32 [2, 4]",
        "exact is float32 [1, 3]; the library expects float32 [3]",
        "gone is missing",
    )


def test_long_lists_of_mismatches_are_cut(folder):
    with pytest.raises(MLCError, match="30 of 30") as caught:
        load_params([spec(f"p{i}", [1], "int8") for i in range(30)], TensorCache(folder), no_packing)
    assert caught.value.where[8] == "… and 22 more"


def change(folder, **entries):
    """Replace keys of the shard in the index, or, as `record_KEY`, of its first tensor."""
    index = json.loads((folder / "tensor-cache.json").read_text())
    shard = index["records"][0]
    for key, value in entries.items():
        target = shard["records"][0] if key.startswith("record_") else shard
        target[key.removeprefix("record_")] = value
    (folder / "tensor-cache.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"dataPath": "../params_shard_0.bin"}, "plain file name"),
        ({"dataPath": "missing.bin"}, "missing.bin is missing"),
        ({"nbytes": 1 << 50}, "bytes; the index says 1125899906842624"),
        ({"records": {}, "nbytes": "7"}, "bytes; the index says 7"),
        ({"records": 5}, "malformed"),
        ({"record_byteOffset": 1 << 40}, "which has"),
        ({"record_byteOffset": 60}, "odd is at bytes 60 to 63 of params_shard_0.bin, which has 61"),
        ({"record_byteOffset": -3}, "at bytes -3"),
        ({"record_nbytes": 4}, r"uint8 \[3\] needs 3"),
        ({"record_shape": [-3]}, r"shape \[-3\]"),
        ({"record_shape": [2**63, 2]}, "needs"),
        ({"record_shape": "3"}, "shape 3"),
        ({"record_name": "q"}, "names q twice"),
        ({"record_name": ["q"]}, "name is"),
        ({"record_format": "zip"}, "format is 'zip'; expected raw or f32-to-bf16"),
        ({"record_dtype": "object"}, "unknown data type 'object'"),
    ],
)
def test_damaged_index(folder, entries, message):
    change(folder, **entries)
    with pytest.raises(MLCError, match=message):
        TensorCache(folder)


def test_damaged_files(folder):
    (folder / "params_shard_0.bin").write_bytes(bytes((folder / "params_shard_0.bin").stat().st_size))
    TensorCache(folder)
    with pytest.raises(MLCError, match="md5"):
        TensorCache(folder, verify=True)
    (folder / "params_shard_0.bin").write_bytes(b"short")
    with pytest.raises(MLCError, match="has 5 bytes"):
        TensorCache(folder)
    (folder / "tensor-cache.json").write_text("{}")
    with pytest.raises(MLCError, match="malformed"):
        TensorCache(folder)
    (folder / "tensor-cache.json").unlink()
    with pytest.raises(MLCError, match=r"the folder has no weights: no tensor-cache\.json, ndarray-cache\.json, "):
        TensorCache(folder)


def test_the_older_name_of_the_index(folder):
    (folder / "tensor-cache.json").rename(folder / "ndarray-cache.json")
    assert TensorCache(folder, verify=True).read("odd").tolist() == [0, 1, 2]


def save_safetensors(path, **tensors):
    safetensors.numpy.save_file(tensors, path)


def test_safetensors(tmp_path):
    weights = {"b": np.arange(3, dtype=np.uint8), "a": F32, "h": np.array([1, 2], ml_dtypes.bfloat16)}
    save_safetensors(tmp_path / "model.safetensors", **weights)
    cache = TensorCache(tmp_path)
    for name, value in weights.items():
        assert cache.read(name).dtype == value.dtype and np.array_equal(cache.read(name), value)


def test_safetensors_in_shards(tmp_path):
    save_safetensors(tmp_path / "model-1.safetensors", a=F32)
    save_safetensors(tmp_path / "model-2.safetensors", b=F32 * 2)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert np.array_equal(TensorCache(tmp_path).read("b"), F32 * 2)
    index["weight_map"]["b"] = "../model-2.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MLCError, match="expected a plain file name"):
        TensorCache(tmp_path)


def test_damaged_safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    save_safetensors(path, a=F32)
    whole = path.read_bytes()
    for data, message in (
        (whole[:-1], r"has \d+ bytes; the index says"),
        (whole[:9], "malformed"),
        (b"\xff" * 16, "has 18446744073709551615 bytes"),
        (whole.replace(b"F32", b"X32"), "dtype 'X32'"),
        (whole.replace(b"[1,3]", b"[1,4]"), r"float32 \[1, 4\] needs 16"),
    ):
        path.write_bytes(data)
        with pytest.raises(MLCError, match=message):
            TensorCache(tmp_path)


OUTSIDE = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/b",
    "a\\b",
    "C:x",
    "\\\\host\\x",
    "x\0",
    "..",
    ".",
    "",
    "x\n",
    None,
    3,
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_leave_the_folder_are_never_opened(folder, name):
    change(folder, dataPath=name)
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    with pytest.raises(MLCError, match="plain file name"):
        TensorCache(folder)
    assert {str(p) for p in opened} <= {str(folder / "tensor-cache.json")}


def test_plain_names():
    assert is_plain_name("params_shard_12.bin") and is_plain_name("..a") and not is_plain_name("x" * 256)
