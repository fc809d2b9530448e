"""CUDA graphs that are recorded and replayed, the caller's streams, and asynchronous work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mlc_compiler import Library, parse
from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.device_memory import DeviceMemory
from tests.gpu.executors import Executor

CHAIN = """
@R.function
def main(x: R.Tensor(("n", 64), "float16"), w: R.Tensor((64, 64), "float16")):
    with R.dataflow():
        a = R.nn.relu(R.matmul(x, w))
        b = R.add(R.matmul(a, w), x)
        c = R.nn.softmax(b, axis=-1)
        R.output(c)
    return c
"""
CALLS = 5


@pytest.fixture(scope="module")
def library(executor: Executor) -> Iterator[Library]:
    with executor.built(parse(CHAIN)) as built:
        yield built


def operands(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small integers: products and sums of them are exact."""
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (rows, 64)).astype(np.float16), rng.integers(-1, 2, (64, 64)).astype(np.float16)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    x, w = x.astype(np.float64), w.astype(np.float64)
    b = np.maximum(x @ w, 0) @ w + x
    e = np.exp(b - b.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def assert_close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-6)


def memory_of(library: Library) -> DeviceMemory:
    memory = library.context.memory
    assert isinstance(memory, DeviceMemory)
    return memory


def test_replayed_calls_read_what_the_arguments_hold_now(library: Library) -> None:
    """The first call runs, the second is recorded, later ones replay: all with new contents in the same memory."""
    memory = memory_of(library)
    x, w = (memory.loaded(a) for a in operands(24, 0))
    bound = library["main"].bind(x, w)
    for seed in range(CALLS):
        fresh = operands(24, seed)
        for array, values in zip((x, w), fresh, strict=True):
            library.raw("device_upload")(library.context.handle, array.address, values.ctypes.data, values.nbytes)
        bound.call()
        assert_close(bound.values.outputs[0].numpy(), expected(*fresh))  # type: ignore[attr-defined]


def test_repeated_calls_give_the_same_bits(library: Library) -> None:
    memory = memory_of(library)
    bound = library["main"].bind(*(memory.loaded(a) for a in operands(40, 3)))
    results = []
    for _ in range(CALLS):
        bound.call()
        results.append(bound.values.outputs[0].numpy())  # type: ignore[attr-defined]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_calls_of_many_sizes_in_turns(library: Library) -> None:
    """More sizes than graphs are kept, and a workspace that grows."""
    for rows in (*range(1, 20), 3, 3, 200, 1, 1):
        x, w = operands(rows, rows)
        assert_close(np.asarray(library["main"](x, w)), expected(x, w))


@pytest.mark.gpu
def test_a_call_in_a_stream_of_the_caller_is_enqueued_there(device: Executor) -> None:
    """While the caller records its stream, a call adds its launches to the recording and runs nothing."""
    from cuda.bindings import driver

    def check(result: tuple) -> object:
        assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0].name
        return result[1] if len(result) > 1 else None

    with device.built(parse(CHAIN)) as library:
        memory = memory_of(library)
        x, w = operands(24, 1)
        bound = library["main"].bind(memory.loaded(x), memory.loaded(w))
        bound.call()  # the workspace is allocated
        out = bound.values.outputs[0]
        library.raw("device_fill")(library.context.handle, out.address, 0, out.nbytes)  # type: ignore[attr-defined]
        context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
        check(driver.cuCtxPushCurrent(context))
        stream = check(driver.cuStreamCreate(1))
        check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), int(stream)):  # type: ignore[call-overload]
            bound.call()
        graph = check(driver.cuStreamEndCapture(stream))
        assert not out.numpy().any()
        executable = check(driver.cuGraphInstantiate(graph, 0))
        check(driver.cuGraphLaunch(executable, stream))
        check(driver.cuStreamSynchronize(stream))
        assert_close(out.numpy(), expected(x, w))
        check(driver.cuStreamDestroy(stream))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA")
def test_torch_tensors_in_torchs_current_stream(device: Executor) -> None:
    """What torch has enqueued before is seen, and torch sees the result, without waiting in between."""
    x, w = operands(64, 2)
    with device.built(parse(CHAIN)) as library:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), tvm_ffi.use_torch_stream(torch.cuda.stream(stream)):
            on_gpu = torch.zeros(64, 64, device="cuda", dtype=torch.float16)
            torch.cuda._sleep(50_000_000)
            on_gpu.copy_(torch.from_numpy(x), non_blocking=True)
            result = library["main"](on_gpu, torch.from_numpy(w).cuda())
            total = torch.from_dlpack(result).sum(-1).cpu().numpy()
            assert_close(torch.from_dlpack(result).cpu().numpy(), expected(x, w))
        np.testing.assert_allclose(total, np.ones(64), rtol=2e-3)
