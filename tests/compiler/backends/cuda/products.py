"""Tensor functions of matmuls, with operands and the expected results in numpy."""

from __future__ import annotations

from collections.abc import Sequence
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
from mlc_compiler.tir import byte_scales, te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule.layout import LAYOUTS
from tests.compiler.backends.cuda.kernels import main
from tests.compiler.code_words import group_words, stored_codes

NORMAL_FLOAT = (-127, -89, -67, -49, -37, -23, -11, 0, 9, 20, 31, 43, 56, 71, 92, 127)
FLOAT8 = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


@dataclass(frozen=True)
class Codes:
    """A quantization format: ``bits`` bits per code, a scale per group, and an optional codebook ``values``.

    byte_scales: whether scales take one byte.
    """

    bits: int
    group: int = 32
    values: tuple[int, ...] = ()
    byte_scales: bool = False

    def weight(self, q: np.ndarray, scale: np.ndarray, depth: int) -> np.ndarray:
        """Dequantize words [columns, …] and scales [columns, groups]: the weight [columns, depth] in the dtype of the
        scales."""
        codes = stored_codes(q, self.bits, self.group)[:, :depth].astype(np.int32)
        steps = np.array(self.values)[codes] if self.values else codes - ((1 << (self.bits - 1)) - 1)
        return steps.astype(scale.dtype) * np.repeat(scale, self.group, axis=1)[:, :depth]


CODES = {
    **{"q4": Codes(4), "q3": Codes(3, 40), "q8": Codes(8), "book4": Codes(4, values=NORMAL_FLOAT)},
    **{"q5": Codes(5), "q6": Codes(6), "byte4": Codes(4, 32, NORMAL_FLOAT, byte_scales=True)},
    "half4": Codes(4, 16, NORMAL_FLOAT, byte_scales=True),
}


