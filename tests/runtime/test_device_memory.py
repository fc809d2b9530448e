"""Memory of a GPU and of the host: equal results, on a simulated driver."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.sim.driver import SimulatedDriver
from mlc_errors import ResourceError
from mlc_runtime import device_memory
from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.device_memory import DeviceArray, DeviceMemory
from mlc_runtime.library import Context, Library
from mlc_runtime.model_spec import ArraySpec, ModelSpec, PagedKVSpec, RecurrentSpec
from mlc_runtime.pool import SequencePool
from tests.compiler.backends.cuda.two_kernels import two_kernels

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
STATES = [PagedKVSpec("", 2, 3, 5, 4, 16, "float16"), RecurrentSpec("ssm_", (ArraySpec("sum", (2,), "int64"),))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return two_kernels(tmp_path_factory.mktemp("two") / "lib.so")


@pytest.fixture
def driver(library: Library) -> Iterator[SimulatedDriver]:
    with SimulatedDriver() as simulated:
        simulated.install(library)
        yield simulated


@pytest.fixture
def memory(library: Library, driver: SimulatedDriver) -> Iterator[DeviceMemory]:
    with Context(library) as context:
        assert isinstance(context.memory, DeviceMemory)
        yield context.memory
    assert (driver.objects, driver.allocations) == ({}, {})


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "uint8", *("bfloat16", "float8_e4m3fn", "int4")])
def test_arrays_come_back_and_are_tensors_of_their_type(memory: DeviceMemory, dtype: str):
    values = np.arange(24).astype(getattr(ml_dtypes, dtype, dtype)).reshape(4, 6)
    array = memory.loaded(values)
    assert np.array_equal(array.numpy(), values) and array.dtype == values.dtype
    tensor = array.tensor
    assert (tuple(tensor.shape), tensor.data_ptr(), tensor.__dlpack_device__()) == ((4, 6), array.address, (2, 0))
    assert str(tensor.dtype) == {"int4": "int8"}.get(dtype, dtype)
    assert tvm_ffi.from_dlpack(array).data_ptr() == array.address
    assert np.array_equal(array[1:3].numpy(), values[1:3])
    assert np.array_equal(array.reshape(2, 12)[1:].numpy(), values[2:].reshape(1, 12))


def test_empty_arrays(memory: DeviceMemory):
    array = memory.loaded(np.zeros((0, 3), F32))
    assert array.numpy().shape == tuple(array.tensor.shape) == (0, 3)


def test_large_arrays_go_through_pinned_memory_in_pieces(memory: DeviceMemory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_memory, "STAGING_BYTES", 1000)
    monkeypatch.setattr(device_memory, "STAGED_BYTES", 2000)
    values = np.random.default_rng(1).integers(0, 255, 7777).astype(np.uint8)
    assert np.array_equal(memory.loaded(values).numpy(), values)


def test_memory_is_freed_with_its_last_array(memory: DeviceMemory, driver: SimulatedDriver):
    array = memory.zeros((100,), F32)
    rows, tensor = array[50:], array[10:].tensor
    del array
    memory.empty((1,), F32)
    assert rows.numpy().sum() == 0 and 400 in driver.allocations.values()
    del rows
    gc.collect()
    memory.empty((1,), F32)
    assert 400 in driver.allocations.values()  # the tensor holds it
    del tensor
    gc.collect()
    memory.empty((1,), F32)
    assert 400 not in driver.allocations.values()


def test_no_room(memory: DeviceMemory, driver: SimulatedDriver):
    driver.memory_bytes = 1 << 20
    assert memory.available_bytes == int(0.9 * ((1 << 20) - sum(driver.allocations.values())))
    with pytest.raises(ResourceError, match=r"no room for an array of 4 MB: .*free memory on the GPU"):
        memory.empty((1 << 20,), F32)


def test_views_of_mirrored_arrays_have_twins(memory: DeviceMemory):
    array = memory.mirrored((4, 8), I32)
    array[:] = np.arange(32).reshape(4, 8)
    memory.send(array[1])
    twin = memory.tensor(array)
    assert memory.tensor(array[1]).data_ptr() == twin.data_ptr() + 32
    array[:] = -1
    memory.fetch(array[:2])
    assert array.tolist() == [[0] * 8, [*range(8, 16)], [-1] * 8, [-1] * 8]
    floats = array[2:].view(np.float32)
    floats[:] = 0.5
    memory.send(floats)
    memory.fetch(array)
    assert floats.min() == 0.5


def test_a_mirror_ends_with_its_array(memory: DeviceMemory):
    array = memory.mirrored((1000,), F32)
    row = array[8:12]
    del array
    row[:] = 3
    memory.send(row)
    del row
    gc.collect()
    other = memory.tensor(np.full(1000, 2, F32))
    assert memory.tensor(np.ones(4, F32)).data_ptr() != other.data_ptr()
    assert len(memory._mirrors) == 0


def test_results_in_any_array(memory: DeviceMemory):
    """Mirrored, mirrored but not aligned for kernels, on the device, and neither."""
    mirrored = memory.mirrored((8,), F32)
    outputs = [mirrored[4:], mirrored[1:3], memory.empty((2,), F32), np.zeros(2, F32)]
    places, finish = memory.outputs(outputs)
    for number, place in enumerate(places):
        assert place.data_ptr() % 16 == 0
        values = np.full(place.shape[0], number + 1, F32)
        memory._operation("device_upload", place.data_ptr(), values.ctypes.data, values.nbytes)
    assert finish is not None
    finish()
    memory.fetch(mirrored)
    assert mirrored.tolist() == [0, 2, 2, 0, 1, 1, 1, 1]
    assert isinstance(outputs[2], DeviceArray) and outputs[2].numpy().tolist() == [3, 3]
    assert outputs[3].tolist() == [4, 4]


def test_a_pool_on_the_device_is_one_on_the_host(memory: DeviceMemory):
    pools = [SequencePool(STATES, 64, 160, rows=4), SequencePool(STATES, 64, 160, rows=4, memory=memory)]
    for pool in pools:
        a = pool.add()
        pool.extend(a, 20)
    host, device = (pool.inputs for pool in pools)
    for name in ("k_pages", "v_pages", "ssm_sum"):
        values = np.random.default_rng(2).integers(1, 99, host[name].shape).astype(host[name].dtype)
        host[name][...] = values
        memory._operation("device_upload", device[name].address, values.ctypes.data, values.nbytes)
    for pool in pools:
        b = pool.fork(a)
        pool.extend(b, 1)  # copies the page that both write to
        pool.remove(a)
        pool.extend(pool.add(), 33)
    for name, array in host.items():
        found = device[name]
        if isinstance(found, DeviceArray):
            found = found.numpy()
        else:
            found[...] = -5
            memory.fetch(found)
        assert np.array_equal(found, array), name


def test_a_pool_takes_what_the_device_has(memory: DeviceMemory, driver: SimulatedDriver):
    spec = ModelSpec("", "", "chat", 100, 64, 24, 5, (), tuple(STATES), {})
    driver.memory_bytes = 1 << 30
    assert SequencePool.of(spec, memory).inputs["page_table"].shape == (11, 4)
    pages = SequencePool.of(spec, memory).inputs["k_pages"].shape[1]
    assert pages == 6 * 64 // 16  # five sequences and one more
    assert memory.available_bytes > 0  # frees what the pools above had
    driver.memory_bytes = sum(driver.allocations.values()) + (20 << 10)
    assert SequencePool.of(spec, memory).inputs["k_pages"].shape[1] == 11  # 169 tokens of 108 bytes


def test_weights_and_results_of_a_closed_context(library: Library, driver: SimulatedDriver, tmp_path: Path):
    with Context(library) as context:
        array = context.memory.loaded(np.ones(3, F32))
    assert driver.allocations == {}
    with pytest.raises(Exception, match="closed"):
        array.numpy()
