"""GGUF: metadata and tensors in one file. Every count and length is checked against the file before it is used."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from mlc_toolchain.readers.gguf_blocks import BLOCK_TYPES, BlockType, block_levels, dequantize
from quantization.kept_codes import Levels

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_METADATA = 1 << 16
MAX_ARRAY_DEPTH = 3
DEFAULT_ALIGNMENT = 32
ROW_BLOCKS = 1 << 15  # blocks dequantized at a time
STRING, ARRAY = 8, 9
SCALARS: Mapping[int, np.dtype] = {
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    info: TensorInfo
    kind: BlockType
    offset: int


class GGUFReader(CheckpointReader):
    """One ``.gguf`` file under its own tensor names; quantized blocks are read as float32.

    metadata: the key-value pairs, scalars as Python numbers, arrays as lists.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        cursor = _Cursor(self._file)
        tensor_count, metadata_count = _header(cursor)
        self.metadata: dict[str, Any] = {}
        for _ in range(metadata_count):
            key = cursor.string()
            if key in self.metadata:
                raise cursor.error(f"metadata key {shown(key)} appears twice")
            self.metadata[key] = cursor.value(cursor.u32())
        listed = [_listed(cursor) for _ in range(tensor_count)]
        data_start = -(-cursor.position // self._alignment(cursor)) * self._alignment(cursor)
        self._entries = {
            name: self._entry(name, sizes, type_id, offset, data_start) for name, sizes, type_id, offset in listed
        }
        if len(self._entries) != tensor_count:
            raise cursor.error("two tensors have the same name")
        self._check_overlap()

    def names(self) -> list[str]:
        return list(self._entries)

    def block_types(self) -> dict[str, int]:
        """The names of the tensors' block formats, with the number of tensors of each, the most frequent first."""
        return dict(Counter(entry.kind.name for entry in self._entries.values()).most_common())

    def info(self, name: str) -> TensorInfo:
        return self._entries[name].info

    def read(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        kind, shape = entry.kind, entry.info.shape
        if kind.decode is None:
            return self._file.array(DTYPES[kind.dtype], shape, entry.offset)
        return dequantize(self._blocks(entry), kind).reshape(shape)

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        entry = self._entries[name]
        kind, shape = entry.kind, entry.info.shape
        if kind.decode is None or len(shape) < 2:
            yield self.read(name)
            return
        per_row = prod(shape[1:]) // kind.elements
        blocks, step = self._blocks(entry), max(1, ROW_BLOCKS // max(1, per_row))
        for start in range(0, shape[0], step):
            part = blocks[start * per_row : (start + step) * per_row]
            yield dequantize(part, kind).reshape(-1, *shape[1:])

    def group_levels(self, name: str) -> Levels | None:
        entry = self._entries[name]
        kind, shape = entry.kind, entry.info.shape
        if kind.codes is None or len(shape) != 2:
            return None
        levels, scales = block_levels(self._blocks(entry), kind)
        return Levels(levels.reshape(shape), scales.reshape(shape[0], -1), kind.elements)

    def file_of(self, name: str) -> Path:
        return self.path

    def files(self) -> list[Path]:
        return [self.path]

    def release(self, name: str) -> None:
        entry = self._entries[name]
        self._file.drop(entry.offset, entry.info.nbytes)

    def _blocks(self, entry: _Entry) -> np.ndarray:
        shape = (entry.info.elements // entry.kind.elements, entry.kind.nbytes)
        return self._file.array(DTYPES["uint8"], shape, entry.offset)

    def _alignment(self, cursor: _Cursor) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise cursor.error(f"general.alignment is {shown(alignment)}; expected a power of two")
        return alignment

    def _entry(self, name: str, sizes: tuple[int, ...], type_id: int, offset: int, data_start: int) -> _Entry:
        shape = check_shape(sizes[::-1], name, self.path)
        kind = BLOCK_TYPES.get(type_id)
        if kind is None:
            known = ", ".join(block_type.name for block_type in BLOCK_TYPES.values())
            raise UnsupportedError(
                f"tensor {shown(name)} has GGUF type {type_id}; expected one of {known}", where=[str(self.path)]
            )
        if not shape or 0 in shape or shape[-1] % kind.elements:
            raise self._error(
                f"tensor {shown(name)} {list(shape)} does not consist of {kind.name} blocks of {kind.elements}"
            )
        nbytes = prod(shape) // kind.elements * kind.nbytes
        start = data_start + offset
        if start + nbytes > self._file.size:
            raise self._error(
                f"tensor {shown(name)} ends at byte {start + nbytes}; the file has {self._file.size}",
                hint="the file is truncated; download it again",
            )
        return _Entry(TensorInfo(shape, kind.dtype, nbytes), kind, start)

    def _check_overlap(self) -> None:
        position = 0
        for name, entry in sorted(self._entries.items(), key=lambda item: (item[1].offset, item[1].info.nbytes)):
            if entry.offset < position:
                raise self._error(f"tensor {shown(name)} overlaps the tensor before it")
            position = entry.offset + entry.info.nbytes

    def _error(self, message: str, hint: str | None = None) -> CheckpointError:
        return CheckpointError(message, where=[str(self.path)], hint=hint)


class _Cursor:
    """A position in the header; reading past the end of the file raises CheckpointError."""

    def __init__(self, file: MappedFile):
        self.file = file
        self.position = 0

    def take(self, count: int) -> bytes:
        if count > self.file.size - self.position:
            raise self.error(f"the header needs {count} bytes at byte {self.position}; the file has {self.file.size}")
        data = self.file.bytes(self.position, count)
        self.position += count
        return data

    def u32(self) -> int:
        return struct.unpack("<I", self.take(4))[0]

    def u64(self) -> int:
        return struct.unpack("<Q", self.take(8))[0]

    def string(self) -> str:
        data = self.take(self.u64())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"the string {shown(data)} is not UTF-8") from None

    def value(self, type_id: int, depth: int = 0) -> Any:
        if type_id == STRING:
            return self.string()
        if type_id == ARRAY and depth < MAX_ARRAY_DEPTH:
            return self._array(depth)
        if type_id not in SCALARS:
            raise self.error(f"metadata of type {type_id}; expected 0 to 12, arrays nested up to {MAX_ARRAY_DEPTH}")
        dtype = SCALARS[type_id]
        return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()

    def _array(self, depth: int) -> list:
        type_id, count = self.u32(), self.u64()
        if type_id in SCALARS:
            return np.frombuffer(self.take(count * SCALARS[type_id].itemsize), SCALARS[type_id]).tolist()
        if count > (self.file.size - self.position) // 8:
            raise self.error(f"an array claims {count} items; the file has {self.file.size} bytes")
        return [self.value(type_id, depth + 1) for _ in range(count)]

    def error(self, message: str) -> CheckpointError:
        return CheckpointError(message, where=[str(self.file.path)])


def _header(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.take(4)
    if magic != MAGIC:
        raise cursor.error(f"the file starts with {shown(magic)}; expected {MAGIC!r}")
    version = cursor.u32()
    if version not in VERSIONS:
        byte_order = " (a big-endian file)" if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS else ""
        raise UnsupportedError(f"GGUF version {version}{byte_order}; expected 2 or 3", where=[str(cursor.file.path)])
    tensor_count, metadata_count = cursor.u64(), cursor.u64()
    if tensor_count > MAX_TENSORS or metadata_count > MAX_METADATA:
        raise cursor.error(
            f"the header claims {tensor_count} tensors and {metadata_count} metadata entries; "
            f"expected at most {MAX_TENSORS} and {MAX_METADATA}"
        )
    return tensor_count, metadata_count


def _listed(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Read the name, sizes (fastest varying first), type and offset of one tensor."""
    name = cursor.string()
    if len(name.encode()) > MAX_NAME_BYTES:
        raise cursor.error(f"tensor name {shown(name)} is longer than {MAX_NAME_BYTES} bytes")
    rank = cursor.u32()
    if rank > 8:
        raise cursor.error(f"tensor {shown(name)} has rank {rank}; expected at most 8")
    return name, struct.unpack(f"<{rank}Q", cursor.take(8 * rank)), cursor.u32(), cursor.u64()
