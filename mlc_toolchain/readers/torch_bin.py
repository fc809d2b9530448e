"""PyTorch ``.bin`` checkpoints, zip archives and legacy pickle streams, read without executing the pickle."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError
from mlc_toolchain.readers.base import (
    DTYPES,
    MAX_NAME_BYTES,
    MAX_TENSORS,
    CheckpointError,
    CheckpointReader,
    MappedFile,
    TensorInfo,
    check_shape,
    shown,
)
from mlc_toolchain.readers.tensor_pickle import MAX_PICKLE_BYTES, Storage, StridedTensor, load_tensor_pickle
from mlc_toolchain.readers.zip_index import Member, zip_members

ZIP_MAGIC = b"PK\3\4"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001
STATE_DICT = "state_dict"
COUNT_BYTES = 8


class TorchReader(CheckpointReader):
    """One ``.bin`` file that holds a dictionary of tensors."""

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        zipped = self._file.bytes(0, len(ZIP_MAGIC)) == ZIP_MAGIC
        content, self._storages = self._read_zip() if zipped else self._read_legacy()
        self._tensors = self._named_tensors(content)
        for name, tensor in self._tensors.items():
            self._check_tensor(name, tensor)

    def names(self) -> list[str]:
        return list(self._tensors)

    def info(self, name: str) -> TensorInfo:
        tensor = self._tensors[name]
        return TensorInfo(tensor.sizes, tensor.dtype, prod(tensor.sizes) * DTYPES[tensor.dtype].itemsize)

    def read(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        dtype = DTYPES[tensor.dtype]
        if not prod(tensor.sizes):
            return np.zeros(tensor.sizes, dtype)
        start = self._storages[tensor.storage.key].offset + tensor.offset * dtype.itemsize
        flat = self._file.array(dtype, (_span(tensor),), start)
        strides = [stride * dtype.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(flat, tensor.sizes, strides, writeable=False)

    def file_of(self, name: str) -> Path:
        return self.path

    def files(self) -> list[Path]:
        return [self.path]

    def release(self, name: str) -> None:
        tensor = self._tensors[name]
        itemsize = DTYPES[tensor.dtype].itemsize
        member = self._storages[tensor.storage.key]
        self._file.drop(member.offset + tensor.offset * itemsize, _span(tensor) * itemsize)

    def _read_zip(self) -> tuple[Any, dict[str, Member]]:
        members = zip_members(self._file)
        pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise self._error(f"got {len(pickles)} members data.pkl; expected one")
        folder = pickles[0].removesuffix("data.pkl")
        order = members.get(f"{folder}byteorder")
        if order and self._file.bytes(order.offset, order.nbytes) != b"little":
            raise UnsupportedError("the checkpoint is big-endian; expected little-endian", where=[str(self.path)])
        member = members[pickles[0]]
        if member.nbytes > MAX_PICKLE_BYTES:
            raise self._error(f"the pickle has {member.nbytes} bytes; expected at most {MAX_PICKLE_BYTES}")
        content, _ = load_tensor_pickle(self._file.bytes(member.offset, member.nbytes), self.path)
        data = f"{folder}data/"
        return content, {name.removeprefix(data): member for name, member in members.items() if name.startswith(data)}

    def _read_legacy(self) -> tuple[Any, dict[str, Member]]:
        """Five pickles (magic number, protocol, system, content, storage keys), then every storage."""
        data = self._file.bytes(0, min(self._file.size, MAX_PICKLE_BYTES))
        magic, position = load_tensor_pickle(data, self.path)
        protocol, position = load_tensor_pickle(data, self.path, position)
        if (magic, protocol) != (LEGACY_MAGIC, LEGACY_PROTOCOL):
            raise self._error("the file is no PyTorch checkpoint")
        system, position = load_tensor_pickle(data, self.path, position)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise UnsupportedError("the checkpoint is not little-endian", where=[str(self.path)])
        content, position = load_tensor_pickle(data, self.path, position)
        keys, position = load_tensor_pickle(data, self.path, position)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
            raise self._error("the list of storages is damaged")
        return content, self._legacy_storages(content, keys, position)

    def _legacy_storages(self, content: Any, keys: list[str], position: int) -> dict[str, Member]:
        used = {tensor.storage.key: tensor.storage for tensor in self._named_tensors(content).values()}
        storages = {}
        for key in keys:
            count = int.from_bytes(self._file.bytes(position, COUNT_BYTES), "little")
            position += COUNT_BYTES
            nbytes = count * _itemsize(used[key]) if key in used else None
            if nbytes is None or position + nbytes > self._file.size:
                raise self._error(
                    f"storage {shown(key)} reaches beyond the file's {self._file.size} bytes, or belongs to no tensor"
                )
            storages[key] = Member(position, nbytes)
            position += nbytes
        return storages

    def _named_tensors(self, content: Any) -> dict[str, StridedTensor]:
        if isinstance(content, dict) and isinstance(content.get(STATE_DICT), dict):
            content = content[STATE_DICT]
        if not isinstance(content, dict) or not content or len(content) > MAX_TENSORS:
            raise self._error("the pickle holds no dictionary of tensors")
        for name, tensor in content.items():
            if not isinstance(name, str) or not isinstance(tensor, StridedTensor):
                raise self._error(f"entry {shown(name)} of the checkpoint is no tensor")
            if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
                raise self._error(f"tensor name {shown(name)} is longer than {MAX_NAME_BYTES} bytes")
        return content

    def _check_tensor(self, name: str, tensor: StridedTensor) -> None:
        check_shape(tensor.sizes, name, self.path)
        member = self._storages.get(tensor.storage.key)
        if member is None:
            raise self._error(f"the data of tensor {shown(name)} is missing")
        needed = (tensor.offset + _span(tensor)) * DTYPES[tensor.dtype].itemsize
        if max(needed, tensor.storage.elements * _itemsize(tensor.storage)) > member.nbytes:
            raise self._error(f"tensor {shown(name)} needs {needed} bytes; its storage has {member.nbytes}")

    def _error(self, message: str) -> CheckpointError:
        return CheckpointError(message, where=[str(self.path)])


def _span(tensor: StridedTensor) -> int:
    """Number of storage elements from the tensor's first to its last element."""
    if not prod(tensor.sizes):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides))


def _itemsize(storage: Storage) -> int:
    return DTYPES[storage.dtype].itemsize if storage.dtype else 1
