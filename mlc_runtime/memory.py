"""Memory for a library's functions: here the host's, where arrays are numpy arrays and nothing is copied.

``DeviceMemory`` has the same interface for a GPU. A mirrored array is a numpy array with a copy on the device;
``send`` and ``fetch`` update one from the other.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from mlc_runtime.arrays import Region, aligned_copy, aligned_empty, is_aligned, lazy_zeros, to_tensor, tvm_ffi

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # of glibc
Array = Any
"""A numpy array on the host, a ``DeviceArray`` on a device."""


Finish = Callable[[], None]
Allocate = Callable[[Sequence[int], np.dtype], Array]


class HostMemory:
    """Host memory. provides_on_write: whether memory is committed at the first write instead of at allocation."""

    provides_on_write: ClassVar[bool] = True

    @property
    def available_bytes(self) -> int:
        """Bytes available for arrays in total."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """An uninitialised array for use by compiled functions only."""
        return aligned_empty(shape, dtype)

    def region(self, nbytes: int) -> Allocate:
        """``empty`` for arrays that are read together and take ``nbytes`` bytes, see ``arrays.aligned_bytes``."""
        return Region(nbytes).empty

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """A zeroed array for use by compiled functions only."""
        return lazy_zeros(shape, dtype)

    def mirrored(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """A zeroed mirrored array. Views of it are mirrored too."""
        return lazy_zeros(shape, dtype)

    def loaded(self, source: np.ndarray) -> Array:
        """An array with the elements of ``source``: ``source`` itself or a copy."""
        return source if is_aligned(source) else aligned_copy(source)

    def tensor(self, array: Array) -> Any:
        """The array as an argument of compiled functions; on a device, arrays that are not mirrored are copied now."""
        return to_tensor(array) if isinstance(array, np.ndarray) else array

    def placed(self, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        """A contiguous tensor as an argument of compiled functions; copied if it is not in this memory."""
        return tensor

    def outputs(self, arrays: Sequence[Array]) -> tuple[list[Any], Finish | None]:
        """The arrays as results of compiled functions, and a function to call after each call, or None."""
        return [self.tensor(array) for array in arrays], None

    def address(self, array: Array) -> int:
        """The address of the first element."""
        return int(array.ctypes.data)

    def send(self, array: np.ndarray) -> None:
        """Copy a mirrored array to the device."""

    def fetch(self, array: np.ndarray) -> None:
        """Copy a mirrored array back from the device, after the calls that write it."""

    def copy_page(self, array: Array, old: int, new: int) -> None:
        """``array[:, new] = array[:, old]``"""
        array[:, new] = array[:, old]

    def copy_slot(self, array: Array, old: int, new: int) -> None:
        """``array[new] = array[old]``"""
        array[new] = array[old]

    def clear_slot(self, array: Array, slot: int) -> None:
        """``array[slot] = 0``"""
        array[slot] = 0

    def defer(self) -> None:
        """Make calls asynchronous; ``fetch`` waits for their results."""

    def close(self) -> None:
        """Free memory that is not freed by garbage collection."""


HOST = HostMemory()


def return_free_memory() -> None:
    """Return freed memory from the C library's heap to the operating system (``malloc_trim``)."""
    _malloc_trim(0)
