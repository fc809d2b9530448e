"""Compile and call tensor functions without the rest of a library."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from mlc_compiler.codegen.host.module import new_module
from mlc_compiler.codegen.link import link_shared
from mlc_compiler.codegen.native import compile_modules
from mlc_compiler.codegen.statements import declare_function, emit_function
from mlc_compiler.ir.expr import PrimExpr, Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.lower_math import LowerMath
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PARALLEL, VECTORIZED, Buffer, BufferStore, For, PrimFunc, buffer

HOST = Target("cpu")
LANES = 16


def llvm_text(funcs: Mapping[str, PrimFunc], to: Target = HOST) -> str:
    """The LLVM module of tensor functions, each exported under its name."""
    mod = IRModule(dict(funcs))
    for step in (LowerBlocks(), LowerMath()):
        mod = step.run(mod)
    module = new_module(to)
    for name, func in mod.of_type(PrimFunc).items():
        emit_function(declare_function(module, func, f"kernel.{name}"), func, to)
    return str(module)


def assembly(func: PrimFunc, to: Target = HOST) -> str:
    """The optimized assembly of one tensor function."""
    text = compile_modules([llvm_text({"kernel": func}, to)], to, assembly=True).assembly
    assert text is not None
    return text


class Kernels:
    """Compiled tensor functions by name; called with arrays for buffers and ints for scalars and sizes."""

    def __init__(self, funcs: Mapping[str, PrimFunc], to: Target = HOST):
        native = compile_modules([llvm_text(funcs, to)], to)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.so"
            link_shared(native.objects, path, to)
            self.library = ctypes.CDLL(str(path))

    def __getitem__(self, name: str) -> Callable[..., None]:
        function = self.library[f"kernel.{name}"]

        def call(*args: np.ndarray | int) -> None:
            pointers_and_sizes = (a.ctypes.data if isinstance(a, np.ndarray) else a for a in args)
            function(*map(ctypes.c_int64, pointers_and_sizes))

        return call


def elementwise(
    f: Callable[..., PrimExpr], dtypes: tuple[str, ...], result: str, lanes: int = LANES, attrs: Mapping | None = None
) -> PrimFunc:
    """``out[i] = f(a[i], …)`` over ``blocks * lanes`` elements in SIMD vectors; the size ``blocks`` is symbolic."""
    blocks, i, lane = Var("blocks"), Var("i"), Var("lane")
    inputs = [buffer(f"a{k}", (blocks, lanes), d) for k, d in enumerate(dtypes)]
    out: Buffer = buffer("out", (blocks, lanes), result)
    store = BufferStore(out, f(*(a[i, lane] for a in inputs)), (i, lane))
    body = For(i, blocks, For(lane, out.shape[1], store, VECTORIZED), PARALLEL)
    return PrimFunc((*inputs, out), body, {"tir.noalias": True, **(attrs or {})})


def apply(kernel: Callable[..., None], out: np.ndarray, *arrays: np.ndarray, lanes: int = LANES) -> np.ndarray:
    """Run an element-wise kernel over flat arrays whose length is a multiple of ``lanes``."""
    assert out.size % lanes == 0
    kernel(*arrays, out, out.size // lanes)
    return out
