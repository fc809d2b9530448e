import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from mlc_errors import UnsupportedError, UsageError
from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.readers.checkpoint import open_checkpoint
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.source import resolve_source


def packed(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def write_shards(folder, placed):
    for file in set(placed.values()):
        names = [name for name in placed if placed[name] == file]
        tensors = {name: np.full(3, len(name), np.float32) for name in names}
        safetensors.numpy.save_file(tensors, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


def test_reads_what_the_safetensors_package_writes(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        dtype: rng.integers(0, 2, (3, 5)).astype(dtype)
        for dtype in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    }
    tensors["scalar"] = np.full((), 3, np.float32)
    tensors["empty"] = np.zeros((0, 4), np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    reader = open_checkpoint(tmp_path)
    assert sorted(reader.names()) == sorted(tensors)
    assert reader.metadata == {"format": "pt"}
    for name, expected in tensors.items():
        made = reader.read(name)
        assert made.dtype == expected.dtype
        assert made.shape == expected.shape == reader.info(name).shape
        assert np.array_equal(made, expected)
        reader.release(name)
        assert np.array_equal(reader.read(name), expected)


@pytest.mark.parametrize(
    ("code", "dtype"), [("BF16", "bfloat16"), ("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")]
)
def test_small_floats_are_ml_dtypes(code, dtype, tmp_path):
    expected = np.array([1.5, -2, 0.25, 0], getattr(ml_dtypes, dtype))
    path = tmp_path / "a.safetensors"
    path.write_bytes(packed({"w": entry(code, (4,), (0, expected.nbytes))}, expected.tobytes()))
    made = SafetensorsReader(path).read("w")
    assert made.dtype == expected.dtype
    assert np.array_equal(made, expected)


def test_names_are_in_the_order_of_the_data(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(packed({"b": entry(offsets=(4, 8)), "a": entry(offsets=(0, 4))}, bytes(8)))
    assert SafetensorsReader(path).names() == ["a", "b"]


BROKEN = {
    "empty": (b"", "got 0 bytes"),
    "short": (b"\x01\x00", "got 2 bytes"),
    "header longer than the file": (packed({}, length=1 << 20), "header claims 1048576 bytes"),
    "header of 2^63 bytes": (packed({}, length=1 << 63), "header claims 9223372036854775808 bytes"),
    "leading blank": (packed(b" {}"), "starts with"),
    "no object": (packed(b"[1]"), "starts with"),
    "not JSON": (packed(b"{nope}"), "not valid JSON"),
    "not UTF-8": (packed(b'{"\xff": 1}'), "not UTF-8"),
    "deep nesting": (packed(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested too deeply"),
    "huge integer": (packed(b'{"a":' + b"9" * 1_000_000 + b"}"), "not valid JSON"),
    "same name twice": (packed(b'{"a":1,"a":1}'), "appears twice"),
    "entry is no object": (packed({"a": 3}), "expected dtype, shape and data_offsets"),
    "extra key": (packed({"a": {**entry(), "x": 1}}, bytes(4)), "expected dtype, shape and data_offsets"),
    "unknown dtype": (packed({"a": entry("F99")}, bytes(4)), "has dtype 'F99'"),
    "dtype is a list": (packed({"a": entry(["F32"])}, bytes(4)), "has dtype"),
    "negative size": (packed({"a": entry(shape=(-1,))}, bytes(4)), "non-negative sizes"),
    "size is a bool": (packed({"a": entry(shape=(True,))}, bytes(4)), "non-negative sizes"),
    "size is a float": (packed({"a": entry(shape=(1.0,))}, bytes(4)), "non-negative sizes"),
    "rank 9": (packed({"a": entry(shape=(1,) * 9)}, bytes(4)), "up to 8"),
    "shape of 2^189": (packed({"a": entry(shape=(1 << 63,) * 3)}, bytes(4)), "non-negative sizes"),
    "an empty shape that numpy cannot hold": (packed({"a": entry(shape=(1 << 62, 0), offsets=(0, 0))}), "non-negative"),
    "lying size": (packed({"a": entry(shape=(2,))}, bytes(4)), "has 4 bytes; expected 8"),
    "beyond the end": (packed({"a": entry(shape=(2,), offsets=(0, 8))}, bytes(4)), "the file holds 4 bytes"),
    "reversed offsets": (packed({"a": entry(offsets=(4, 0))}, bytes(4)), "lies at"),
    "bool offsets": (packed({"a": entry("U8", offsets=(False, True))}, bytes(1)), "lies at"),
    "overlap": (packed({"a": entry(), "b": entry()}, bytes(4)), "overlaps"),
    "hole": (packed({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)), "leaves a hole"),
    "bytes after the last": (packed({"a": entry()}, bytes(5)), "1 bytes follow"),
    "long name": (packed({"a" * 513: entry()}, bytes(4)), "longer than 512 bytes"),
    "metadata of numbers": (packed({"__metadata__": {"a": 1}}), "expected strings"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_clear_error_that_names_it(case, tmp_path):
    data, message = BROKEN[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        SafetensorsReader(path)
    assert message in caught.value.message
    assert caught.value.where == (str(path),)


def test_a_header_of_too_many_tensors_is_rejected_before_parsing(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed(b"{" + b'"a":{},' * 200_003 + b'"b":{}}'))
    with pytest.raises(CheckpointError, match="more than 200000 tensors"):
        SafetensorsReader(path)


def test_known_but_unsupported_dtypes_raise_unsupported_error(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed({"a": entry("F4", (2,), (0, 1))}, bytes(1)))
    with pytest.raises(UnsupportedError, match="has dtype 'F4'"):
        SafetensorsReader(path)


def test_shards_are_grouped_by_file(tmp_path):
    write_shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"})
    reader = open_checkpoint(tmp_path)
    assert reader.names() == ["a", "c", "b"]
    assert reader.read("b").tolist() == [1, 1, 1]
    assert reader.file_of("b") == tmp_path / "two.safetensors"


OUTSIDE = [
    "../secret.safetensors",
    "/etc/passwd",
    "a/../../secret.safetensors",
    "..\\secret.safetensors",
    "C:\\secret.safetensors",
    "C:secret.safetensors",
    "\\\\host\\share\\x",
    "//host/share/x",
    "x\0y",
    "",
    "..",
    "sub/../../secret.safetensors",
    "./../secret.safetensors",
    "link.safetensors",
    "linked/secret.safetensors",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_cannot_point_outside_its_folder(name, tmp_path, monkeypatch):
    folder = tmp_path / "outer" / "model"
    folder.mkdir(parents=True)
    for place in (tmp_path, tmp_path / "outer"):
        safetensors.numpy.save_file({"a": np.zeros(1, np.float32)}, place / "secret.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "outer" / "secret.safetensors")
    (folder / "linked").symlink_to(tmp_path / "outer")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert "model.safetensors.index.json" in caught.value.where[0]


def test_links_of_the_hub_cache_are_followed(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write_shards(blobs, {"a": "one.safetensors"})
    for file in ("one.safetensors", "model.safetensors.index.json"):
        os.symlink(os.path.join("..", "..", "blobs", file), snapshot / file)
    assert open_checkpoint(snapshot).names() == ["a"]


def test_index_and_shards_must_agree(tmp_path):
    write_shards(tmp_path, {"a": "one.safetensors", "b": "one.safetensors"})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
    with pytest.raises(CheckpointError, match="holds 'b', which the index does not name"):
        open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": dict.fromkeys("abc", "one.safetensors")}))
    with pytest.raises(CheckpointError, match="tensor 'c' is not in 'one.safetensors', where the index places it"):
        open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "two.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"shard 'two.safetensors' is missing"):
        open_checkpoint(tmp_path)
    for weight_map in ({}, [], {"a": 3}, None):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path)


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(CheckpointError, match="no weights in the folder"):
        open_checkpoint(tmp_path)


def test_sources_that_name_nothing(tmp_path):
    with pytest.raises(UsageError) as caught:
        resolve_source("meta-llama/Llama-3")
    assert caught.value.hint == "for a repository on Hugging Face write HF://meta-llama/Llama-3"
    with pytest.raises(UsageError, match=r"no config.json and no .gguf file"):
        resolve_source(str(tmp_path))
    (tmp_path / "x.txt").touch()
    with pytest.raises(UsageError, match=r"x.txt is no checkpoint"):
        resolve_source(str(tmp_path / "x.txt"))
