"""Load weights from ``params_shard_*.bin``: map and check them, and pack them into the kernels' layouts."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.arrays import aligned_copy, dtype_of
from mlc_runtime.memory import HOST, Array, HostMemory
from mlc_runtime.model_spec import ParamSpec

INDEX_NAME = "tensor-cache.json"
MAX_INDEX_BYTES = 256 << 20
FORMATS = ("raw", "f32-to-bf16")

LoadProgress = Callable[[int, int, int, int], None]  # parameters done, all parameters, bytes done, all bytes


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


class TensorCache:
    """The tensors of a folder by name; shards are mapped into memory when a tensor of theirs is first read.

    Raises MLCError for an index that is damaged, names files outside of the folder, or does not fit the shards.
    """

    def __init__(self, folder: str | Path, *, verify: bool = False):
        self.folder = Path(folder)
        self.records: dict[str, TensorRecord] = {}
        self._maps: dict[str, mmap.mmap] = {}
        for shard in _read_index(self.folder / INDEX_NAME):
            self._add_shard(shard, verify)

    def read(self, name: str) -> np.ndarray:
        """The tensor as a read-only view of its file; float32 that is stored as bfloat16 is widened into a copy."""
        record = self.records[name]
        dtype = dtype_of(record.stored)
        flat = np.frombuffer(self._map(record.shard), np.uint8, record.nbytes, record.offset)
        if flat.ctypes.data % dtype.itemsize:
            flat = aligned_copy(flat)
        array = flat.view(dtype).reshape(record.shape)
        return array if record.stored == record.dtype else array.astype(dtype_of(record.dtype))

    def forget(self, name: str) -> None:
        """Drop the tensor's pages from memory (MADV_DONTNEED); a later read loads them again."""
        record = self.records[name]
        begin = -(-record.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = record.offset + record.nbytes - begin
        if length > 0:
            self._map(record.shard).madvise(mmap.MADV_DONTNEED, begin, length)

    def _add_shard(self, shard: dict, verify: bool) -> None:
        try:
            name, nbytes, records = shard["dataPath"], shard["nbytes"], shard["records"]
            parsed = [_record(name, r) for r in records]
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise self._damaged(f"a shard's entry is malformed ({type(e).__name__}: {e})") from None
        self._check_file(name, nbytes)
        for record in parsed:
            if record.offset < 0 or record.offset + record.nbytes > nbytes:
                end = record.offset + record.nbytes
                raise self._damaged(f"{record.name} is at bytes {record.offset} to {end} of {name}, which has {nbytes}")
            if record.name in self.records:
                raise self._damaged(f"it names {record.name} twice")
            self.records[record.name] = record
        if verify and hashlib.md5(self._map(name)).hexdigest() != shard.get("md5sum"):
            raise MLCError(f"{name} does not have the md5 sum of the index", where=[str(self.folder)])

    def _check_file(self, name: str, nbytes: int) -> None:
        if not is_plain_name(name):
            raise self._damaged(f"it names the file {name!r}; expected a plain file name")
        path = self.folder / name
        if not path.is_file():
            raise MLCError(f"{name} is missing", where=[str(self.folder)], hint="run convert_weight again")
        if path.stat().st_size != nbytes:
            raise MLCError(
                f"{name} has {path.stat().st_size} bytes; the index says {nbytes}",
                where=[str(path)],
                hint="the file is truncated or from another conversion; run convert_weight again",
            )

    def _map(self, shard: str) -> mmap.mmap:
        if shard not in self._maps:
            with open(self.folder / shard, "rb") as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]

    def _damaged(self, why: str) -> MLCError:
        return MLCError(f"the index of the weights is damaged: {why}", where=[str(self.folder / INDEX_NAME)])


