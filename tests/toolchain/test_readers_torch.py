import json
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest
import torch

from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.readers.checkpoint import open_checkpoint
from mlc_toolchain.readers.tensor_pickle import PickleError
from mlc_toolchain.readers.torch_bin import TorchReader

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def some_tensors():
    torch.manual_seed(0)
    tensors = {name: (torch.randn(4, 6) * 3).to(getattr(torch, name)) for name in DTYPES}
    base = torch.arange(24.0).reshape(4, 6)
    tensors |= {"transposed": base.T, "columns": base[1:, 2:4], "same storage": base, "step": base[:, ::2]}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    return tensors


def as_numpy(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_reads_what_torch_saves(zipped, protocol, tmp_path):
    tensors = some_tensors()
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    reader = open_checkpoint(tmp_path)
    assert reader.names() == list(tensors)
    for name, tensor in tensors.items():
        made, expected = reader.read(name), as_numpy(tensor)
        assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(made, expected)
        reader.release(name)
        assert np.array_equal(reader.read(name), expected)


def test_reads_a_state_dict_with_metadata(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    torch.save(model.state_dict(), tmp_path / "a.bin")
    assert TorchReader(tmp_path / "a.bin").names() == ["0.weight", "0.bias", "1.weight", "1.bias"]
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "b.bin")
    assert TorchReader(tmp_path / "b.bin").names() == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_reads_fp8(tmp_path):
    tensor = torch.tensor([1.5, -2.0, 0.25]).to(torch.float8_e4m3fn)
    torch.save({"w": tensor}, tmp_path / "a.bin")
    made = TorchReader(tmp_path / "a.bin").read("w")
    assert made.dtype == ml_dtypes.float8_e4m3fn
    assert made.astype(np.float32).tolist() == [1.5, -2.0, 0.25]


class Reduce:
    def __init__(self, function, *arguments):
        self.function = function
        self.arguments = arguments

    def __reduce__(self):
        return self.function, self.arguments


def nested(function, *arguments):
    return {"w": torch.ones(1), "evil": [Reduce(function, *arguments)]}


def payloads(marker):
    """Pickles that would create ``marker`` if anything in them ran."""
    command = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w')"
    import builtins
    import importlib
    import runpy
    import shutil
    import subprocess
    import timeit

    calls = {
        "os.system": (os.system, command),
        "os.popen": (os.popen, command),
        "os.mkdir": (os.mkdir, str(marker)),
        "eval": (eval, code),
        "exec": (exec, code),
        "compile": (compile, code, "x", "exec"),
        "open": (builtins.open, str(marker), "w"),
        "getattr": (getattr, "os", "system"),
        "import": (importlib.import_module, "this"),
        "subprocess": (subprocess.Popen, ["touch", str(marker)]),
        "check_output": (subprocess.check_output, ["touch", str(marker)]),
        "timeit": (timeit.timeit, code),
        "run_path": (runpy.run_path, str(marker)),
        "copy": (shutil.copy, "/etc/hostname", str(marker)),
        "torch.load": (torch.load, str(marker)),
        "hub": (torch.hub.load, "a/b", "c"),
    }
    return {name: pickle.dumps({"evil": Reduce(*call)}, protocol=2) for name, call in calls.items()} | {
        "global only": b"\x80\x02cos\nsystem\nq\x00.",
        "instance": b"\x80\x02(cos\nsystem\no.",
        "inst": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "newobj": b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00a\x85\x81.",
        "newobj_ex": b"\x80\x04cos\nsystem\n)}\x92.",
        "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93X\x01\x00\x00\x00a\x85R.",
        "stack global of a tuple": b"\x80\x04)\x8c\x06system\x93X\x01\x00\x00\x00a\x85R.",
        "call a storage type": b"\x80\x02ctorch\nFloatStorage\nX\x01\x00\x00\x00a\x85R.",
        "dotted name": b"\x80\x04\x8c\x05torch\x8c\x09hub.load\x8c\x00\x93.",
        "build on a global": b"\x80\x02ctorch\nFloatStorage\n}b.",
        "extension": b"\x80\x02\x82\x01.",
        "reduce of a memo": b"\x80\x02cos\nsystem\nq\x010h\x01X\x01\x00\x00\x00a\x85R.",
        "persistent id by line": b"Pos.system\n.",
        "bytes": b"\x80\x03C\x01a.",
        "bytearray of 2^60 bytes": b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x10.",
        "memo index 2^31": b"\x80\x02}r\xff\xff\xff\x7fj\xfe\xff\xff\x7f.",
        "string of 2^60 bytes": b"\x80\x04\x8d\x00\x00\x00\x00\x00\x00\x00\x10.",
        "integer of 2^31 bytes": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "set": b"\x80\x04\x8f.",
    }


PAYLOADS = list(payloads("/nowhere"))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", PAYLOADS)
def test_nothing_in_a_pickle_runs(name, zipped, tmp_path):
    marker = tmp_path / "marker"
    payload = payloads(marker)[name]
    path = tmp_path / "pytorch_model.bin"
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", payload)
    else:
        path.write_bytes(payload)
    with pytest.raises(PickleError) as caught:
        TorchReader(path)
    assert not marker.exists()
    assert caught.value.where == (str(path),)


def test_a_payload_beside_tensors_is_refused(tmp_path):
    marker = tmp_path / "marker"
    torch.save(nested(os.system, f"touch {marker}"), tmp_path / "pytorch_model.bin")
    with pytest.raises(PickleError, match="'posix.system', which is no part of a tensor") as caught:
        open_checkpoint(tmp_path)
    assert "safetensors" in caught.value.hint
    assert not marker.exists()


def test_shared_structure_does_not_explode(tmp_path):
    doubled = b"".join(b"\x86q" + bytes([i]) + b"h" + bytes([i]) for i in range(100))
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02NN" + doubled + b"\x86.")
    with pytest.raises(CheckpointError):
        TorchReader(path)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_truncated_file_is_a_clear_error_at_every_length(zipped, tmp_path):
    path = tmp_path / "a.bin"
    torch.save({"w": torch.arange(8.0), "b": torch.ones(2)}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            TorchReader(path)


def rewritten(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_lying_sizes_and_missing_data(tmp_path):
    path = tmp_path / "a.bin"
    torch.save({"w": torch.arange(8.0)}, path)
    rewritten(path, lambda members: members.update({"a/data/0": members["a/data/0"][:20]}))
    with pytest.raises(CheckpointError, match="tensor 'w' needs 32 bytes; its storage has 20"):
        TorchReader(path)
    torch.save({"w": torch.arange(8.0)}, path)
    rewritten(path, lambda members: members.pop("a/data/0"))
    with pytest.raises(CheckpointError, match="data of tensor 'w' is missing"):
        TorchReader(path)
    torch.save({"w": torch.arange(8.0)}, path)
    rewritten(path, lambda members: members.update({"a/byteorder": b"big"}))
    with pytest.raises(Exception, match="big-endian"):
        TorchReader(path)


def test_compressed_members_are_refused(tmp_path):
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(1000))
    with pytest.raises(CheckpointError, match="compressed or encrypted"):
        TorchReader(path)


def test_entries_that_are_no_tensors(tmp_path):
    torch.save({"w": torch.ones(1), "epoch": 3}, tmp_path / "a.bin")
    with pytest.raises(CheckpointError, match="entry 'epoch' of the checkpoint is no tensor"):
        TorchReader(tmp_path / "a.bin")


def test_sharded_checkpoints(tmp_path):
    for name in ("a", "b"):
        torch.save({name: torch.full((2,), float(ord(name)))}, tmp_path / f"pytorch_model-{name}.bin")
    weight_map = {"b": "pytorch_model-b.bin", "a": "pytorch_model-a.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    reader = open_checkpoint(tmp_path)
    assert reader.names() == ["b", "a"]
    assert reader.read("a").tolist() == [97.0, 97.0]
