"""Modules compiled for AArch64 and run in an emulated process: ``emulate(mod, "cpu:neoverse-n1")["main"](x, w)``."""

from __future__ import annotations

import struct
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlc_compiler.api import Buildable, as_module
from mlc_compiler.codegen.host.dlpack import CPU_DEVICE, TYPE_DLTENSOR, TYPE_FLOAT, TYPE_INT, dl_dtype
from mlc_compiler.driver import build_library
from mlc_compiler.optimization import Optimization
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.target import Target
from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.library import Library
from mlc_runtime.model_spec import model_spec
from tests.compiler.backends.cpu.aarch64_process import Process


class EmulatedLibrary(Library):
    """A library for AArch64 with the interface of ``Library``. One thread."""

    def __init__(self, path: Path):
        super().__init__(path, num_threads=1)

    @cached_property
    def process(self) -> Process:
        return Process(self.path)

    def raw(self, name: str) -> Callable[..., Any]:
        """The function as exported. Raises RuntimeError with the text of the error that it sets."""

        def call(*args: Any) -> int | None:
            process = self.process
            for address, nbytes in self._memory_of(name, args):
                process.share(address, nbytes)
            values = process.place(b"".join(_any(process, arg) for arg in args))
            result = process.place(bytes(16))
            status = process.call(process.symbols[f"__tvm_ffi_{name}"], 0, values, len(args), result)
            if status & 0xFFFFFFFF:
                raise RuntimeError(process.last_error())
            kind, value = struct.unpack("<qq", process.uc.mem_read(result, 16))
            return value if kind == TYPE_INT else None

        return call

    def _memory_of(self, name: str, args: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """Addresses and sizes in bytes of the tensors in the arguments, also of those in tables of weights."""
        for arg in args:
            if isinstance(arg, tvm_ffi.Tensor):
                yield arg.data_ptr(), _nbytes(arg.shape, str(arg.dtype))
        inputs = self.functions[name].inputs if name in self.functions else ()
        tables = [arg for spec, arg in zip(inputs, args[1:], strict=False) if spec.name == "packed_params"]
        for table in tables:
            specs = model_spec(self.metadata).params
            for address, spec in zip(np.from_dlpack(table).tolist(), specs, strict=True):
                stored = spec.packed or spec
                yield address, _nbytes(stored.shape, stored.dtype)


def _nbytes(shape: Sequence[int], dtype: str) -> int:
    return prod(shape) * dtype_of(dtype).itemsize


def _any(process: Process, arg: Any) -> bytes:
    """Convert an argument to a TVMFFIAny; a tensor becomes a DLTensor over its own memory."""
    if isinstance(arg, int):
        return struct.pack("<qq", TYPE_INT, arg)
    if isinstance(arg, float):
        return struct.pack("<qd", TYPE_FLOAT, arg)
    shape = process.place(struct.pack(f"<{len(arg.shape)}q", *arg.shape))
    described = (len(arg.shape), dl_dtype(str(arg.dtype)), shape, 0, 0)
    tensor = process.place(struct.pack("<QiiiIQQQ", arg.data_ptr(), CPU_DEVICE, 0, *described))
    return struct.pack("<qQ", TYPE_DLTENSOR, tensor)


def emulate(mod: Buildable, target: str | Target, opt: str = "O3") -> EmulatedLibrary:
    """Compile a module or function for an AArch64 target, as ``mlc_compiler.build`` does, to be run in emulation."""
    folder = tempfile.TemporaryDirectory(prefix="mlc-emulated-")
    path = Path(folder.name) / "lib.so"
    build_library(run_passes(as_module(mod), entries()), Target(target), path, optimization=Optimization.parse(opt))
    library = EmulatedLibrary(path)
    weakref.finalize(library, folder.cleanup)
    return library
