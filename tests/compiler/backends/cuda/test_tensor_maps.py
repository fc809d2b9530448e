"""Tensor maps passed from the host to a kernel: their contents, when they are encoded, and rejected uses."""

# The kernels are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends.cuda.matmul.boxes import run
from mlc_compiler.backends.cuda.passes.split_kernels import SplitKernels
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.ir.module import IRModule
from mlc_compiler.script import T
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.sim.driver_table import INVALID_VALUE
from mlc_compiler.tir.nodes import PrimFunc
from mlc_runtime.library import Context, Library

ROWS, WIDTH, FIRST = 64, 72, (1, 32)


@T.macro
def copy_box(x, box, bar, thread, height):
    """Emit a box copy: the first thread starts it, all threads wait for it."""
    if thread == 0:
        run("mbarrier.init", bar[0], T.int32(1))
        run("fence.mbarrier_init")
        run("mbarrier.arrive_expect_tx", bar[0], T.int32(2 * 64 * ROWS))
        run("tensor_copy.64.f16", box[0, 0], x, bar[0], T.int64(1), T.int64(32), height, T.int64(WIDTH))
    T.tvm_storage_sync("shared")
    run("mbarrier.wait", bar[0], T.int32(0))


def box_of(extra: str = "") -> PrimFunc:
    """``main(x, out)``: copies a box of float16 ``x`` [n, 72], from row 1 and column 32 on, as it lies in shared
    memory.

    extra: a defect of the kernel.
    """
    other, part, read = (extra == name for name in ("other", "part", "read"))

    @T.prim_func
    def main(var_x: T.handle, out: T.Buffer((ROWS, 64), "float16")):
        T.func_attr({"cuda.explicit_sync": True, "num_outputs": 1})
        n = T.int64()
        x = T.match_buffer(var_x, (n, WIDTH), "float16")
        for _block in T.thread_binding(1, thread="blockIdx.x"):
            box = T.decl_buffer((ROWS, 64), "float16", scope="shared")
            bar = T.decl_buffer((1,), "uint64", scope="shared")
            for thread in T.thread_binding(ROWS, thread="threadIdx.x"):
                if part:
                    copy_box(x[1, 0], box, bar, thread, n)
                else:
                    copy_box(x[0, 0], box, bar, thread, n)
                if other:
                    copy_box(x[0, 0], box, bar, thread, n - 1)
                for i in range(64):
                    out[thread, i] = box[thread, i]
                if read:
                    out[thread, 0] = x[0, 0]

    return main


def expected(x: np.ndarray) -> np.ndarray:
    """The box with zeros outside of ``x``; chunk c of row r is at c ^ r % 8."""
    box = np.pad(x, ((0, ROWS + 1), (0, 64)))[FIRST[0] : FIRST[0] + ROWS, FIRST[1] : FIRST[1] + 64]
    rows, chunks = np.arange(ROWS)[:, None], np.arange(8)
    return box.reshape(ROWS, 8, 8)[rows, chunks ^ rows % 8].reshape(ROWS, 64)


@pytest.fixture(scope="module")
def library() -> Library:
    return build(IRModule({"main": box_of().with_attr("global_symbol", "main")}), "cuda:sm_90a")


@pytest.fixture
def driver(library: Library) -> Iterator[SimulatedDriver]:
    with SimulatedDriver("sm_90a") as simulated:
        simulated.install(library)
        yield simulated


def matrix(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, WIDTH)).astype(np.float16)


@pytest.mark.parametrize("rows", [1, 40, 65, 200])
def test_a_kernel_gets_the_matrix_of_the_call(library: Library, driver: SimulatedDriver, rows: int) -> None:
    with Context(library) as context:
        x, out = context.memory.loaded(matrix(rows)), context.memory.empty((ROWS, 64), np.dtype(np.float16))
        library.raw("main")(context.handle, x.tensor, out.tensor)
        np.testing.assert_array_equal(out.numpy(), expected(matrix(rows)))
    assert driver.fault is None


def test_a_map_is_encoded_once_for_an_address_and_its_sizes(library: Library, driver: SimulatedDriver) -> None:
    with Context(library) as context:
        first, second = (context.memory.loaded(matrix(rows)) for rows in (33, 34))
        out = context.memory.empty((ROWS, 64), np.dtype(np.float16))
        for x, count in ((first, 1), (second, 2), (first, 2), (first, 2), (second, 2)):
            library.raw("main")(context.handle, x.tensor, out.tensor)
            assert driver.calls["cuTensorMapEncodeTiled"] == count
            np.testing.assert_array_equal(out.numpy(), expected(x.numpy()))
        assert driver.calls["cuGraphLaunch"] > 0


def test_a_matrix_that_the_driver_refuses(library: Library, driver: SimulatedDriver) -> None:
    with Context(library) as context:
        x, out = context.memory.loaded(matrix(35)), context.memory.empty((ROWS, 64), np.dtype(np.float16))
        driver.fail("cuTensorMapEncodeTiled", INVALID_VALUE)
        with pytest.raises(RuntimeError, match="describing a matrix: invalid argument"):
            library.raw("main")(context.handle, x.tensor, out.tensor)
        library.raw("main")(context.handle, x.tensor, out.tensor)
        np.testing.assert_array_equal(out.numpy(), expected(matrix(35)))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("part", "a kernel copies boxes of a part of 'x'"),
        ("other", "a kernel copies 'x' in boxes of different kinds"),
        ("read", "a kernel copies 'x' in boxes, and accesses its elements"),
    ],
)
def test_kernels_that_cannot_have_a_map(extra: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        SplitKernels().run(IRModule({"main": box_of(extra)}))
