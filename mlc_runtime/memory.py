"""The memory that a library's functions work on: the host's, where arrays are numpy arrays and no copies are made.

``DeviceMemory`` is the same for a GPU. A mirrored array is a numpy array with a twin on the device; ``send`` and
``fetch`` copy between the two.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from mlc_runtime.arrays import aligned_copy, aligned_empty, is_aligned, lazy_zeros, to_tensor, tvm_ffi

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # of glibc
Array = Any
"""An array of a memory: numpy's on the host, a ``DeviceArray`` on a device."""


Finish = Callable[[], None]


class HostMemory:
    """The host's memory. provides_on_write: memory of arrays is taken as they are written, not as they are made."""

    provides_on_write: ClassVar[bool] = True

    @property
    def available_bytes(self) -> int:
        """Bytes that arrays may take in all."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """An uninitialised array that only compiled functions read and write."""
        return aligned_empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """The same with zeros."""
        return lazy_zeros(shape, dtype)

    def mirrored(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """A mirrored array with zeros. Views of it are mirrored too."""
        return lazy_zeros(shape, dtype)

    def loaded(self, source: np.ndarray) -> Array:
        """An array with the elements of ``source``, which is kept or copied."""
        return source if is_aligned(source) else aligned_copy(source)

    def tensor(self, array: Array) -> Any:
        """The array as an argument of compiled functions; numpy arrays that are not mirrored are copied now."""
        return to_tensor(array) if isinstance(array, np.ndarray) else array

    def placed(self, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        """A tensor of compiled functions with the elements of a contiguous one, which is copied where it has to be."""
        return tensor

    def outputs(self, arrays: Sequence[Array]) -> tuple[list[Any], Finish | None]:
        """The arrays as results of compiled functions, and what has to follow a call, if anything."""
        return [self.tensor(array) for array in arrays], None

    def address(self, array: Array) -> int:
        """Where the elements begin."""
        return int(array.ctypes.data)

    def send(self, array: np.ndarray) -> None:
        """Copy the elements of a mirrored array to its twin."""

    def fetch(self, array: np.ndarray) -> None:
        """Copy the elements of a mirrored array's twin to it, after the calls that write them."""

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
        """Let calls return before their results are there; ``fetch`` waits for them."""

    def close(self) -> None:
        """Free the memory of all arrays that does not free itself."""


HOST = HostMemory()


def return_free_memory() -> None:
    """Give memory that was freed back to the system, which the C library keeps otherwise."""
    _malloc_trim(0)
