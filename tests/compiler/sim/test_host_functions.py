"""Host functions in the simulator: launches, the blocks that run, bytes by array."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Images, Kernel
from mlc_compiler.backends.cuda.passes.split_kernels import SplitKernels
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.module import IRModule
from mlc_compiler.sim import SimulationError
from mlc_compiler.sim.host_functions import Blocks, Device
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.kernels import main, module

TARGET = Target("cuda:sm_80")
ROWS, COLUMNS = 5, 64
DOUBLE = """
@T.prim_func
def main(var_x: T.handle, w: T.Buffer((64,), "float32"), var_y: T.handle):
    T.func_attr({"num_outputs": 1})
    n = T.int64()
    x = T.match_buffer(var_x, (n, 64), "float32")
    y = T.match_buffer(var_y, (n, 64), "float32")
    for b in T.thread_binding(GRID, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            y[b, t] = x[b, t] * w[t]
"""


def split(grid: str = "n") -> IRModule:
    return SplitKernels().run(module(DOUBLE.replace("GRID", grid)))


def device(mod: IRModule, blocks: Blocks | None = None) -> Device:
    kernels: dict[str, Kernel] = {}
    return Device.of(
        [Images(text, {}) for text in assemble_modules(llvm_modules(mod, TARGET, kernels), TARGET)], blocks
    )


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(ROWS, COLUMNS)).astype("f4"), rng.normal(size=COLUMNS).astype("f4")
    return x, w, np.full((ROWS, COLUMNS), np.nan, "f4")


def test_a_launch_and_its_counts():
    mod, (x, w, y) = split(), arrays()
    (launched,) = device(mod).run(main(mod), x, w, y)
    assert np.array_equal(y, x * w)
    assert (launched.kernel, launched.grid, launched.block) == ("main_kernel", (ROWS, 1, 1), (COLUMNS, 1, 1))
    assert launched.simulated == launched.blocks == ROWS
    assert launched.counts.accessed == {"x": x.nbytes, "w": ROWS * w.nbytes, "y": y.nbytes}


def test_some_blocks():
    mod, (x, w, y) = split(), arrays()
    (launched,) = device(mod, lambda blocks: (0, blocks - 1, 0)).run(main(mod), x, w, y)
    assert (launched.simulated, launched.blocks) == (2, ROWS)
    assert np.array_equal(y[[0, -1]], (x * w)[[0, -1]])
    assert not y[1:-1].any()
    assert launched.counts.accessed["x"] == 2 * COLUMNS * 4


def test_no_launch_without_rows():
    mod, (x, w, y) = split(), arrays()
    assert device(mod).run(main(mod), x[:0], w, y[:0]) == []


def test_results_must_be_complete():
    mod, (x, w, y) = split("n - 1"), arrays()
    with pytest.raises(SimulationError, match=r"result 'y': 64 of 320 elements are not written, the first is \(4, 0\)"):
        device(mod).run(main(mod), x, w, y)


def test_arrays_end_with_their_last_line():
    mod, (x, w, y) = split("n + 1"), arrays()
    with pytest.raises(SimulationError, match="out of bounds: 4 bytes at global address .*; x has 1280 bytes"):
        device(mod).run(main(mod), x, w, y)
