"""The function that compiled code calls for ``op.print_`` in a module exported with debug=True."""

from __future__ import annotations

from mlc_runtime.arrays import as_numpy, tvm_ffi

DEBUG_PRINT = "mlc.debug_print"


def debug_print(where: str, name: str, tensor: tvm_ffi.Tensor) -> None:
    """Print a tensor: the source line of the print, its name, dtype, shape and elements."""
    array = as_numpy(tensor)
    print(f"{where}: {name} {array.dtype} {list(array.shape)}\n{array}", flush=True)


def register_debug_print() -> None:
    """Register ``debug_print`` as TVM FFI global function, unless one of that name is registered."""
    if tvm_ffi.get_global_func(DEBUG_PRINT, allow_missing=True) is None:
        tvm_ffi.register_global_func(DEBUG_PRINT, debug_print)
