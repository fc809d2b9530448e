"""The interface of checkpoint readers, and memory-mapped files."""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np

from mlc_errors import out_of_memory
from mlc_toolchain.readers.errors import CheckpointError, shown
from quantization.kept_codes import Levels, StoredForm

MAX_TENSORS = 200_000
MAX_RANK = 8
MAX_NAME_BYTES = 512
MAX_ELEMENTS = 2**48

DTYPES = {
    name: np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))
    for name in (
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 "
        "uint64 uint32 uint16 uint8 bool"
    ).split()
}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor before its data is read. dtype: of the array that ``read`` returns; nbytes: as stored in the file."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class CheckpointReader(ABC):
    """Named tensors on disk. Opening checks every header; tensor data is accessed by the read methods only."""

    @abstractmethod
    def names(self) -> list[str]:
        """Tensor names in the checkpoint's order."""

    @abstractmethod
    def info(self, name: str) -> TensorInfo: ...

    @abstractmethod
    def read(self, name: str) -> np.ndarray:
        """The tensor, read-only and where possible a view of the mapped file. bf16 and fp8 as ml_dtypes."""

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        """Yield the tensor in pieces along axis 0, to bound memory for formats that expand when read."""
        yield self.read(name)

    @abstractmethod
    def file_of(self, name: str) -> Path:
        """The file that holds the tensor, for messages."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Every file that the tensors come from."""

    def group_levels(self, name: str) -> Levels | None:
        """The tensor's integer levels and scales if it is quantized in groups of inputs, else None."""
        return None

    def stored_form(self, name: str) -> StoredForm | None:
        """The tensor's stored form if its format is one of the schemes', else None. Reads no data."""
        return None

    def release(self, name: str) -> None:  # noqa: B027 - readers without mapped pages have nothing to release
        """Release the tensor's pages; reading it again reads the file."""


class MappedFile:
    """A file mapped read-only into memory."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with open(path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise out_of_memory(f"{path}: {error.strerror}") from None
            raise CheckpointError(f"cannot read the file: {error.strerror}", where=[str(path)]) from None

    def bytes(self, offset: int, count: int) -> bytes:
        return self._map[offset : offset + count]

    def array(self, dtype: np.dtype, shape: tuple[int, ...], offset: int) -> np.ndarray:
        """A view of the file; the caller has checked the bounds."""
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset)

    def drop(self, offset: int, count: int) -> None:
        """Drop the pages fully inside the range from memory (MADV_DONTNEED)."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (offset + count) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start and isinstance(self._map, mmap.mmap):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)


def check_shape(shape: object, name: str, path: Path) -> tuple[int, ...]:
    """Check a shape and return it as a tuple. Raises CheckpointError that names the tensor."""
    sizes = shape if isinstance(shape, (list, tuple)) else ()
    valid = isinstance(shape, (list, tuple)) and all(type(size) is int and size >= 0 for size in sizes)
    if not valid or len(sizes) > MAX_RANK or prod(size for size in sizes if size) > MAX_ELEMENTS:
        raise CheckpointError(
            f"tensor {shown(name)} has shape {shown(shape)}; expected up to {MAX_RANK} non-negative sizes",
            where=[str(path)],
        )
    return tuple(sizes)
