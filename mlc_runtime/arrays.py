"""Arrays for compiled functions: aligned allocation, conversion to TVM FFI tensors."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import numpy as np

from mlc_errors import MLCError, ResourceError

from .dtypes import DLPACK_CODES, IN_BYTES, dtype_of
from .ffi import tvm_ffi

ALIGNMENT = 64
_MAP_NORESERVE = 0x4000  # Linux; mmap names it from Python 3.13 on
HUGE_PAGE = 2 << 20

# Byte offsets: of flags and dl_tensor in DLManagedTensorVersioned, of device and dtype.code in DLTensor.
_FLAGS_OFFSET, _DLTENSOR_OFFSET, _DEVICE_OFFSET, _DTYPE_OFFSET = 24, 32, 8, 20
_READ_ONLY = 1
_CPU = 1  # kDLCPU
_VERSIONED = b"dltensor_versioned"

# Separate prototypes: setting argtypes on ``ctypes.pythonapi`` would affect the whole process.
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


# Keyed by dtype: computing ``dtype.name`` takes longer than the rest of the conversion of a small array.
_CODES = {dtype_of(name): code for name, code in DLPACK_CODES.items()}
_BYTES = {dtype_of(name): np.dtype(byte) for name, byte in IN_BYTES.items()}


def aligned_empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose memory begins at a multiple of 64 bytes."""
    nbytes = prod(shape) * dtype.itemsize
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -buffer.ctypes.data % ALIGNMENT
    return buffer[begin : begin + nbytes].view(dtype).reshape(tuple(shape))


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A copy whose memory begins at a multiple of 64 bytes."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def lazy_zeros(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A zeroed array whose pages the operating system allocates at the first write."""
    nbytes = prod(shape) * dtype.itemsize
    memory = _anonymous(nbytes, _MAP_NORESERVE, "compile with a smaller context_window_size or max_batch_size")
    return np.frombuffer(memory, np.uint8, nbytes).view(dtype).reshape(tuple(shape))


class Region:
    """Memory of ``nbytes`` bytes for arrays that are read one after the other, in huge pages where the system has them.

    The C library's heap has small pages, and decoding waits for their addresses to be translated. Raises ResourceError.
    """

    def __init__(self, nbytes: int):
        memory = _anonymous(nbytes + HUGE_PAGE, 0, "choose a quantization with fewer bits")
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(memory, np.uint8)
        begin = -whole.ctypes.data % HUGE_PAGE
        self._free = whole[begin : begin + nbytes]

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """An uninitialised array at the next multiple of 64 bytes."""
        nbytes = prod(shape) * dtype.itemsize
        array, self._free = self._free[:nbytes], self._free[aligned_bytes(nbytes) :]
        return array.view(dtype).reshape(tuple(shape))


