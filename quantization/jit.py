"""JIT compilation of single tensor functions, for the kernels of conversion."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np

from mlc_compiler.codegen.host.module import new_module
from mlc_compiler.codegen.native import optimize
from mlc_compiler.codegen.statements import declare_function, emit_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.target import Target
from mlc_compiler.tir.calling import scalar_parameters
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import check_address_space

SYMBOL = "tensor_function"
ADDRESSES = 128 << 20  # bytes; LLVM takes less for one function


class CompiledFunction:
    """A compiled function; call it with contiguous arrays for the buffers, then integers for the symbolic sizes.

    Calls run on the caller's thread and release the GIL.
    """

    def __init__(self, func: PrimFunc, target: Target):
        check_address_space("code generation", ADDRESSES)
        module = new_module(target)
        func = LowerBlocks().run(IRModule({SYMBOL: func}))[SYMBOL]
        emit_function(declare_function(module, func, SYMBOL), func, target)
        optimized, machine = optimize(str(module), target)
        # llvmlite's memory manager places code and constants within the reach of 32-bit relative addresses.
        self._engine = llvm.create_mcjit_compiler(optimized, machine, use_lmm=True)
        self._engine.finalize_object()
        self._buffers = len(func.buffers)
        sizes = [ctypes.c_int64] * len(scalar_parameters(func))
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * self._buffers, *sizes)
        self._call = signature(self._engine.get_function_address(SYMBOL))

    def __call__(self, *arguments: np.ndarray | int) -> None:
        arrays = [np.asarray(array).ctypes.data for array in arguments[: self._buffers]]
        self._call(*arrays, *arguments[self._buffers :])
