"""Data types of compiled functions by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mlc_errors import MLCError

DLPACK_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
"""DLPack type codes of the data types that numpy itself cannot export."""
IN_BYTES = {"int4": "int8", "uint4": "uint8"}
"""Data types with one element in each byte, in numpy as in compiled code."""
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", *DLPACK_CODES, *IN_BYTES),
)


def dtype_of(name: str) -> np.dtype:
    """The numpy data type with the given name; bfloat16, 8-bit floats and 4-bit integers come from ml_dtypes."""
    if name not in DTYPES:
        raise MLCError(f"unknown data type {name!r}; expected one of {', '.join(DTYPES)}")
    return np.dtype(getattr(ml_dtypes, name) if name in DLPACK_CODES or name in IN_BYTES else name)


def tensor_dtype(name: str) -> str:
    """The data type of tensors with elements of type ``name``: 4-bit integers are stored one per byte."""
    return IN_BYTES.get(name, name)
