"""Implementation of ``op.print_``, which modules exported with debug=True call."""

from __future__ import annotations

from mlc_runtime.arrays import as_numpy, tvm_ffi

DEBUG_PRINT = "mlc.debug_print"


def debug_print(where: str, name: str, tensor: tvm_ffi.Tensor) -> None:
    """Print a tensor: the source line of the print, its name, dtype, shape and elements."""
    array = as_numpy(tensor)
    print(f"{where}: {name} {array.dtype} {list(array.shape)}\n{array}", flush=True)
