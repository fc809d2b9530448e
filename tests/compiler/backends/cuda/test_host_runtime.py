"""The host code of CUDA libraries on a simulated driver: contexts, launches, errors, graphs, streams."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlc_compiler import build, jit, nn, parse, register_func
from mlc_compiler.api import build_prepared
from mlc_compiler.backends.cuda.runtime import CudaRuntime
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.codegen.host.module import HostModule, new_module
from mlc_compiler.ir.module import IRModule
from mlc_compiler.jit import CompiledModule
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.sim.driver_table import INVALID_CONTEXT, LAUNCH_FAILED, NOT_INITIALIZED, OUT_OF_MEMORY
from mlc_compiler.target import Target
from mlc_errors import MLCError
from mlc_runtime.arrays import device_tensor, to_tensor, tvm_ffi
from mlc_runtime.device_memory import DeviceArray, DeviceMemory
from mlc_runtime.library import Context, ContextError, Library
from tests.compiler.backends.cuda.two_kernels import numbers, two_kernels

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return two_kernels(tmp_path_factory.mktemp("two") / "lib.so")


@pytest.fixture
def driver(library: Library) -> Iterator[SimulatedDriver]:
    """A simulated driver; asserts at the end that nothing is left: every test closes its contexts."""
    with SimulatedDriver("sm_86") as simulated:
        simulated.install(library)
        yield simulated
        assert (simulated.objects, simulated.allocations, simulated.current) == ({}, {}, [])


@pytest.fixture
def context(library: Library, driver: SimulatedDriver) -> Iterator[Context]:
    with Context(library) as opened:
        yield opened


def call(context: Context, x: DeviceArray, y: DeviceArray) -> None:
    context.library.raw("main")(context.handle, x.tensor, y.tensor)


def arrays(context: Context, count: int) -> tuple[DeviceArray, DeviceArray]:
    """An array 1, 2, … on the device, and an output of the same size."""
    memory = context.memory
    assert isinstance(memory, DeviceMemory)
    return memory.loaded(numbers(count)), memory.empty((count,), np.dtype(np.float32))


# -- results -----------------------------------------------------------------------------------------------------------


@given(count=st.integers(0, 300))
def test_launches_run_in_order_on_any_number_of_elements(library: Library, count: int):
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        fresh = Library(library.path)
        assert np.array_equal(fresh["main"](numbers(count)), 10 * numbers(count))
        assert driver.launches == ({"scale": 2, "add": 1} if count else {})
        fresh.context.close()


def test_constants_are_copied_once_for_a_context(context: Context, driver: SimulatedDriver):
    _, y = arrays(context, 4)
    copies = driver.calls["cuMemcpyHtoDAsync_v2"]
    for _ in range(3):
        context.library.raw("with_constant")(context.handle, y.tensor)
        assert y.numpy().tolist() == [3, 6, 9, 12]
    assert driver.calls["cuMemcpyHtoDAsync_v2"] == copies


def test_numpy_arrays_give_numpy_arrays_and_device_arrays_device_arrays(library: Library, driver: SimulatedDriver):
    fresh = Library(library.path)
    on_device = fresh.context.memory.loaded(numbers(70))
    result = fresh["main"](on_device)
    assert isinstance(result, DeviceArray) and result.__dlpack_device__() == (2, 0)
    assert np.array_equal(result.numpy(), 10 * numbers(70))
    assert np.array_equal(fresh["main"](tvm_ffi.from_dlpack(result)).numpy(), 100 * numbers(70))
    fresh.context.close()


def test_a_kernel_with_more_shared_memory_than_usual_is_prepared(tmp_path: Path):
    library = two_kernels(tmp_path / "lib.so", shared_bytes=64 << 10, pdl=True)
    with SimulatedDriver("sm_90") as driver:
        driver.install(library)
        assert np.array_equal(library["main"](numbers(3)), 10 * numbers(3))
        assert driver.calls["cuFuncSetAttribute"] == 2
        assert driver.programmatic == {"scale": 2, "add": 1}
        library.context.close()


# -- contexts that cannot be made --------------------------------------------------------------------------------------


def test_a_machine_without_a_driver(library: Library):
    expected: AbstractContextManager[object] = pytest.raises(RuntimeError, match=r"no NVIDIA driver \(libcuda.so.1\)")
    with expected if ctypes.util.find_library("cuda") is None else nullcontext():
        Context(library).close()


def test_a_device_that_does_not_exist(library: Library, driver: SimulatedDriver):
    with pytest.raises(RuntimeError, match="there is no device 1; this machine has 1 CUDA devices"):
        Context(Library(library.path, device=1))
    with pytest.raises(MLCError, match="there is no device 3; this machine has 1 CUDA devices"):
        Context(Library(library.path, device="cuda:3"))
    with Context(Library(library.path, device="cuda:0")) as opened:
        assert opened.library.device == 0


@pytest.mark.parametrize(("compiled", "gpu"), [("sm_90a", "sm_120"), ("sm_90", "sm_89"), ("sm_120f", "sm_100a")])
def test_code_for_another_architecture(tmp_path: Path, compiled: str, gpu: str):
    library = two_kernels(tmp_path / "lib.so", arch=compiled)
    with SimulatedDriver(gpu) as driver:
        driver.install(library)
        number = gpu.rstrip("a")
        with pytest.raises(
            RuntimeError, match=rf"compiled for sm_80, {compiled} \(PTX\); the GPU is {number}; compile"
        ):
            Context(library)
        assert (driver.objects, driver.current) == ({}, [])


def test_machine_code_that_the_driver_refuses_and_no_ptx_for_the_gpu(tmp_path: Path):
    library = two_kernels(tmp_path / "lib.so", arch="sm_90a")
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        with pytest.raises(RuntimeError, match=r"no kernel image is available .*compile the library for this GPU"):
            Context(library)


def test_what_the_driver_says_of_bad_ptx(tmp_path: Path):
    library = two_kernels(tmp_path / "lib.so", arch="sm_80\n.nonsense")
    with SimulatedDriver("sm_90") as driver:
        driver.install(library)
        said = r"loading the kernels: a PTX JIT compilation failed \(CUDA_ERROR_INVALID_PTX\); .*with ptxas: .*nonsense"
        with pytest.raises(RuntimeError, match=said):
            Context(library)
        assert driver.objects == {}


@pytest.mark.parametrize("name", ["cuInit", "cuStreamCreate", "cuModuleGetFunction", "cuMemAlloc_v2"])
def test_what_was_made_before_a_failure_is_released(library: Library, driver: SimulatedDriver, name: str):
    driver.fail(name, OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match=r"out of memory \(CUDA_ERROR_OUT_OF_MEMORY\); free memory on the GPU"):
        Context(library)


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_tensors_have_to_be_on_the_device(context: Context):
    _, y = arrays(context, 3)
    with pytest.raises(ValueError, match="argument x lies on device type 1; expected a tensor on a CUDA device: copy"):
        context.library.raw("main")(context.handle, to_tensor(numbers(3)), y.tensor)


def test_tensors_begin_at_multiples_of_16_bytes(context: Context):
    x, y = arrays(context, 8)
    with pytest.raises(ValueError, match="argument x does not begin at a multiple of 16 bytes"):
        call(context, x[1:4], y[:3])
    call(context, x[4:7], y[:3])
    assert y[:3].numpy().tolist() == [50, 60, 70]


def test_tensors_of_another_device(context: Context):
    x, y = arrays(context, 4)
    other = device_tensor(x.address, x.shape, x.dtype, (2, 1), x)
    with pytest.raises(ValueError, match="argument x lies on CUDA device 1; the context is on device 0"):
        context.library.raw("main")(context.handle, other, y.tensor)
    pinned = device_tensor(x.address, x.shape, x.dtype, (3, 0), x)
    context.library.raw("main")(context.handle, pinned, y.tensor)
    assert y.numpy().tolist() == [10, 20, 30, 40]


# -- errors of a call --------------------------------------------------------------------------------------------------


def test_a_failed_launch_names_the_kernel_and_ends_the_call(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)
    driver.fail("cuLaunchKernelEx", LAUNCH_FAILED, after=1)
    with pytest.raises(RuntimeError, match=r"scale: unspecified launch failure .*the context is lost"):
        call(context, x, y)
    assert driver.launches == {"scale": 1}
    call(context, x, y)
    assert y.numpy().tolist() == [10, 20, 30]


def test_a_failed_launch_of_a_model_is_an_error_with_a_way_out(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)
    driver.fail("cuLaunchKernelEx", LAUNCH_FAILED, after=1)
    with pytest.raises(ContextError) as error:
        context.bound("main", x.tensor, y.tensor)()
    assert error.value.message.startswith(
        "scale: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED); the context is"
    )
    assert "CUDA_LAUNCH_BLOCKING=1" in error.value.message and error.value.hint is not None


def test_a_context_that_cannot_be_made_current(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)
    call(context, x, y)
    driver.fail("cuCtxPushCurrent_v2", INVALID_CONTEXT)
    with pytest.raises(RuntimeError, match=r"making the context current: invalid device context"):
        call(context, x, y)
    assert driver.launches["add"] == 1


def test_a_fault_of_a_kernel_is_found_when_the_call_waits(library: Library):
    with SimulatedDriver() as driver:
        driver.install(library)
        context = Context(library)
        _, y = arrays(context, 3)
        with pytest.raises(RuntimeError, match=r"running the kernels: unspecified launch failure"):
            call(context, y, y)  # y was never written
        assert "uninitialized read" in str(driver.fault)


def test_no_memory_for_the_workspace(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 40_000)
    driver.memory_bytes = sum(driver.allocations.values())
    with pytest.raises(RuntimeError, match="main: no memory for a workspace of 160000 bytes"):
        call(context, x, y)
    driver.memory_bytes *= 2
    call(context, x, y)
    assert y.numpy()[-1] == 400_000


def test_a_forked_process_is_told_to_start_anew(context: Context, driver: SimulatedDriver):
    """CUDA cannot be used after a fork: cuInit says so."""
    x, y = arrays(context, 3)
    driver.fail("cuInit", NOT_INITIALIZED)

    child = os.fork()
    if child == 0:
        try:
            call(context, x, y)
        except RuntimeError as error:
            expected = "main: in this process, which was forked from the context's: starting CUDA: initialization error"
            os._exit(0 if str(error).startswith(expected) and "start processes by spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_the_second_call_is_recorded_and_later_ones_replay_it(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 5)
    for repetition in range(5):
        context.memory.copy_slot(x.reshape(1, 5), 0, 0)
        call(context, x, y)
        assert driver.launches["add"] == repetition + 1
    assert y.numpy().tolist() == [10, 20, 30, 40, 50]
    assert driver.calls["cuGraphInstantiateWithFlags"] == 1
    assert (driver.calls["cuGraphLaunch"], driver.calls["cuLaunchKernelEx"]) == (4, 6)


def test_other_arguments_and_another_workspace_are_other_graphs(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 100)
    for count in (5, 5, 6, 6, 100, 5, 5):  # 100: the workspace moves
        call(context, x[:count], y[:count])
        assert np.array_equal(y.numpy()[:count], 10 * numbers(count))
    assert driver.calls["cuGraphInstantiateWithFlags"] == 3


def test_old_graphs_make_room(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 50)
    for count in [*range(50, 0, -1), 50]:
        for _ in range(2):
            call(context, x[:count], y[:count])
    assert driver.calls["cuGraphInstantiateWithFlags"] == 51
    assert driver.objects["_Executable"] == 16
    assert np.array_equal(y.numpy(), 10 * numbers(50))


def test_a_failure_while_recording_is_the_calls(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)
    call(context, x, y)
    driver.fail("cuGraphInstantiateWithFlags", OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match="recording a graph: out of memory"):
        call(context, x, y)
    call(context, x, y)
    assert y.numpy().tolist() == [10, 20, 30]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_calls_wait_unless_they_are_asynchronous(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)

    def waits() -> int:
        before = driver.calls["cuStreamSynchronize"]
        call(context, x, y)
        return driver.calls["cuStreamSynchronize"] - before

    assert waits() == 1
    context.memory.defer()
    assert waits() == 0


def test_calls_use_the_callers_stream(context: Context, driver: SimulatedDriver):
    x, y = arrays(context, 3)
    stream, before = driver.new_stream(), driver.calls["cuStreamSynchronize"]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream):
        for _ in range(3):
            call(context, x, y)
    assert driver.calls["cuStreamSynchronize"] == before
    assert driver.calls["cuStreamBeginCapture_v2"] == 0
    driver.destroy_stream(stream)
    assert y.numpy().tolist() == [10, 20, 30]


# -- functions of Python, and what the host must not do ----------------------------------------------------------------


def test_registered_functions_get_tensors_on_the_device():
    seen = []

    def function(x: tvm_ffi.Tensor, out: tvm_ffi.Tensor) -> None:
        seen.append((x.__dlpack_device__(), tuple(x.shape), driver.calls["cuStreamSynchronize"]))
        driver.memory.view(out.data_ptr(), np.float32, (3,))[:] = driver.memory.view(x.data_ptr(), np.float32, (3,)) + 1
        driver.memory.mark_written(out.data_ptr(), 12)

    register_func("tests.cuda.plus_one", function, override=True)
    module = parse("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            doubled = R.add(x, x)
            more = R.call_dps_packed("tests.cuda.plus_one", (doubled,), out_sinfo=R.Tensor((3,), "float32"))
            result = R.multiply(more, more)
            R.output(result)
        return result
""")
    assert isinstance(module, IRModule)
    library = build(module, "cuda:sm_80")
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        assert library["main"](numbers(3)).tolist() == [9, 25, 49]
        library.context.close()
    assert [(device, shape) for device, shape, _ in seen] == [((2, 0), (3,))]


