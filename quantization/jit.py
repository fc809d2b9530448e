"""One tensor function compiled into this process, for kernels that conversion itself runs."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir as ll

from mlc_compiler.codegen.kernels import declare_kernel, emit_kernel
from mlc_compiler.codegen.native import optimize
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.target import Target
from mlc_compiler.tir.calling import scalar_parameters
from mlc_compiler.tir.nodes import PrimFunc

SYMBOL = "tensor_function"


class CompiledFunction:
    """Call it with contiguous arrays for the buffers, then integers for the symbolic sizes.

    Calls run on the caller's thread, without the interpreter's lock.
    """

    def __init__(self, func: PrimFunc, target: Target):
        module = ll.Module(SYMBOL)
        module.triple = target.triple
        func = LowerBlocks().run(IRModule({SYMBOL: func}))[SYMBOL]
        kernel = declare_kernel(module, func, SYMBOL)
        kernel.linkage = "external"
        emit_kernel(kernel, func, target)
        optimized, machine = optimize(str(module), target)
        self._engine = llvm.create_mcjit_compiler(optimized, machine)
        self._engine.finalize_object()
        sizes = [ctypes.c_int64] * len(scalar_parameters(func))
        team = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        self._buffers = len(func.buffers)
        signature = ctypes.CFUNCTYPE(None, *team, *[ctypes.c_void_p] * self._buffers, *sizes)
        self._call = signature(self._engine.get_function_address(SYMBOL))

    def __call__(self, *arguments: np.ndarray | int) -> None:
        arrays = [array.ctypes.data for array in arguments[: self._buffers]]
        self._call(None, 0, 1, *arrays, *arguments[self._buffers :])
