"""Weights in the layouts of a library, in a file beside it, which is mapped where the system has huge pages for files.

The file begins with ``HEADER_BYTES`` of JSON, filled up with zeros; the arrays follow at multiples of 64 bytes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mlc_files import NO_SUM, SUM_KEY, whole_file
from mlc_runtime.arrays import HUGE_PAGE, aligned_bytes
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.model_spec import PackedLayout, ParamSpec
from mlc_runtime.weight_index import Shard

SUFFIX = ".weights"
HEADER_BYTES = HUGE_PAGE  # so that arrays are in them where the file is
CHUNK_BYTES = 32 << 20  # of a write: file systems cache a large one in large pages
MAPPED_SHARE = 0.9  # of the file in huge pages; in small ones, decoding waits for address translation


@dataclass(frozen=True)
class KeptWeights:
    """The packed weights of a file, by name, as read-only arrays over its mapping."""

    arrays: dict[str, np.ndarray]

    def find(self, spec: ParamSpec) -> np.ndarray | None:
        """The weight in the layout that the library wants; None of one that is not packed."""
        return None if spec.packed is None else self.arrays.get(spec.name)


def kept_path(library: Path) -> Path:
    """Where the weights for a library are kept."""
    return library.with_suffix(SUFFIX)


def identity(library: dict[str, Any], folder: Path, shards: Sequence[Shard]) -> str | None:
    """What packed weights depend on: the library, by the sum in its metadata, and the states of the weights' files.

    None for a library without a sum.
    """
    made_by = library.get(SUM_KEY, NO_SUM)
    if made_by == NO_SUM:
        return None
    states = [[s.name, s.nbytes, s.md5, (folder / s.name).stat().st_mtime_ns] for s in shards]
    return hashlib.sha256(json.dumps([made_by, states]).encode()).hexdigest()


def read_kept(path: Path, key: str | None, specs: Sequence[ParamSpec]) -> KeptWeights | None:
    """The weights of a file; None without one for these weights and this library, and where the system does not map the
    file in huge pages."""
    if key is None or not path.is_file():
        return None
    try:
        with open(path, "rb") as file:
            header = _header(file.read(HEADER_BYTES))
            whole = header is not None and os.fstat(file.fileno()).st_size == header["nbytes"]
            if header is None or not whole or header["key"] != key:
                return None
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _ask_for_huge_pages(mapped)
    except (OSError, ValueError):
        return None
    image = np.frombuffer(mapped, np.uint8)
    if huge_bytes(image.ctypes.data) < MAPPED_SHARE * len(image):
        return None
    return KeptWeights({spec.name: _array(image, layout, at) for spec, layout, at in _places(specs)[0]})


def write_kept(path: Path, key: str, specs: Sequence[ParamSpec], arrays: Iterable[np.ndarray]) -> None:
    """Write the packed weights of ``specs`` in order. Raises OSError as ``whole_file``."""
    places, nbytes = _places(specs)
    with whole_file(path, durable=True) as file:
        chunks = _Chunks(file)
        chunks.fill(HEADER_BYTES)
        for (_, _, at), array in zip(places, arrays, strict=True):
            chunks.fill(at - chunks.written)
            chunks.add(array.reshape(-1).view(np.uint8))
        chunks.flush()
        file.seek(0)
        file.write(json.dumps({"key": key, "nbytes": nbytes, "sum": chunks.sum.hexdigest()}).encode())


def is_whole(path: Path) -> bool:
    """Whether a file has the sum of its header."""
    with open(path, "rb") as file:
        header = _header(file.read(HEADER_BYTES))
        found = hashlib.sha256(bytes(HEADER_BYTES))
        while part := file.read(CHUNK_BYTES):
            found.update(part)
    return header is not None and header["sum"] == found.hexdigest()


def huge_bytes(address: int) -> int:
    """Bytes in huge pages of this process's mapping of a file that begins at an address."""
    found = 0
    with suppress(OSError), open("/proc/self/smaps") as file:
        inside = False
        for line in file:
            if begin := re.match(r"([0-9a-f]+)-[0-9a-f]+ ", line):
                inside = int(begin[1], 16) == address
            elif inside and line.startswith(("FilePmdMapped:", "ShmemPmdMapped:")):
                found += int(line.split()[1]) << 10
    return found


class _Chunks:
    """Writes of ``CHUNK_BYTES`` each. sum: of all that was added."""

    def __init__(self, file: BinaryIO):
        self.file, self.buffer, self.used, self.written = file, np.zeros(CHUNK_BYTES, np.uint8), 0, 0
        self.sum = hashlib.sha256()

    def add(self, data: np.ndarray) -> None:
        self.written += len(data)
        while len(data):
            here = data[: CHUNK_BYTES - self.used]
            self.buffer[self.used : self.used + len(here)] = here
            self.used, data = self.used + len(here), data[len(here) :]
            if self.used == CHUNK_BYTES:
                self.flush()

    def fill(self, count: int) -> None:
        self.add(np.zeros(count, np.uint8))

    def flush(self) -> None:
        data = self.buffer[: self.used].data
        self.sum.update(data)
        self.file.write(data)
        self.used = 0


def _places(specs: Sequence[ParamSpec]) -> tuple[list[tuple[ParamSpec, PackedLayout, int]], int]:
    """The packed parameters with the offsets of their arrays, and the bytes of the file."""
    places, end = [], HEADER_BYTES
    for spec in specs:
        if spec.packed is not None:
            begin = aligned_bytes(end)
            places.append((spec, spec.packed, begin))
            end = begin + spec.packed.nbytes
    return places, end


def _array(image: np.ndarray, layout: PackedLayout, at: int) -> np.ndarray:
    return image[at : at + layout.nbytes].view(dtype_of(layout.dtype)).reshape(layout.shape)


def _header(data: bytes) -> dict[str, Any] | None:
    """The header of a file; None of one that has none."""
    try:
        header = json.loads(data.rstrip(b"\0"))
    except ValueError:
        return None
    whole = isinstance(header, dict) and {"key", "nbytes", "sum"} <= header.keys()
    return header if whole else None


def _ask_for_huge_pages(mapped: mmap.mmap) -> None:
    """Have the file read and mapped now, in huge pages where that is possible."""
    mapped.madvise(mmap.MADV_HUGEPAGE)
    mapped.madvise(_MADV_POPULATE_READ)


_MADV_POPULATE_READ = 22  # Linux 5.14; the mmap module does not name it