class Scaled(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter((24,))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(x * self.weight)


def compiled_on(
    driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch, module: nn.Module, **weights: np.ndarray
) -> CompiledModule:
    """``module.jit`` for sm_80 on a simulated driver."""

    def install_on(*args: Any) -> tuple[Library, IRModule]:
        library, lowered = build_prepared(*args)
        driver.install(library)
        return library, lowered

    monkeypatch.setattr(jit, "build_prepared", install_on)
    module.load_state_dict(weights)
    return module.jit({"forward": {"x": nn.spec.Tensor(("n", 24), "float32")}}, target="cuda:sm_80")


def test_modules_keep_their_weights_on_the_device(monkeypatch: pytest.MonkeyPatch):
    weight, x = (RNG.standard_normal(shape, np.float32) for shape in ((24,), (5, 24)))
    with SimulatedDriver("sm_80") as driver:
        compiled = compiled_on(driver, monkeypatch, Scaled(), weight=weight)
        for _ in range(2):
            copies = driver.calls["cuMemcpyHtoDAsync_v2"]
            assert np.array_equal(compiled.forward(x), np.maximum(x * weight, 0))
            assert driver.calls["cuMemcpyHtoDAsync_v2"] == copies + 1
        compiled.library.context.close()


class Layer(nn.Module):
    def __init__(self) -> None:
        self.proj = nn.Linear(24, 16)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.proj(x))


