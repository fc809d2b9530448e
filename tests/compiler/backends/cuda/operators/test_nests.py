"""Loop nests of hand-written kernels: the effects of their annotations."""

from __future__ import annotations

from mlc_compiler.backends.cuda.images import compile_kernels
from mlc_compiler.backends.cuda.operators.nests import nest
from mlc_compiler.backends.cuda.passes.place_syncs import PlaceSyncs
from mlc_compiler.backends.cuda.passes.split_kernels import SplitKernels
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import run_passes
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import BufferStore, PrimFunc, buffer, seq


def test_barriers_are_left_to_the_kernel_and_registers_are_limited() -> None:
    out, shared = buffer("out", (64,), "float32"), buffer("shared", (64,), "float32", scope="shared")
    block, thread = Var("block"), Var("thread")
    body = seq(BufferStore(shared, out[thread], (thread,)), BufferStore(out, shared[63 - thread], (thread,)))
    func = PrimFunc((out,), nest(((block, 1),), ((thread, 64),), [shared], body, min_blocks=3))
    mod = run_passes(IRModule({"main": func}), (PlaceSyncs(), SplitKernels()))
    ptx = compile_kernels(mod, Target("cuda:sm_80")).images[0].ptx
    assert "bar.sync" not in ptx
    assert ".minnctapersm 3" in ptx
