"""Tensor functions scheduled for GPUs, run in the simulator, or as loops on the CPU."""

from __future__ import annotations

import numpy as np

from mlc_compiler.backends import backend_of
from mlc_compiler.backends.cuda.images import compile_kernels
from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.lift_allocs import LiftAllocs
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.verify import Verify
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.sim.host_functions import Device, Launched
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import For, PrimFunc
from tests.compiler.backends.cuda.kernels import main
from tests.compiler.backends.cuda.races import run

TARGET = Target("cuda:sm_80")


def kernels(func: PrimFunc, target: Target = TARGET) -> IRModule:
    """A function ``main``, scheduled and lowered up to split-kernels; no parameter changes its layout."""
    own = backend_of(target).lowering(target, Optimization())
    mod = IRModule({"main": func.with_attr("activations", tuple(range(len(func.buffers))))})
    passes = (ApplySchedules(own.rules, target), LowerBlocks(), LiftAllocs(), *own.loops)
    return run_passes(mod, (*passes, Verify(after="the passes")))


def rule_of(func: PrimFunc) -> str:
    """The name of the rule that schedules a function."""
    return str(main(kernels(func)).attrs["schedule"])


def launches(func: PrimFunc) -> int:
    """The number of kernels of a function."""
    grids = [
        n for n in walk(kernels(func).of_type(PrimFunc)["main"].body) if isinstance(n, For) and n.thread == "blockIdx.x"
    ]
    return len(grids)


def check(inputs: list[te.Tensor], result: te.Tensor, *arrays: np.ndarray, tolerance: float = 1e-5) -> None:
    """Assert that a tensor expression, scheduled for GPUs, has the interpreter's result in both orders of threads."""
    func = te.create_prim_func([*inputs, result])
    assert rule_of(func) != "Fallback"
    shape = tuple(_sizes(inputs, result, arrays))
    out = np.zeros(shape, arrays[0].dtype if result.dtype == inputs[0].dtype else result.dtype)
    expected = np.array(out)
    run_function(IRModule({"main": func}), "main", *arrays, expected)
    got = run(kernels(func), *arrays, out)[-1]
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


def simulated(func: PrimFunc, *arrays: np.ndarray, target: Target = TARGET) -> tuple[list[np.ndarray], list[Launched]]:
    """The arguments after a scheduled function ran in the simulator, and its launches; SimulationError for faults."""
    mod = run_passes(IRModule({"main": func.with_attr("global_symbol", "main")}), entries())
    lowered = run_passes(mod, pipeline(target, Optimization(fusion=False, schedules=False)))
    device, launched = Device.of(compile_kernels(lowered, target).images), list[Launched]()
    results = [np.array(a) for a in arrays]
    run_function(lowered, "main", *results, kernels=lambda f, *args: launched.extend(device.run(f, *args)))
    return results, launched


def _sizes(inputs: list[te.Tensor], result: te.Tensor, arrays: tuple[np.ndarray, ...]) -> list[int]:
    known: dict[int, int] = {}
    for tensor, array in zip(inputs, arrays, strict=True):
        known |= {id(s): n for s, n in zip(tensor.shape, array.shape, strict=True)}
    return [known.get(id(s), getattr(s, "value", 0)) for s in result.shape]
