"""A CUDA driver in Python: the driver API functions that compiled libraries call, on simulated memory and PTX.

    with SimulatedDriver("sm_90") as driver:
        driver.install(library)
        library["main"](x)

Work on a stream is performed immediately and in order, so that a missing host-side wait is not detected. A kernel's
fault is reported by the next call that waits, as on a GPU. ``fail`` injects an error.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_compiler.backends.cuda.machine import STATIC_SHARED_BYTES, capability
from mlc_compiler.sim import Kernel, Memory, Program, SimulationError, parse_ptx, run
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.driver_table import (
    CAPTURE_UNSUPPORTED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_PTX,
    INVALID_VALUE,
    LAUNCH_FAILED,
    NO_BINARY_FOR_GPU,
    NOT_FOUND,
    OUT_OF_MEMORY,
    DriverError,
    DriverTable,
    write,
)
from mlc_compiler.sim.tensor_map import ITEM_BYTES, NBYTES, SWIZZLES, TensorMap, encode_tensor_map

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
_STREAM_IN_CONFIG, _COUNT_IN_CONFIG = 32, 48  # byte offsets in CUlaunchConfig
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CUjit_option
_ELF = b"\x7fELF"

Work = Callable[[], None]


class SimulatedDriver(DriverTable):
    """A CUDA driver for one GPU of an architecture, for the libraries on which ``install`` was called.

    memory_bytes: memory size of the GPU. launches: number of launches of each kernel, including graphs; programmatic:
    those that may start before the preceding launch has ended; counts: statistics of each kernel's last launch.
    allocations: bytes by address of unfreed device memory. current: the stack of current contexts. After a ``fault``,
    every call that waits returns CUDA_ERROR_LAUNCH_FAILED.
    """

    def __init__(self, arch: str = "sm_90", memory_bytes: int = 1 << 34):
        super().__init__()
        self.arch, self.memory_bytes = arch, memory_bytes
        self.memory = Memory()
        self.allocations: dict[int, int] = {}
        self.launches: Counter[str] = Counter()
        self.programmatic: Counter[str] = Counter()
        self.counts: dict[str, Counts] = {}
        self.current: list[int] = []
        self._capture: tuple[int, list[Work]] | None = None

    def new_stream(self) -> int:
        """Create a stream, as another package would, and return its handle."""
        return self._new(_Stream())

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream created by ``new_stream``."""
        self._remove(stream, _Stream)

    # -- start, devices, contexts -------------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> None:
        pass

    def _cuDeviceGetCount(self, result: int) -> None:
        write(result, ctypes.c_int32, 1)

    def _cuDeviceGet(self, device: int, ordinal: int) -> None:
        if ordinal:
            raise DriverError(INVALID_DEVICE)
        write(device, ctypes.c_int32, 0)

    def _cuDeviceGetAttribute(self, value: int, attribute: int, device: int) -> None:
        parts = dict(zip((_CAPABILITY_MAJOR, _CAPABILITY_MINOR), divmod(capability(self.arch), 10), strict=True))
        if attribute not in parts:
            raise DriverError(INVALID_VALUE)
        write(value, ctypes.c_int32, parts[attribute])

    def _cuDevicePrimaryCtxRetain(self, context: int, device: int) -> None:
        handle = self._primary_context() or self._new(_Context())
        self._objects[handle].users += 1
        write(context, ctypes.c_void_p, handle)

    def _cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        handle = self._primary_context()
        if handle is None:
            raise DriverError(INVALID_CONTEXT)
        self._objects[handle].users -= 1
        if not self._objects[handle].users:
            self._remove(handle, _Context)

    def _primary_context(self) -> int | None:
        """The handle of the device's primary context, which all of its users share."""
        return next((h for h, o in self._objects.items() if isinstance(o, _Context)), None)

    def _cuCtxPushCurrent_v2(self, context: int) -> None:
        self._get(context, _Context)
        self.current.append(context)

    def _cuCtxPopCurrent_v2(self, context: int) -> None:
        self._require_context()
        write(context, ctypes.c_void_p, self.current.pop())

    def _require_context(self) -> None:
        if not self.current:
            raise DriverError(INVALID_CONTEXT)

    # -- modules ------------------------------------------------------------------------------------------------

    def _cuModuleLoadDataEx(self, module: int, image: int, num_options: int, options: int, values: int) -> None:
        self._require_context()
        if ctypes.string_at(image, len(_ELF)) == _ELF:
            raise DriverError(NO_BINARY_FOR_GPU)
        try:
            program = parse_ptx(ctypes.string_at(image).decode())
        except SimulationError as error:
            _write_log(str(error), num_options, options, values)
            raise DriverError(INVALID_PTX) from None
        write(module, ctypes.c_void_p, self._new(program))

    def _cuModuleUnload(self, module: int) -> None:
        program = self._get(module, Program)
        ended = [h for h, o in self._objects.items() if isinstance(o, _Function) and o.program is program]
        for handle in (*ended, module):
            del self._objects[handle]

    def _cuModuleGetFunction(self, function: int, module: int, name: int) -> None:
        program, symbol = self._get(module, Program), ctypes.string_at(name).decode()
        if symbol not in program.kernels:
            raise DriverError(NOT_FOUND)
        write(function, ctypes.c_void_p, self._new(_Function(program, program.kernels[symbol])))

    def _cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self._get(function, _Function).dynamic_shared_bytes = value

    # -- memory -------------------------------------------------------------------------------------------------

    def _cuMemGetInfo_v2(self, free: int, total: int) -> None:
        write(free, ctypes.c_uint64, self.memory_bytes - sum(self.allocations.values()))
        write(total, ctypes.c_uint64, self.memory_bytes)

    def _cuMemAlloc_v2(self, address: int, nbytes: int) -> None:
        self._require_context()
        if nbytes == 0:
            raise DriverError(INVALID_VALUE)
        if sum(self.allocations.values()) + nbytes > self.memory_bytes:
            raise DriverError(OUT_OF_MEMORY)
        found = self.memory.allocate(nbytes)
        self.allocations[found] = nbytes
        write(address, ctypes.c_uint64, found)

    def _cuMemFree_v2(self, address: int) -> None:
        self._require_context()
        if self.allocations.pop(address, None) is None:
            raise DriverError(INVALID_VALUE)
        self.memory.free(address)

    def _cuMemHostAlloc(self, pointer: int, nbytes: int, flags: int) -> None:
        array = np.zeros(nbytes, np.uint8)
        self.memory.register(array.ctypes.data, nbytes, "host", owner=array)
        self._objects[array.ctypes.data] = array
        write(pointer, ctypes.c_void_p, array.ctypes.data)

    def _cuMemFreeHost(self, pointer: int) -> None:
        self._remove(pointer, np.ndarray)
        self.memory.free(pointer)

    def _cuMemcpyHtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._enqueue(stream, lambda: self._bytes(to, nbytes, True).__setitem__(..., _host(source, nbytes)))

    def _cuMemcpyDtoHAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._enqueue(stream, lambda: _host(to, nbytes).__setitem__(..., self._bytes(source, nbytes)))

    def _cuMemcpyDtoDAsync_v2(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._enqueue(
            stream, lambda: self._bytes(to, nbytes, True).__setitem__(..., self._bytes(source, nbytes).copy())
        )

    def _cuMemsetD8Async(self, to: int, byte: int, nbytes: int, stream: int) -> None:
        self._enqueue(stream, lambda: self._bytes(to, nbytes, True).fill(byte))

    def _bytes(self, address: int, nbytes: int, written: bool = False) -> np.ndarray:
        """A view of device memory. Raises DriverError when it is not allocated."""
        try:
            found = self.memory.view(address, np.uint8, (nbytes,))
        except SimulationError:
            raise DriverError(INVALID_VALUE) from None
        if written:
            self.memory.mark_written(address, nbytes)
        return found

    # -- streams and graphs -------------------------------------------------------------------------------------

    def _cuStreamCreate(self, stream: int, flags: int) -> None:
        write(stream, ctypes.c_void_p, self._new(_Stream()))

    def _cuStreamDestroy_v2(self, stream: int) -> None:
        self._remove(stream, _Stream)

    def _cuStreamSynchronize(self, stream: int) -> None:
        if self._capture is not None:
            raise DriverError(CAPTURE_UNSUPPORTED)
        if self.fault is not None:
            raise DriverError(LAUNCH_FAILED)
        self.memory.settle()

    def _enqueue(self, stream: int, work: Work) -> None:
        self._require_context()
        self._get(stream, _Stream)
        if self._capture is not None and self._capture[0] == stream:
            self._capture[1].append(work)
        else:
            work()

    def _cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        self._get(stream, _Stream)
        self._capture = (stream, [])

    def _cuStreamEndCapture(self, stream: int, graph: int) -> None:
        if self._capture is None or self._capture[0] != stream:
            raise DriverError(INVALID_VALUE)
        write(graph, ctypes.c_void_p, self._new(_Graph(self._capture[1])))
        self._capture = None

    def _cuGraphInstantiateWithFlags(self, executable: int, graph: int, flags: int) -> None:
        write(executable, ctypes.c_void_p, self._new(_Executable(self._get(graph, _Graph).work)))

    def _cuGraphLaunch(self, executable: int, stream: int) -> None:
        for work in self._get(executable, _Executable).work:
            self._enqueue(stream, work)

    def _cuGraphExecDestroy(self, executable: int) -> None:
        self._remove(executable, _Executable)

    def _cuGraphDestroy(self, graph: int) -> None:
        self._remove(graph, _Graph)

    # -- kernels ------------------------------------------------------------------------------------------------

    def _cuLaunchKernelEx(self, config: int, function: int, parameters: int, extra: int) -> None:
        x, y, z, *block, shared = (ctypes.c_uint32 * 7).from_address(config)
        stream = ctypes.c_uint64.from_address(config + _STREAM_IN_CONFIG).value
        found = self._get(function, _Function)
        if shared > max(found.dynamic_shared_bytes, STATIC_SHARED_BYTES) or 0 in (x, y, z, *block):
            raise DriverError(INVALID_VALUE)
        places = (ctypes.c_uint64 * len(found.kernel.parameters)).from_address(parameters)
        values = [ctypes.string_at(at, p.nbytes) for at, p in zip(places, found.kernel.parameters, strict=True)]
        early = ctypes.c_uint32.from_address(config + _COUNT_IN_CONFIG).value
        self.programmatic[found.kernel.name] += early
        self._enqueue(stream, lambda: self._run(found, (x, y, z), tuple(block), values, shared, bool(early)))

    def _cuTensorMapEncodeTiled(
        self,
        out: int,
        kind: int,
        rank: int,
        address: int,
        sizes: int,
        strides: int,
        box: int,
        steps: int,
        *options: int,
    ) -> None:
        interleave, swizzle, _, fill = options
        if kind not in ITEM_BYTES or interleave or fill or swizzle not in SWIZZLES or out % 64 or not 0 < rank <= 5:
            raise DriverError(INVALID_VALUE)
        counts, pitches = _numbers(sizes, "Q", rank), _numbers(strides, "Q", rank - 1)
        if set(_numbers(steps, "I", rank)) != {1} or 0 in counts:
            raise DriverError(INVALID_VALUE)
        described = TensorMap(address, ITEM_BYTES[kind], counts, pitches, _numbers(box, "I", rank), SWIZZLES[swizzle])
        try:
            ctypes.memmove(out, encode_tensor_map(described), NBYTES)
        except SimulationError:
            raise DriverError(INVALID_VALUE) from None

    def _run(self, function: _Function, grid: Any, block: Any, values: list[bytes], shared: int, early: bool) -> None:
        self.launches[function.kernel.name] += 1
        if not early:
            self.memory.settle()
        if self.fault is not None:
            return
        try:
            self.counts[function.kernel.name] = run(function.kernel, grid, block, values, self.memory, shared)
        except SimulationError as error:
            self.fault = error


@dataclass
class _Context:
    users: int = 0


class _Stream:
    pass


class _Graph:
    def __init__(self, work: list[Work]):
        self.work = work


class _Executable(_Graph):
    pass


class _Function:
    def __init__(self, program: Program, kernel: Kernel):
        self.program, self.kernel, self.dynamic_shared_bytes = program, kernel, 0


def _numbers(address: int, code: str, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}{code}", ctypes.string_at(address, struct.calcsize(code) * count))


def _write_log(text: str, num_options: int, options: int, values: int) -> None:
    """Write the errors in PTX to the caller's log buffer, if any."""
    given = dict(
        zip(
            (ctypes.c_uint32 * num_options).from_address(options),
            (ctypes.c_uint64 * num_options).from_address(values),
            strict=True,
        )
    )
    if _ERROR_LOG in given:
        log = text.encode()[: given[_ERROR_LOG_BYTES] - 1] + b"\0"
        ctypes.memmove(given[_ERROR_LOG], log, len(log))


def _host(address: int, nbytes: int) -> np.ndarray:
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8)
