"""Reader of safetensors: a JSON header, then the tensors' bytes without gaps or overlap."""

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
from mlc_toolchain.readers.bounded_json import parse_json_object

MAX_HEADER_BYTES = 64 << 20
LENGTH_BYTES = 8

DTYPE_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
KNOWN_UNSUPPORTED = ["F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "C64", "F8_E4M3FNUZ", "F8_E5M2FNUZ"]


class SafetensorsReader(CheckpointReader):
    """One ``.safetensors`` file; names in the order of their data."""

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        header, self._data_start = self._header()
        self.metadata = _metadata(header.pop("__metadata__", {}), path)
        entries = {name: self._entry(name, entry) for name, entry in header.items()}
        self._entries = dict(sorted(entries.items(), key=lambda item: (item[1][1], item[1][0].nbytes)))
        self._check_cover()

    def names(self) -> list[str]:
        return list(self._entries)

    def info(self, name: str) -> TensorInfo:
        return self._entries[name][0]

    def read(self, name: str) -> np.ndarray:
        info, begin = self._entries[name]
        return self._file.array(DTYPES[info.dtype], info.shape, self._data_start + begin)

    def file_of(self, name: str) -> Path:
        return self.path

    def files(self) -> list[Path]:
        return [self.path]

    def release(self, name: str) -> None:
        info, begin = self._entries[name]
        self._file.drop(self._data_start + begin, info.nbytes)

    def _header(self) -> tuple[dict[str, Any], int]:
        size = self._file.size
        if size < LENGTH_BYTES:
            raise self._error(f"got {size} bytes; expected a safetensors header")
        count = int.from_bytes(self._file.bytes(0, LENGTH_BYTES), "little")
        if count > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
            raise self._error(
                f"the header claims {count} bytes; the file has {size} and {MAX_HEADER_BYTES} are allowed"
            )
        data = self._file.bytes(LENGTH_BYTES, count)
        if not data.startswith(b"{"):
            raise self._error(f"the header starts with {shown(data[:8])}; expected '{{'")
        if data.count(b"{") > MAX_TENSORS + 2:
            raise self._error(f"the header lists more than {MAX_TENSORS} tensors")
        return parse_json_object(data, self.path), LENGTH_BYTES + count

    def _entry(self, name: str, entry: object) -> tuple[TensorInfo, int]:
        if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise self._error(f"tensor name {shown(name)} is longer than {MAX_NAME_BYTES} bytes")
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise self._error(f"tensor {shown(name)} is {shown(entry)}; expected dtype, shape and data_offsets")
        shape = check_shape(entry["shape"], name, self.path)
        dtype = self._dtype(name, entry["dtype"])
        begin, end = self._offsets(name, entry["data_offsets"])
        nbytes = prod(shape) * DTYPES[dtype].itemsize
        if end - begin != nbytes:
            raise self._error(f"tensor {shown(name)} of shape {list(shape)} has {end - begin} bytes; expected {nbytes}")
        return TensorInfo(shape, dtype, nbytes), begin

    def _dtype(self, name: str, dtype: object) -> str:
        if isinstance(dtype, str) and dtype in DTYPE_NAMES:
            return DTYPE_NAMES[dtype]
        kind = UnsupportedError if dtype in KNOWN_UNSUPPORTED else CheckpointError
        expected = ", ".join(DTYPE_NAMES)
        raise kind(f"tensor {shown(name)} has dtype {shown(dtype)}; expected {expected}", where=[str(self.path)])

    def _offsets(self, name: str, offsets: object) -> tuple[int, int]:
        available = self._file.size - self._data_start
        match offsets:
            case [int(begin), int(end)] if type(begin) is type(end) is int and 0 <= begin <= end <= available:
                return begin, end
        raise self._error(
            f"tensor {shown(name)} lies at {shown(offsets)}; the file holds {available} bytes of data",
            hint="the file is truncated or damaged; download it again",
        )

    def _check_cover(self) -> None:
        """Raises CheckpointError unless the tensors cover the data without gaps or overlap."""
        position = 0
        for name, (info, begin) in self._entries.items():
            if begin != position:
                problem = "overlaps the tensor before it" if begin < position else "leaves a hole before it"
                raise self._error(f"tensor {shown(name)} at byte {begin} {problem}; expected byte {position}")
            position += info.nbytes
        if position != self._file.size - self._data_start:
            extra = self._file.size - self._data_start - position
            raise self._error(f"{extra} bytes follow the last tensor; expected none")

    def _error(self, message: str, hint: str | None = None) -> CheckpointError:
        return CheckpointError(message, where=[str(self.path)], hint=hint)


def _metadata(value: object, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise CheckpointError(f"__metadata__ is {shown(value)}; expected strings", where=[str(path)])
    return value
