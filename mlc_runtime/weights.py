"""Load the weights of a folder: mmap and check them, and pack them into the kernels' layouts."""

from __future__ import annotations

import hashlib
import mmap
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.arrays import aligned_bytes, aligned_copy
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.kept_weights import KeptWeights
from mlc_runtime.memory import HOST, Allocate, Array, HostMemory, return_free_memory
from mlc_runtime.model_spec import ParamSpec
from mlc_runtime.weight_index import Shard, TensorRecord, damaged, is_plain_name, read_shards

LoadProgress = Callable[[int, int, int, int], None]  # parameters done, all parameters, bytes done, all bytes


class TensorCache:
    """The tensors of a folder by name; a shard is mapped into memory when one of its tensors is first read.

    verify: compare each shard with its md5 checksum in the index. Raises MLCError for an index that is damaged, names
    files outside of the folder, or does not match the shards; see ``read_shards``.
    """

    def __init__(self, folder: str | Path, *, verify: bool = False):
        self.folder = Path(folder)
        self.records: dict[str, TensorRecord] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self.index, self.shards = read_shards(self.folder)
        for shard in self.shards:
            self._add_shard(shard, verify)

    def read(self, name: str) -> np.ndarray:
        """The tensor as a read-only view of its file, or a copy for float32 that is stored as bfloat16."""
        record = self.records[name]
        dtype = dtype_of(record.stored)
        flat = np.frombuffer(self._map(record.shard), np.uint8, record.nbytes, record.offset)
        if flat.ctypes.data % dtype.itemsize:
            flat = aligned_copy(flat)
        array = flat.view(dtype).reshape(record.shape)
        return array if record.stored == record.dtype else array.astype(dtype_of(record.dtype))

    def forget(self, name: str) -> None:
        """Release the tensor's pages (MADV_DONTNEED); a later read loads them again."""
        record = self.records[name]
        begin = -(-record.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = record.offset + record.nbytes - begin
        if length > 0:
            self._map(record.shard).madvise(mmap.MADV_DONTNEED, begin, length)

    def _add_shard(self, shard: Shard, verify: bool) -> None:
        self._check_file(shard)
        for record in shard.records:
            if record.offset < 0 or record.offset + record.nbytes > shard.nbytes:
                place = f"bytes {record.offset} to {record.offset + record.nbytes} of {shard.name}"
                raise damaged(self.index, f"{record.name} is at {place}, which has {shard.nbytes}")
            if record.name in self.records:
                raise damaged(self.index, f"it names {record.name} twice")
            self.records[record.name] = record
        self._check_apart(shard)
        if verify and shard.md5 not in (None, hashlib.md5(self._map(shard.name)).hexdigest()):
            raise MLCError(f"{shard.name} does not have the md5 sum of the index", where=[str(self.folder)])

    def _check_apart(self, shard: Shard) -> None:
        placed = sorted((r for r in shard.records if r.nbytes), key=lambda r: r.offset)
        for one, next_one in pairwise(placed):
            if one.offset + one.nbytes > next_one.offset:
                raise damaged(self.index, f"{one.name} and {next_one.name} overlap in {shard.name}")

    def _check_file(self, shard: Shard) -> None:
        if not is_plain_name(shard.name):
            raise damaged(self.index, f"it names the file {shard.name!r}; expected a plain file name")
        path = self.folder / shard.name
        if not path.is_file():
            raise MLCError(f"{shard.name} is missing", where=[str(self.folder)], hint="run convert_weight again")
        if path.stat().st_size != shard.nbytes:
            raise MLCError(
                f"{shard.name} has {path.stat().st_size} bytes; the index says {shard.nbytes}",
                where=[str(path)],
                hint="the file is truncated or from another conversion; run convert_weight again",
            )

    def _map(self, shard: str) -> mmap.mmap:
        if shard not in self._maps:
            with open(self.folder / shard, "rb") as file:
                self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[shard]


class Params:
    """The weights of a model in the order and layouts of its library.

    ``table`` is the functions' `packed_params`: int64 [num_params], the address of each array in ``arrays``.
    """

    def __init__(self, arrays: Sequence[Array], memory: HostMemory = HOST):
        self.arrays = list(arrays)
        self.table = np.array([memory.address(a) for a in self.arrays], np.int64)
        self.free = weakref.finalize(self, _free, self.arrays)
        """Returns the arrays' memory to the system; also called when the object is deleted."""
        self.free.atexit = False

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in self.arrays)


def _free(arrays: list[Array]) -> None:
    arrays.clear()
    return_free_memory()


def load_params(
    specs: Sequence[ParamSpec],
    cache: TensorCache,
    pack: Callable[[str, object, object], None],
    progress: LoadProgress | None = None,
    memory: HostMemory = HOST,
    kept: KeptWeights | None = None,
) -> Params:
    """Map or pack every parameter in `specs`; pack(function, source, destination) calls the library.

    memory: where the library's functions read them. kept: those that have been packed before. Memory beyond the result
    is one tensor. Raises MLCError that lists the parameters that are missing from the folder or have another shape or
    type there.
    """
    check_params(specs, cache)
    total, done, arrays = sum(cache.records[s.name].nbytes for s in specs), 0, []
    found = [kept.find(spec) if kept is not None else None for spec in specs]
    new = [s.packed for s, array in zip(specs, found, strict=True) if s.packed is not None and array is None]
    empty = memory.region(sum(aligned_bytes(layout.nbytes) for layout in new))
    for spec, array in zip(specs, found, strict=True):
        arrays.append(_load(spec, cache, pack, memory, empty) if array is None else array)
        done += cache.records[spec.name].nbytes
        if progress:
            progress(len(arrays), len(specs), done, total)
    return Params(arrays, memory)


def check_params(specs: Sequence[ParamSpec], cache: TensorCache) -> None:
    """Raises MLCError when the folder lacks a parameter or has it with another shape or dtype."""
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
    spec: ParamSpec,
    cache: TensorCache,
    pack: Callable[[str, object, object], None],
    memory: HostMemory,
    empty: Allocate,
) -> Array:
    source = cache.read(spec.name)
    array = packed_array(spec, source, pack, memory, empty)
    if array is not source:
        cache.forget(spec.name)
    return array


def packed_array(
    spec: ParamSpec,
    source: np.ndarray,
    pack: Callable[[str, object, object], None],
    memory: HostMemory,
    empty: Allocate | None = None,
) -> Array:
    """A parameter in the layout that the library reads; the source itself if it already has that layout.

    empty: allocates an array in ``memory``; None: ``memory.empty``.
    """
    if spec.packed is None:
        return memory.loaded(source)
    array = (empty or memory.empty)(spec.packed.shape, dtype_of(spec.packed.dtype))
    pack(spec.packed.function, memory.tensor(source), memory.tensor(array))
    return array