@dataclass(frozen=True)
class Case:
    """A matmul ``x @ w + bias + residual`` with x [1, rows, depth]. symbolic: whether the number of rows is
    symbolic.

    weight: ``NK`` or ``KN`` for a plain weight, preceded by a name of ``CODES`` for a dequantized one; ``e4m3 NK``
    or ``e5m2 NK`` for float8. gated: the result is ``silu(gate) * up + residual``, where gate and up are the halves
    of ``x @ w + bias``; columns: of the result.
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
            stored, w = self.weight_parameters()
            product = linear.te(x, w, bias)
        if self.gated:
            gate, up = split.te(product, indices_or_sections=2, axis=-1)
            product = silu.te(gate) * up
        return te.create_prim_func([x, *stored, bias, residual, product + residual])

    @property
    def sums(self) -> int:
        """The number of columns of the weight."""
        return self.columns * (1 + self.gated)

    @property
    def kind(self) -> str:
        """The format of the weight: a name of ``CODES`` or ``FLOAT8``, or ``NK`` or ``KN``."""
        return self.weight.split()[0]

    def weight_parameters(self) -> tuple[list[te.Tensor], te.Tensor]:
        """The weight's parameters, and the weight [columns, depth] computed from them."""
        if self.kind not in CODES:
            w = te.placeholder((self.sums, self.depth), FLOAT8.get(self.kind, self.dtype), "w")
            return [w], w
        layout, of = self.weight.split()[1], CODES[self.kind]
        codes, groups = (s if layout == "NK" else s[::-1] for s in self._stored_shapes())
        q, s = (
            te.placeholder(codes, "uint32", "q"),
            te.placeholder(groups, "int8" if of.byte_scales else self.dtype, "scale"),
        )
        attrs = {"bits": of.bits, "group": of.group, "values": of.values, "layout": layout, "dtype": self.dtype}
        return [q, s], dequantize.te(q, s, k=self.depth, **attrs)

    def _stored_shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of words (whole groups) and of scales."""
        of = CODES[self.kind]
        groups = -(-self.depth // of.group)
        return (self.sums, groups * group_words(of.bits, of.group)), (self.sums, groups)

    def arrays(self, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
        """Random operands in the order of the parameters, and the expected result."""
        rng = np.random.default_rng(seed)
        dtype = dt.to_numpy(self.dtype)
        x = rng.normal(size=(1, self.rows, self.depth)).astype(dtype)
        stored, w = self.weight_arrays(rng, dtype)
        bias = rng.normal(size=self.sums).astype(dtype)
        residual = rng.normal(size=(1, self.rows, self.columns)).astype(dtype)
        sums = x.astype(np.float32) @ w.astype(np.float32).T
        biased = sums.astype(dtype) + bias if self.weight == "KN" else (sums + bias.astype(np.float32)).astype(dtype)
        if self.gated:
            gate, up = np.split(biased, 2, axis=-1)
            wide = gate.astype(np.float32)
            biased = (wide / (1 + np.exp(-wide))).astype(dtype) * up
        return [x, *stored, bias, residual], biased + residual

    def weight_arrays(self, rng: np.random.Generator, dtype: np.dtype) -> tuple[list[np.ndarray], np.ndarray]:
        """Arrays for the weight's parameters, and the weight [columns, depth] that they encode."""
        if self.kind not in CODES:
            w = (rng.normal(size=(self.sums, self.depth)) / self.depth**0.5).astype(dtype)
            if self.kind in FLOAT8:
                stored = w.astype(dt.to_numpy(FLOAT8[self.kind]))
                return [stored], stored.astype(dtype)
            return [w if self.weight == "NK" else np.ascontiguousarray(w.T)], w
        of = CODES[self.kind]
        words, groups = self._stored_shapes()
        q = rng.integers(0, 2**32, words, dtype=np.uint32)
        largest = max(1 << of.bits - 2, *map(abs, of.values)) if of.values else 1 << of.bits - 2
        scale = (rng.random(groups) / self.depth**0.5 / largest).astype(dtype)
        held = scale
        if of.byte_scales:
            held = byte_scales.to_bytes(rng.choice([-1, 1], groups) * scale.astype(np.float32))
            scale = byte_scales.from_bytes(held).astype(dtype)
        stored = [q, held] if self.weight.endswith("NK") else [np.ascontiguousarray(a.T) for a in (q, held)]
        return stored, of.weight(q, scale, self.depth)


def lowered(func: PrimFunc, target: Target, *, packs: bool = False) -> IRModule:
    """The kernels of a function and the host function that launches them.

    packs: whether parameters other than the first may change layout; see ``stored``.
    """
    own = backend_of(target).lowering(target, Optimization())
    mod = IRModule({"main": func.with_attr("activations", (0,) if packs else tuple(range(len(func.buffers))))})
    passes = (ApplySchedules(own.rules, target), LowerBlocks(), LiftAllocs(), *own.loops, *own.calls, LowerMath())
    return run_passes(mod, (*passes, Verify(after="the passes")))


def stored(mod: IRModule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arguments of a lowered function, converted to the layouts of its parameters."""
    layouts = mod["main"].attrs.get(LAYOUTS, {})
    return [layouts[str(i)].pack(a) if str(i) in layouts else a for i, a in enumerate(arrays)]


def simulated(
    func: PrimFunc, arrays: list[np.ndarray], out: np.ndarray, target: Target, *, packs: bool = False
) -> list[np.ndarray]:
    """Run the kernels of a function in the simulator, which fills ``out``; returns its scratch memory afterwards."""
    mod = lowered(func, target, packs=packs)
    host = main(mod)
    images = [Images(text, {}) for text in assemble_modules(llvm_modules(mod, target, {}), target)]
    memory = [np.zeros([int(n) for n in b.shape], dt.to_numpy(b.dtype)) for b in scratch(host)]  # type: ignore
    Device.of(images).run(host, *stored(mod, arrays), out, *memory)
    return memory
