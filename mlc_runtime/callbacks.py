"""Runtime functions that compiled code calls by name, registered as TVM FFI global functions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mlc_runtime.arrays import as_numpy, is_on_cpu, tvm_ffi
from mlc_runtime.debug import DEBUG_PRINT, debug_print
from mlc_runtime.observation import OBSERVER, observe_kernel

CALL_RETURNING = "mlc.call_returning"


def call_returning(name: str, count: int, *args: Any) -> None:
    """Call the function registered as ``name`` and copy the ``count`` arrays that it returns to the last arguments.

    Raises ValueError for an unknown name, and if number, shape or dtype of the arrays differ from the arguments'.
    """
    inputs, places = args[: len(args) - count], args[len(args) - count :]
    function = tvm_ffi.get_global_func(name, allow_missing=True)
    if function is None:
        raise ValueError(f"no function is registered as {name}; see register_func")
    returned = function(*inputs)
    results = list(returned) if isinstance(returned, Sequence) else [returned]
    if len(results) != count:
        raise ValueError(f"{name} returned {len(results)} values; expected {count}")
    for result, place in zip(results, places, strict=True):
        _copy(name, result, place)


def _copy(name: str, result: object, place: tvm_ffi.Tensor) -> None:
    if not is_on_cpu(place):
        raise ValueError(f"{name} returns an array; functions that GPUs call write to destinations: call_dps_packed")
    array = as_numpy(result)
    if (str(array.dtype), array.shape) != (str(place.dtype), tuple(place.shape)):
        got = f"{array.dtype} {list(array.shape)}"
        raise ValueError(f"{name} returned {got}; expected {place.dtype} {list(place.shape)}")
    ctypes.memmove(place.data_ptr(), array.ctypes.data, array.nbytes)


def register_callbacks() -> None:
    """Register the functions, unless functions with these names are already registered."""
    functions = {DEBUG_PRINT: debug_print, CALL_RETURNING: call_returning, OBSERVER: observe_kernel}
    for name, function in functions.items():
        if tvm_ffi.get_global_func(name, allow_missing=True) is None:
            tvm_ffi.register_global_func(name, function)
