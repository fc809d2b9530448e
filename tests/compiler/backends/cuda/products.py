"""Tensor functions of matrix products, with their operands and results in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlc_compiler.backends import backend_of
from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Images
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.module import IRModule
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.lower_math import LowerMath
from mlc_compiler.passes.verify import Verify
from mlc_compiler.pipeline import run_passes
from mlc_compiler.relax.ops.elementwise import silu
from mlc_compiler.relax.ops.linear import dequantize, linear, matmul
from mlc_compiler.relax.ops.manipulate import split
from mlc_compiler.sim.host_functions import Device, scratch
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.backends.cuda.kernels import main

GROUP = 32


@dataclass(frozen=True)
class Case:
    """``x @ w + bias + residual`` with x [1, rows, depth]; symbolic: whether the function's rows are.

    weight: ``NK`` or ``KN`` for a stored weight, ``q4 NK`` or ``q4 KN`` for a dequantized one. gated: columns are those
    of the result ``silu(gate) * up + residual``, in which the two are the halves of ``x @ w + bias``.
    """

    rows: int
    columns: int
    depth: int
    weight: str = "NK"
    dtype: str = "float16"
    symbolic: bool = True
    gated: bool = False

    def function(self) -> PrimFunc:
        rows = te.var("n") if self.symbolic else self.rows
        x = te.placeholder((1, rows, self.depth), self.dtype, "x")
        bias = te.placeholder((self.sums,), self.dtype, "bias")
        residual = te.placeholder((1, rows, self.columns), self.dtype, "residual")
        if self.weight == "KN":
            stored = [te.placeholder((self.depth, self.sums), self.dtype, "w")]
            product = te.elementwise("add_bias", lambda t, b: t + b, matmul.te(x, stored[0]), bias)
        else:
            stored, w = self._weight()
            product = linear.te(x, w, bias)
        if self.gated:
            gate, up = split.te(product, indices_or_sections=2, axis=-1)
            product = silu.te(gate) * up
        return te.create_prim_func([x, *stored, bias, residual, product + residual])

    @property
    def sums(self) -> int:
        """The columns of the weight."""
        return self.columns * (1 + self.gated)

    def _weight(self) -> tuple[list[te.Tensor], te.Tensor]:
        """The parameters and the weight [columns, depth]."""
        if self.weight == "NK":
            w = te.placeholder((self.sums, self.depth), self.dtype, "w")
            return [w], w
        layout = self.weight.split()[1]
        shapes = [(self.sums, -(-self.depth // n)) for n in (8, GROUP)]
        codes, groups = (s if layout == "NK" else s[::-1] for s in shapes)
        q, s = te.placeholder(codes, "uint32", "q"), te.placeholder(groups, self.dtype, "scale")
        return [q, s], dequantize.te(q, s, bits=4, group=GROUP, k=self.depth, layout=layout, dtype=self.dtype)

    def arrays(self, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
        """Random operands in the order of the parameters, and the expected result."""
        rng = np.random.default_rng(seed)
        dtype = dt.to_numpy(self.dtype)
        x = rng.normal(size=(1, self.rows, self.depth)).astype(dtype)
        stored, w = self._weights(rng, dtype)
        bias = rng.normal(size=self.sums).astype(dtype)
        residual = rng.normal(size=(1, self.rows, self.columns)).astype(dtype)
        sums = x.astype(np.float32) @ w.astype(np.float32).T
        biased = sums.astype(dtype) + bias if self.weight == "KN" else (sums + bias.astype(np.float32)).astype(dtype)
        if self.gated:
            gate, up = np.split(biased, 2, axis=-1)
            wide = gate.astype(np.float32)
            biased = (wide / (1 + np.exp(-wide))).astype(dtype) * up
        return [x, *stored, bias, residual], biased + residual

    def _weights(self, rng: np.random.Generator, dtype: np.dtype) -> tuple[list[np.ndarray], np.ndarray]:
        """The parameters, and the weight [columns, depth] that they mean."""
        if not self.weight.startswith("q4"):
            w = (rng.normal(size=(self.sums, self.depth)) / self.depth**0.5).astype(dtype)
            return [w if self.weight == "NK" else np.ascontiguousarray(w.T)], w
        q = rng.integers(0, 2**32, (self.sums, -(-self.depth // 8)), dtype=np.uint32)
        scale = (rng.random((self.sums, -(-self.depth // GROUP))) / self.depth**0.5 / 4).astype(dtype)
        codes = (q[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        steps = codes.reshape(self.sums, -1)[:, : self.depth].astype(np.int32) - 7
        w = steps.astype(dtype) * np.repeat(scale, GROUP, axis=1)[:, : self.depth]
        stored = [q, scale] if self.weight.endswith("NK") else [np.ascontiguousarray(a.T) for a in (q, scale)]
        return stored, w


def lowered(func: PrimFunc, target: Target) -> IRModule:
    """The kernels of a function, and the host function that launches them."""
    own = backend_of(target).lowering(target, Optimization())
    mod = IRModule({"main": func.with_attr("activations", (0,))})
    passes = (ApplySchedules(own.rules, target), LowerBlocks(), LiftAllocs(), *own.loops, *own.calls, LowerMath())
    return run_passes(mod, (*passes, Verify(after="the passes")))


def simulated(func: PrimFunc, arrays: list[np.ndarray], out: np.ndarray, target: Target) -> list[np.ndarray]:
    """Fill ``out`` by the simulated kernels of a function; its scratch memory afterwards."""
    mod = lowered(func, target)
    host = main(mod)
    images = [Images(text, {}) for text in assemble_modules(llvm_modules(mod, target, {}), target)]
    memory = [np.zeros([int(n) for n in b.shape], dt.to_numpy(b.dtype)) for b in scratch(host)]  # type: ignore
    Device.of(images).run(host, *arrays, out, *memory)
    return memory