def aligned_bytes(nbytes: int) -> int:
    """The bytes that an array takes of a ``Region``."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _anonymous(nbytes: int, flags: int, instead: str) -> mmap.mmap:
    """Map zeroed memory. instead: what to do where there is no room for it."""
    try:
        return mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    except OSError as e:
        raise ResourceError(
            f"cannot reserve {nbytes / 1e6:.0f} MB of address space: {e.strerror}",
            hint=f"raise the limit (ulimit -v), or {instead}",
        ) from None


def as_numpy(array: object) -> np.ndarray:
    """Convert an array that supports DLPack to a contiguous numpy array; copies unless it is one already.

    Raises MLCError for an object that is not an array, not on the CPU or not contiguous.
    """
    if isinstance(array, np.ndarray):
        return np.asarray(array, order="C")
    try:
        tensor, _ = from_dlpack(array)
    except Exception as e:  # an object's own __dlpack__ may raise anything
        raise MLCError(f"got {type(array).__name__} ({e}); expected an array") from None
    if not is_on_cpu(tensor) or not tensor.is_contiguous():
        got = f"{device_name(tensor)} with strides {tensor.strides}"
        raise MLCError(f"got an array on {got}; expected a contiguous one on the CPU")
    copy = np.empty(tuple(tensor.shape), dtype_of(str(tensor.dtype)))
    ctypes.memmove(copy.ctypes.data, tensor.data_ptr(), copy.nbytes)
    return copy


def is_on_cpu(tensor: tvm_ffi.Tensor) -> bool:
    return tensor.__dlpack_device__()[0] == _CPU


def device_name(tensor: tvm_ffi.Tensor) -> str:
    """``cpu:0``, ``cuda:1`` …; type and index as numbers for a device type without a name."""
    try:
        return str(tensor.device)
    except KeyError:
        return "the device {}:{}".format(*tensor.__dlpack_device__())


def is_aligned(array: np.ndarray, alignment: int = ALIGNMENT) -> bool:
    return array.ctypes.data % alignment == 0


def to_tensor(array: np.ndarray) -> tvm_ffi.Tensor:
    """A TVM FFI tensor over the array's memory, which it keeps alive. Read-only arrays and ml_dtypes are supported.

    Raises BufferError for arrays that DLPack cannot describe.
    """
    if not array.dtype.isnative:
        raise BufferError("its bytes are in the other order")
    array = array.view(_BYTES[array.dtype]) if array.dtype in _BYTES else array
    code = _CODES.get(array.dtype)
    if code is None and array.flags.writeable:
        return tvm_ffi.from_dlpack(array)
    exportable = array if code is None else array.view(f"u{array.itemsize}")
    capsule = exportable.__dlpack__(max_version=(1, 0))
    if code is not None:
        pointer = _capsule_pointer(capsule, _VERSIONED)
        ctypes.c_uint8.from_address(pointer + _DLTENSOR_OFFSET + _DTYPE_OFFSET).value = code
    return tvm_ffi.from_dlpack(capsule)


def device_tensor(
    address: int, shape: Sequence[int], dtype: np.dtype, device: tuple[int, int], owner: object
) -> tvm_ffi.Tensor:
    """A TVM FFI tensor over memory of a device (DLPack's type and number), which keeps ``owner`` alive."""
    memory = (ctypes.c_uint8 * max(prod(shape) * dtype.itemsize, 1)).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    array = np.frombuffer(memoryview(memory), np.uint8, prod(shape) * dtype.itemsize).view(dtype).reshape(tuple(shape))
    array = array.view(_BYTES[dtype]) if dtype in _BYTES else array
    exportable = array.view(f"u{dtype.itemsize}") if array.dtype in _CODES else array
    capsule = exportable.__dlpack__(max_version=(1, 0))
    tensor = _capsule_pointer(capsule, _VERSIONED) + _DLTENSOR_OFFSET
    (ctypes.c_int32 * 2).from_address(tensor + _DEVICE_OFFSET)[:] = list(device)
    if array.dtype in _CODES:
        ctypes.c_uint8.from_address(tensor + _DTYPE_OFFSET).value = _CODES[array.dtype]
    return tvm_ffi.from_dlpack(capsule)


def from_dlpack(array: object) -> tuple[tvm_ffi.Tensor, bool]:
    """A TVM FFI tensor over the memory of an array of any library, and whether the array is read-only.

    Raises whatever the object's ``__dlpack__`` raises, AttributeError without one.
    """
    if isinstance(array, tvm_ffi.Tensor):
        return array, False
    try:
        capsule = array.__dlpack__(max_version=(1, 0))  # type: ignore[attr-defined]
    except TypeError:  # the producer predates DLPack 1.0
        return tvm_ffi.from_dlpack(array), False
    read_only = _is_read_only(capsule)  # before the capsule is consumed
    return tvm_ffi.from_dlpack(capsule), read_only


def _is_read_only(capsule: object) -> bool:
    if not _capsule_is_valid(capsule, _VERSIONED):
        return False
    flags = ctypes.c_uint64.from_address(_capsule_pointer(capsule, _VERSIONED) + _FLAGS_OFFSET)
    return bool(flags.value & _READ_ONLY)
