"""The index of a folder's weights: file, offset, shape and dtype of each tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.dtypes import dtype_of

TENSOR_CACHES = ("tensor-cache.json", "ndarray-cache.json")
"""File names of the index of ``params_shard_*.bin``; the second was used until 2025-09."""
MAX_INDEX_BYTES = 256 << 20
FORMATS = ("raw", "f32-to-bf16")
_SAFETENSORS_INDEX, _SAFETENSORS = "model.safetensors.index.json", "model.safetensors"
_SAFETENSORS_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class TensorRecord:
    """Location of a tensor. `stored`: its data type on disk; a float32 tensor may be stored as bfloat16."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: str
    shard: str
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * dtype_of(self.stored).itemsize


@dataclass(frozen=True)
class Shard:
    """A file of tensors. nbytes: its expected size; md5: its checksum, if the index has one."""

    name: str
    nbytes: int
    records: tuple[TensorRecord, ...]
    md5: str | None = None


def read_shards(folder: Path) -> tuple[Path, list[Shard]]:
    """The index file of a folder, and the shards that it lists.

    Reads one of ``TENSOR_CACHES``, or else the index of safetensors files, or ``model.safetensors``. Raises MLCError
    for a folder without any of them, for an index that is damaged, and for one that names files outside of the folder.
    """
    for name, read in _INDEXES.items():
        if (folder / name).is_file():
            return folder / name, list(_checked(folder / name, read))
    raise MLCError(
        f"the folder has no weights: no {', '.join(_INDEXES)}", where=[str(folder)], hint="convert_weight writes them"
    )


def damaged(index: Path, why: str) -> MLCError:
    return MLCError(f"the index of the weights is damaged: {why}", where=[str(index)])


def is_plain_name(name: object) -> bool:
    """Whether `name` is a file name inside a folder: no separators, drives, parents or control characters."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 255
        and name not in (".", "..")
        and not any(c in "/\\:" or ord(c) < 32 for c in name)
    )


def _checked(index: Path, read: Callable[[Path], Iterator[Shard]]) -> Iterator[Shard]:
    try:
        yield from read(index)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise damaged(index, f"an entry is malformed ({type(e).__name__}: {e})") from None
    except OSError as e:
        raise MLCError(f"cannot read the index of the weights: {e.strerror}", where=[str(index)]) from None


def _json(path: Path) -> Any:
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise MLCError(f"the index of the weights is larger than {MAX_INDEX_BYTES >> 20} MB", where=[str(path)])
    return json.loads(path.read_bytes())


# -- tensor-cache.json -------------------------------------------------------------------------------------------------


def _tensor_cache(index: Path) -> Iterator[Shard]:
    for shard in _json(index)["records"]:
        name = shard["dataPath"]
        yield Shard(name, shard["nbytes"], tuple(_record(name, r) for r in shard["records"]), shard.get("md5sum"))


def _record(shard: str, entry: dict[str, Any]) -> TensorRecord:
    dtype = entry["dtype"]
    if entry["format"] not in FORMATS:
        raise ValueError(f"format is {entry['format']!r}; expected {' or '.join(FORMATS)}")
    stored = "bfloat16" if dtype == "float32" and entry["format"] == "f32-to-bf16" else dtype
    return _tensor(entry["name"], entry["shape"], dtype, stored, shard, int(entry["byteOffset"]), entry["nbytes"])


def _tensor(name: object, shape: Any, dtype: str, stored: str, shard: str, offset: int, nbytes: int) -> TensorRecord:
    if not isinstance(name, str):
        raise ValueError(f"name is {name!r}")
    if not all(type(d) is int and d >= 0 for d in shape):
        raise ValueError(f"{name} has shape {shape}")
    record = TensorRecord(name, tuple(shape), dtype, stored, shard, offset)
    if record.nbytes != nbytes:
        raise ValueError(f"{name} has nbytes {nbytes}; {stored} {list(shape)} needs {record.nbytes}")
    return record


# -- safetensors -------------------------------------------------------------------------------------------------------


def _safetensors_index(index: Path) -> Iterator[Shard]:
    for name in dict.fromkeys(_json(index)["weight_map"].values()):
        if not is_plain_name(name):
            raise ValueError(f"it names the file {name!r}; expected a plain file name")
        yield from _safetensors(index.parent / name)


def _safetensors(path: Path) -> Iterator[Shard]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MAX_INDEX_BYTES:
            raise ValueError(f"the header of {path.name} has {size} bytes")
        header = json.loads(file.read(size))
    records = [_safetensors_record(n, e, path.name, 8 + size) for n, e in header.items() if n != "__metadata__"]
    end = max((r.offset + r.nbytes for r in records), default=8 + size)
    yield Shard(path.name, end, tuple(records))


def _safetensors_record(name: str, entry: dict[str, Any], shard: str, data: int) -> TensorRecord:
    if entry["dtype"] not in _SAFETENSORS_DTYPES:
        raise ValueError(f"{name} has dtype {entry['dtype']!r}; expected one of {', '.join(_SAFETENSORS_DTYPES)}")
    dtype, (begin, end) = _SAFETENSORS_DTYPES[entry["dtype"]], entry["data_offsets"]
    return _tensor(name, entry["shape"], dtype, dtype, shard, data + begin, end - begin)


_INDEXES: dict[str, Callable[[Path], Iterator[Shard]]] = {
    **dict.fromkeys(TENSOR_CACHES, _tensor_cache),
    _SAFETENSORS_INDEX: _safetensors_index,
    _SAFETENSORS: _safetensors,
}
