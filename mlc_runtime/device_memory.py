"""GPU memory, managed through the functions that a library exports (``device_alloc``, ``device_upload`` …)."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from mlc_errors import ResourceError
from mlc_runtime.arrays import aligned_empty, device_tensor, is_on_cpu, lazy_zeros, tvm_ffi
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.memory import Allocate, Finish, HostMemory
from mlc_runtime.mirrors import Mirrors

CUDA, CUDA_HOST, CUDA_MANAGED = 2, 3, 13  # kDLCUDA, kDLCUDAHost, kDLCUDAManaged
ALIGNMENT = 16  # bytes: what kernels require of the beginning of an array
STAGING_BYTES = 16 << 20
STAGED_BYTES = 1 << 20  # smaller arrays are left to the driver, which copies them before it returns
RESERVED = 0.1  # the part of the free memory that is left to workspaces and code

Operation = Callable[..., Any]
"""``operation(name, *integers)``: a function that the library exports for the memory of a context's device."""


class DeviceArray:
    """A contiguous array in GPU memory; supports DLPack. It owns its memory together with its views."""

    def __init__(self, memory: DeviceMemory, block: object, address: int, shape: Sequence[int], dtype: np.dtype):
        self._memory, self.block, self.address = memory, block, address
        self.shape, self.dtype = tuple(shape), dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def tensor(self) -> tvm_ffi.Tensor:
        """A TVM FFI tensor over the memory, which it keeps allocated."""
        return device_tensor(self.address, self.shape, self.dtype, self.__dlpack_device__(), self.block)

    def view(self, offset: int, shape: Sequence[int]) -> DeviceArray:
        """A view of the elements from byte ``offset`` on, with the given shape."""
        return DeviceArray(self._memory, self.block, self.address + offset, shape, self.dtype)

    def reshape(self, *shape: int) -> DeviceArray:
        """A view of the same elements with another shape."""
        return self.view(0, shape)

    def __getitem__(self, rows: slice) -> DeviceArray:
        """Some rows: consecutive indices of the first axis."""
        first, stop, _ = rows.indices(self.shape[0])
        row = prod(self.shape[1:]) * self.dtype.itemsize
        return self.view(first * row, (max(stop - first, 0), *self.shape[1:]))

    def numpy(self) -> np.ndarray:
        """A copy in the host's memory."""
        copy = aligned_empty(self.shape, self.dtype)
        self._memory.download(copy, self.address)
        return copy

    def __dlpack__(self, **options: Any) -> object:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._memory.ordinal

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype} {list(self.shape)} on device {self._memory.ordinal})"


