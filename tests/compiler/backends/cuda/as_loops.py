"""Whole modules scheduled for a GPU as libraries for the CPU: kernels become loops over blocks and threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlc_compiler.backends import emit_llvm
from mlc_compiler.backends.cpu.passes.place_barriers import PlaceBarriers
from mlc_compiler.backends.cuda.passes.simt_to_loops import SimtToLoops
from mlc_compiler.backends.cuda.passes.split_kernels import SplitKernels
from mlc_compiler.codegen.link import link_shared
from mlc_compiler.codegen.native import compile_modules
from mlc_compiler.codegen.statements import ORDERED_SUMS
from mlc_compiler.ir.expr import Var, const
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.recursion import deep_recursion
from mlc_compiler.passes.base import Pass
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_math import LowerMath
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.target import Target
from mlc_compiler.tir.leading_axes import LeadingAxes
from mlc_compiler.tir.nodes import ZEROED, Allocate, BufferStore, PrimFunc, Stmt, loop_nest, seq
from tests.compiler.backends.toy import SerialLoops


@dataclass(frozen=True)
class ZeroScratch(Pass):
    """Turn scratch buffers of scope ``ZEROED`` into ordinary buffers that are filled with zeros first."""

    name = "zero-scratch"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({n: replace(f, body=_ZeroScratch()(f.body)) for n, f in mod.of_type(PrimFunc).items()})


class _ZeroScratch(LeadingAxes):
    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        if node.buffer.scope != ZEROED:
            return self.rewrite_children(node)
        plain = replace(node.buffer, scope="global")
        self.parts[id(node.buffer)] = plain, ()
        loops = [(Var(f"i{axis}"), size) for axis, size in enumerate(plain.shape)]
        zeros = loop_nest(loops, BufferStore(plain, const(0, plain.dtype), tuple(var for var, _ in loops)))
        return Allocate(plain, seq(zeros, self(node.body)))


@dataclass(frozen=True)
class OrderSums(Pass):
    """Keep the order of sums, so that both orders of threads give bit-identical results."""

    name = "order-sums"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({n: f.with_attr(ORDERED_SUMS, True) for n, f in mod.of_type(PrimFunc).items()})


def passes(target: Target) -> tuple[list[Pass], list[Pass]]:
    """A CUDA target's passes before kernels are split off, and those after; mathematical functions are the CPU's."""
    steps = pipeline(target)
    at = next(i for i, step in enumerate(steps) if isinstance(step, SplitKernels))
    before = [
        new for step in steps[:at] for new in ((ZeroScratch(), step) if isinstance(step, LiftAllocs) else (step,))
    ]
    return before, [LowerMath() if isinstance(step, LowerMath) else step for step in steps[at + 1 :]]


@deep_recursion
def build_as_loops(
    mod: IRModule,
    target: Target,
    outputs: Mapping[bool, Path],
    metadata: Callable[[IRModule], Mapping[str, Any]] = lambda _: {},
) -> None:
    """Compile a module with the CUDA schedules to libraries for this machine's CPU.

    outputs: paths; for False the library whose loops over threads ascend, for True the one whose loops descend.
    """
    cpu = Target("cpu")
    before, after = passes(target)
    scheduled = run_passes(mod, before)
    for descending, output in outputs.items():
        loops = [SimtToLoops(descending), OrderSums(), SerialLoops(), PlaceBarriers(), *after]
        lowered = run_passes(scheduled, loops)
        native = compile_modules(emit_llvm(lowered, cpu, metadata(lowered)), cpu)
        link_shared(native.objects, output, cpu)