def test_a_compiled_layer_on_any_number_of_rows(monkeypatch: pytest.MonkeyPatch):
    weight, bias = RNG.standard_normal((16, 24), np.float32), RNG.standard_normal(16, np.float32)
    with SimulatedDriver("sm_80") as driver:
        compiled = compiled_on(driver, monkeypatch, Layer(), **{"proj.weight": weight, "proj.bias": bias})
        for rows in (0, 1, 2, 5, 16, 33, 70):
            x = RNG.standard_normal((rows, 24), np.float32)
            expected = np.maximum(x @ weight.T + bias, 0)
            np.testing.assert_allclose(compiled.forward(x), expected, rtol=0, atol=24 * 2**-23 * 8)
        assert driver.fault is None
        compiled.library.context.close()


def test_a_built_module_with_several_results():
    module = parse("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 40), "float32"), w: R.Tensor((40, 7), "float32")):
        n = T.int64()
        with R.dataflow():
            product = R.matmul(x, w)
            largest = R.max(product, axis=[-1])
            shares = R.nn.softmax(product, axis=-1)
            R.output(largest, shares)
        return (largest, shares)
""")
    assert isinstance(module, IRModule)
    library = build(module, "cuda:sm_80")
    weight = RNG.standard_normal((40, 7), np.float32)
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        for rows in (1, 3, 17):
            x = RNG.standard_normal((rows, 40), np.float32)
            largest, shares = library["main"](x, weight)
            product = x @ weight
            powers = np.exp(product - product.max(-1, keepdims=True))
            np.testing.assert_allclose(largest, product.max(-1), rtol=0, atol=1e-4)
            np.testing.assert_allclose(shares, powers / powers.sum(-1, keepdims=True), rtol=0, atol=1e-4)
        assert driver.fault is None
        library.context.close()


@pytest.mark.parametrize("operator", ["argmin", "argmax"])
def test_positions_of_extremes_of_rows_that_are_not_adjacent(operator: str):
    """Rows are numbered along two axes; what a row's threads reduce still is in registers."""
    module = parse(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((7, 4, 8), "float32")):
        with R.dataflow():
            result = R.{operator}(x, axis=1)
            R.output(result)
        return result
""")
    assert isinstance(module, IRModule)
    library, x = build(module, "cuda:sm_80"), RNG.standard_normal((7, 4, 8), np.float32)
    with SimulatedDriver("sm_80") as driver:
        driver.install(library)
        assert np.array_equal(library["main"](x), getattr(np, operator)(x, 1))
        library.context.close()


def test_host_functions_must_not_touch_elements():
    module = parse("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def first(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        y[0] = x[0]
""")
    assert isinstance(module, IRModule)
    cpu = Target("cpu")
    with pytest.raises(CodegenError, match="'x' outside of a kernel|'y' outside of a kernel"):
        CudaRuntime(HostModule(new_module(cpu), cpu), module, [], {})


def test_a_launch_of_an_unknown_kernel(tmp_path: Path):
    with pytest.raises(CodegenError, match=r"launches 'scale'; the kernels of the library are none"):
        two_kernels(tmp_path / "lib.so", names=())