def is_plain_name(name: object) -> bool:
    """Whether `name` is a file name inside a folder: no separators, drives, parents or control characters."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 255
        and name not in (".", "..")
        and not any(c in "/\\:" or ord(c) < 32 for c in name)
    )


class Params:
    """The weights of a model in the order and layout of its library.

    ``table`` is the functions' `packed_params`: int64 [num_params], the address of each array in ``arrays``.
    """

    def __init__(self, arrays: Sequence[Array], memory: HostMemory = HOST):
        self.arrays = list(arrays)
        self.table = np.array([memory.address(a) for a in self.arrays], np.int64)

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in self.arrays)


def load_params(
    specs: Sequence[ParamSpec],
    cache: TensorCache,
    pack: Callable[[str, object, object], None],
    progress: LoadProgress | None = None,
    memory: HostMemory = HOST,
) -> Params:
    """Map or pack every parameter that `specs` names; pack(function, source, destination) calls the library.

    memory: where the library's functions read them. Memory beyond the result is one tensor. Raises MLCError that lists
    the parameters that are missing from the folder or have another shape or type there.
    """
    check_params(specs, cache)
    total, done, arrays = sum(cache.records[s.name].nbytes for s in specs), 0, []
    for spec in specs:
        arrays.append(_load(spec, cache, pack, memory))
        done += cache.records[spec.name].nbytes
        if progress:
            progress(len(arrays), len(specs), done, total)
    return Params(arrays, memory)


def check_params(specs: Sequence[ParamSpec], cache: TensorCache) -> None:
    """Raises MLCError when a parameter is missing from the folder or has another shape or type there."""
    problems = [p for s in specs if (p := _problem(s, cache.records.get(s.name)))]
    if problems:
        more = [f"… and {len(problems) - 8} more"] if len(problems) > 8 else []
        raise MLCError(
            f"{len(problems)} of {len(specs)} parameters of the library do not fit the weights",
            where=[*problems[:8], *more, str(cache.folder)],
            hint="library and weights come from different models or quantizations; compile or convert again",
        )


def _problem(spec: ParamSpec, record: TensorRecord | None) -> str | None:
    if record is None:
        return f"{spec.name} is missing"
    if (record.shape, record.dtype) == (spec.shape, spec.dtype):
        return None
    return f"{spec.name} is {record.dtype} {list(record.shape)}; the library expects {spec.dtype} {list(spec.shape)}"


def _load(
    spec: ParamSpec, cache: TensorCache, pack: Callable[[str, object, object], None], memory: HostMemory
) -> Array:
    source = cache.read(spec.name)
    if spec.packed is None:
        array = memory.loaded(source)
    else:
        array = memory.empty(spec.packed.shape, dtype_of(spec.packed.dtype))
        pack(spec.packed.function, memory.tensor(source), memory.tensor(array))
    if array is not source:
        cache.forget(spec.name)
    return array


def _read_index(path: Path) -> list[dict]:
    try:
        if path.stat().st_size > MAX_INDEX_BYTES:
            raise MLCError(f"the index of the weights is larger than {MAX_INDEX_BYTES >> 20} MB", where=[str(path)])
        return list(json.loads(path.read_bytes())["records"])
    except OSError as e:
        raise MLCError(
            f"cannot read the index of the weights: {e.strerror}", where=[str(path)], hint="convert_weight writes it"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise MLCError(f"the index of the weights is not readable: {e}", where=[str(path)]) from None


def _record(shard: str, entry: dict) -> TensorRecord:
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if entry["format"] not in FORMATS:
        raise ValueError(f"format is {entry['format']!r}; expected {' or '.join(FORMATS)}")
    if not isinstance(entry["name"], str):
        raise ValueError(f"name is {entry['name']!r}")
    if not all(type(d) is int and d >= 0 for d in shape):
        raise ValueError(f"{entry['name']} has shape {entry['shape']}")
    stored = "bfloat16" if dtype == "float32" and entry["format"] == "f32-to-bf16" else dtype
    record = TensorRecord(entry["name"], shape, dtype, stored, shard, int(entry["byteOffset"]))
    if record.nbytes != entry["nbytes"]:
        raise ValueError(f"{record.name} has nbytes {entry['nbytes']}; {stored} {list(shape)} needs {record.nbytes}")
    return record
