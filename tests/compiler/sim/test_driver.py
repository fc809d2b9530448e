"""The simulated driver itself: invalid calls are errors, as in CUDA."""

from __future__ import annotations

import ctypes

import pytest

from mlc_compiler.backends.cuda.driver import DRIVER
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.sim.driver_table import (
    CAPTURE_UNSUPPORTED,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_INITIALIZED,
    UNKNOWN,
)


class Caller:
    """Calls functions of a driver's table as C does; results are in ``result``."""

    def __init__(self, driver: SimulatedDriver):
        self.driver = driver
        self.result = ctypes.c_uint64()

    def __call__(self, name: str, *args: object) -> int:
        return int(self.driver._callbacks[list(DRIVER).index(name)](*args))

    def made(self, name: str, *args: object) -> int:
        """The value that a function stores through its first argument."""
        assert self(name, ctypes.addressof(self.result), *args) == 0
        return self.result.value


@pytest.fixture
def caller() -> Caller:
    called = Caller(SimulatedDriver())
    assert called("cuCtxPushCurrent_v2", called.made("cuDevicePrimaryCtxRetain", 0)) == 0
    return called


def test_memory_is_copied_filled_and_freed_once(caller: Caller):
    stream, memory = caller.made("cuStreamCreate", 0), caller.made("cuMemAlloc_v2", 64)
    source, back = ctypes.create_string_buffer(b"abcdef"), ctypes.create_string_buffer(8)
    assert caller("cuMemcpyHtoDAsync_v2", memory, ctypes.addressof(source), 6, stream) == 0
    assert caller("cuMemcpyDtoDAsync_v2", memory + 16, memory + 1, 3, stream) == 0
    assert caller("cuMemsetD8Async", memory + 19, ord("z"), 2, stream) == 0
    assert caller("cuMemcpyDtoHAsync_v2", ctypes.addressof(back), memory + 16, 5, stream) == 0
    assert back.value == b"bcdzz"
    assert caller("cuMemcpyHtoDAsync_v2", memory + 60, ctypes.addressof(source), 6, stream) == INVALID_VALUE
    assert (caller("cuMemFree_v2", memory), caller("cuMemFree_v2", memory)) == (0, INVALID_VALUE)


def test_handles_are_of_their_kind(caller: Caller):
    stream = caller.made("cuStreamCreate", 0)
    assert caller("cuModuleUnload", stream) == INVALID_HANDLE
    assert (caller("cuStreamDestroy_v2", stream), caller("cuStreamDestroy_v2", stream)) == (0, INVALID_HANDLE)
    assert caller("cuCtxPopCurrent_v2", ctypes.addressof(caller.result)) == 0
    assert caller("cuMemAlloc_v2", ctypes.addressof(caller.result), 64) == INVALID_CONTEXT


def test_captured_work_is_done_by_each_launch_of_the_graph(caller: Caller):
    stream, memory = caller.made("cuStreamCreate", 0), caller.made("cuMemAlloc_v2", 16)
    source, back = ctypes.create_string_buffer(b"1"), ctypes.create_string_buffer(2)
    assert caller("cuMemsetD8Async", memory, ord("0"), 1, stream) == 0
    assert caller("cuStreamBeginCapture_v2", stream, 1) == 0
    assert caller("cuMemcpyHtoDAsync_v2", memory, ctypes.addressof(source), 1, stream) == 0
    assert caller("cuStreamSynchronize", stream) == CAPTURE_UNSUPPORTED
    graph = ctypes.c_uint64()
    assert caller("cuStreamEndCapture", stream, ctypes.addressof(graph)) == 0
    executable = caller.made("cuGraphInstantiateWithFlags", graph.value, 0)
    seen = []
    for text in (None, b"2", b"3"):
        if text is not None:
            source.value = text
            assert caller("cuGraphLaunch", executable, stream) == 0
        assert caller("cuMemcpyDtoHAsync_v2", ctypes.addressof(back), memory, 1, stream) == 0
        seen.append(back.value)
    assert seen == [b"0", b"2", b"3"]


def test_a_planned_error_comes_once(caller: Caller):
    caller.driver.fail("cuInit", NOT_INITIALIZED, after=1)
    assert [caller("cuInit", 0) for _ in range(3)] == [0, NOT_INITIALIZED, 0]


def test_an_exception_in_the_driver_is_an_error(caller: Caller, monkeypatch: pytest.MonkeyPatch):
    stream, memory = caller.made("cuStreamCreate", 0), caller.made("cuMemAlloc_v2", 16)
    monkeypatch.setattr(caller.driver.memory, "mark_written", lambda *_: 1 // 0)
    assert caller("cuMemsetD8Async", memory, 0, 16, stream) == UNKNOWN
    assert isinstance(caller.driver.fault, ZeroDivisionError)
