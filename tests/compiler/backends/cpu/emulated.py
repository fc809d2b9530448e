"""Modules compiled for AArch64 and run in an emulated process: ``emulate(mod, "cpu:neoverse-n1")["main"](x, w)``."""

from __future__ import annotations

import ctypes
import struct
import tempfile
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mlc_compiler.api import Buildable, as_module
from mlc_compiler.codegen.host.dlpack import TYPE_DLTENSOR, TYPE_FLOAT, TYPE_INT, dl_dtype
from mlc_compiler.driver import build_library
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.target import Target
from mlc_runtime.arrays import dtype_of, tvm_ffi
from mlc_runtime.library import Library
from tests.compiler.backends.cpu.aarch64_process import Process


class EmulatedLibrary(Library):
    """A library for AArch64 whose functions are called as those of any other: arrays in, arrays out. One thread."""

    def __init__(self, path: Path):
        super().__init__(path, num_threads=1)

    @cached_property
    def process(self) -> Process:
        return Process(self.path)

    def raw(self, name: str) -> Callable[..., Any]:
        """The function as exported. Raises RuntimeError with the text of the error that it sets."""

        def call(*args: Any) -> int | None:
            process = self.process
            placed = [(arg, process.place(_bytes_of(arg))) for arg in args if isinstance(arg, tvm_ffi.Tensor)]
            addresses = iter([address for _, address in placed])
            values = process.place(b"".join(_any(process, arg, addresses) for arg in args))
            result = process.place(bytes(16))
            failed = ctypes.c_int32(process.call(process.symbols[f"__tvm_ffi_{name}"], 0, values, len(args), result))
            if failed.value:
                raise RuntimeError(process.last_error())
            for tensor, address in placed:
                ctypes.memmove(tensor.data_ptr(), bytes(process.uc.mem_read(address, _nbytes(tensor))), _nbytes(tensor))
            kind, value = struct.unpack("<qq", process.uc.mem_read(result, 16))
            return value if kind == TYPE_INT else None

        return call


def _nbytes(tensor: tvm_ffi.Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * dtype_of(str(tensor.dtype)).itemsize


def _bytes_of(tensor: tvm_ffi.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), _nbytes(tensor))


def _any(process: Process, arg: Any, addresses: Any) -> bytes:
    """A TVMFFIAny; tensors are DLTensors on the data at the next of ``addresses``."""
    if isinstance(arg, int):
        return struct.pack("<qq", TYPE_INT, arg)
    if isinstance(arg, float):
        return struct.pack("<qd", TYPE_FLOAT, arg)
    shape = process.place(struct.pack(f"<{len(arg.shape)}q", *arg.shape))
    dtype = dl_dtype(str(arg.dtype))
    tensor = struct.pack("<QiiiIQQQ", next(addresses), 1, 0, len(arg.shape), dtype, shape, 0, 0)
    return struct.pack("<qQ", TYPE_DLTENSOR, process.place(tensor))


def emulate(mod: Buildable, target: str | Target) -> EmulatedLibrary:
    """Compile a module or function for an AArch64 target, as ``mlc_compiler.build`` does, to be run in emulation."""
    folder = tempfile.TemporaryDirectory(prefix="mlc-emulated-")
    path = Path(folder.name) / "lib.so"
    build_library(run_passes(as_module(mod), entries()), Target(target), path)
    library = EmulatedLibrary(path)
    weakref.finalize(library, folder.cleanup)
    return library
