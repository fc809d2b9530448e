"""The function that compiled code calls to show a value: ``op.print_`` in a module exported for debugging."""

from __future__ import annotations

from mlc_runtime.arrays import as_numpy, tvm_ffi

DEBUG_PRINT = "mlc.debug_print"


def debug_print(where: str, name: str, tensor: tvm_ffi.Tensor) -> None:
    """Print a tensor: the line of the model that asked for it, its name, dtype and shape, its elements."""
    array = as_numpy(tensor)
    print(f"{where}: {name} {array.dtype} {list(array.shape)}\n{array}", flush=True)


def register_debug_print() -> None:
    """Make ``debug_print`` known to compiled code, unless the process has registered another function for it."""
    if tvm_ffi.get_global_func(DEBUG_PRINT, allow_missing=True) is None:
        tvm_ffi.register_global_func(DEBUG_PRINT, debug_print)
