"""Memory layouts of the TVM FFI's values and of DLPack tensors: tvm/ffi/c_api.h and dlpack.h."""

from __future__ import annotations

from ...ir import dtype as dt

# TVMFFIAny: a type index, then eight bytes of value or pointer.
ANY_BYTES = 16
TYPE_INT, TYPE_BOOL, TYPE_FLOAT, TYPE_DLTENSOR, TYPE_STRING = 1, 2, 3, 7, 8
TYPE_OBJECT, TYPE_TENSOR = 64, 70  # types from TYPE_OBJECT on are reference counted
OBJECT_HEADER_BYTES = 24

# DLTensor, and DLManagedTensor, which follows it with a context and a deleter.
DL_DEVICE, DL_DEVICE_ID, DL_NDIM, DL_DTYPE, DL_SHAPE, DL_STRIDES, DL_OFFSET, DL_BYTES = 8, 12, 16, 20, 24, 32, 40, 48
MANAGED_DELETER, MANAGED_BYTES = 56, 64
CPU_DEVICE, CUDA_DEVICE, CUDA_HOST_DEVICE, CUDA_MANAGED_DEVICE = 1, 2, 3, 13
DL_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}


def dl_dtype(dtype: str) -> int:
    """The in-memory representation of a DLDataType (code, bits, lanes) as a 32-bit integer."""
    code = DL_CODES.get(dtype)
    if code is None:
        code = DL_CODES[dtype.rstrip("0123456789")]
    return code | (8 * dt.nbytes(dtype)) << 8 | 1 << 16