class DeviceMemory(HostMemory):
    """The memory of a context's device. operation: calls the library; ordinal: the device's number.

    Raises ResourceError when the device is out of memory. Unused memory is freed by the next allocation, because
    finalizers may run in the middle of a call.
    """

    provides_on_write = False

    def __init__(self, operation: Operation, ordinal: int):
        self._operation, self.ordinal = operation, ordinal
        self._blocks: dict[int, Any] = {}  # finalizers of allocated blocks by address
        self._retired: deque[int] = deque()
        self._mirrors: Mirrors[DeviceArray] = Mirrors()
        self._staging: list[int] = []

    @property
    def available_bytes(self) -> int:
        self._free_retired()
        return int((1 - RESERVED) * self._operation("device_free_bytes"))

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> DeviceArray:
        self._free_retired()
        nbytes = max(prod(shape) * dtype.itemsize, 1)
        try:
            address = int(self._operation("device_alloc", nbytes))
        except RuntimeError as error:
            raise ResourceError(f"the GPU has no room for an array of {nbytes / 1e6:.0f} MB: {error}") from None
        block = _Block()
        self._blocks[address] = weakref.finalize(block, self._retired.append, address)
        self._blocks[address].atexit = False
        return DeviceArray(self, block, address, shape, dtype)

    def region(self, nbytes: int) -> Allocate:
        return self.empty

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> DeviceArray:
        made = self.empty(shape, dtype)
        self._fill(made.address, made.nbytes)
        return made

    def mirrored(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        array, twin = lazy_zeros(shape, dtype), self.zeros(shape, dtype)
        self._mirrors.add(array, twin)
        return array

    def loaded(self, source: np.ndarray) -> DeviceArray:
        """Upload an array; large ones through two pinned buffers, so that staging overlaps the transfer."""
        made = self.empty(source.shape, source.dtype)
        data = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        if 0 < data.nbytes < STAGED_BYTES:
            self._operation("device_upload", made.address, data.ctypes.data, data.nbytes)
            return made
        for number, first in enumerate(range(0, data.nbytes, STAGING_BYTES)):
            piece, staging = data[first : first + STAGING_BYTES], self._pinned(number % 2)
            ctypes.memmove(staging, piece.ctypes.data, piece.nbytes)
            self._operation("device_synchronize")
            self._operation("device_upload", made.address + first, staging, piece.nbytes)
        self._operation("device_synchronize")
        return made

    def moved(self, tensor: tvm_ffi.Tensor) -> DeviceArray:
        """Copy a contiguous host tensor to the device."""
        made = self.empty(tuple(tensor.shape), dtype_of(str(tensor.dtype)))
        if made.nbytes:
            self._operation("device_upload", made.address, tensor.data_ptr(), made.nbytes)
        return made

    def placed(self, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        return self.moved(tensor).tensor if is_on_cpu(tensor) else tensor

    def tensor(self, array: Any) -> tvm_ffi.Tensor:
        if isinstance(array, DeviceArray):
            return array.tensor
        if not isinstance(array, np.ndarray):
            return array
        twin = self._twin(array)
        return self.loaded(array).tensor if twin is None else twin.tensor

    def outputs(self, arrays: Sequence[Any]) -> tuple[list[Any], Finish | None]:
        places, copies = [], []
        for array in arrays:
            twin = self._twin(array) if isinstance(array, np.ndarray) else array
            place = twin if twin is not None and twin.address % ALIGNMENT == 0 else self.empty(array.shape, array.dtype)
            places.append(place.tensor)
            if twin is None:
                copies.append(partial(self.download, array, place.address))
            elif place is not twin:
                copies.append(partial(self._operation, "device_copy", twin.address, place.address, place.nbytes))
        return places, partial(_all, copies) if copies else None

    def address(self, array: DeviceArray) -> int:
        return array.address

    def send(self, array: np.ndarray) -> None:
        self._operation("device_upload", self._existing_twin(array).address, array.ctypes.data, array.nbytes)

    def fetch(self, array: np.ndarray) -> None:
        self.download(array, self._existing_twin(array).address)

    def download(self, array: np.ndarray, address: int) -> None:
        """Copy ``array.nbytes`` bytes from the device to a contiguous array, after the calls that write them."""
        if array.nbytes:
            self._operation("device_download", array.ctypes.data, address, array.nbytes)

    def copy_page(self, array: DeviceArray, old: int, new: int) -> None:
        pages, page = array.shape[1], array.nbytes // (array.shape[0] * array.shape[1])
        for layer in range(array.shape[0]):
            begin = array.address + layer * pages * page
            self._operation("device_copy", begin + new * page, begin + old * page, page)

    def copy_slot(self, array: DeviceArray, old: int, new: int) -> None:
        slot = array.nbytes // array.shape[0]
        self._operation("device_copy", array.address + new * slot, array.address + old * slot, slot)

    def clear_slot(self, array: DeviceArray, slot: int) -> None:
        size = array.nbytes // array.shape[0]
        self._fill(array.address + slot * size, size)

    def defer(self) -> None:
        self._operation("device_set_asynchronous", 1)

    def close(self) -> None:
        """Free all memory; arrays cannot be used any more."""
        for address, finalizer in self._blocks.items():
            finalizer.detach()
            self._operation("device_free", address)
        for address in self._staging:
            self._operation("device_free_host", address)
        self._blocks.clear()
        self._retired.clear()
        self._mirrors.clear()
        self._staging.clear()

    def _fill(self, address: int, nbytes: int) -> None:
        if nbytes:
            self._operation("device_fill", address, 0, nbytes)

    def _free_retired(self) -> None:
        while self._retired:
            address = self._retired.popleft()
            del self._blocks[address]
            self._operation("device_free", address)

    def _pinned(self, number: int) -> int:
        """The address of a pinned staging buffer."""
        while len(self._staging) <= number:
            self._staging.append(int(self._operation("device_alloc_host", STAGING_BYTES)))
        return self._staging[number]

    def _twin(self, array: np.ndarray) -> DeviceArray | None:
        """The device copy of a mirrored array; None for an array that is not mirrored."""
        found = self._mirrors.find(array)
        if found is None:
            return None
        twin, offset = found
        return DeviceArray(self, twin.block, twin.address + offset, array.shape, array.dtype)

    def _existing_twin(self, array: np.ndarray) -> DeviceArray:
        twin = self._twin(array)
        assert twin is not None and array.flags.c_contiguous
        return twin


def _all(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()


class _Block:
    """An allocation; the device memory is freed when no array refers to this object."""
