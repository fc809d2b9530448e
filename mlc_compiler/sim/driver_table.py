"""Base class of drivers in Python: C callbacks, object handles, error injection."""

from __future__ import annotations

import ctypes
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

from mlc_compiler.backends.cuda.driver import DRIVER, SET_DRIVER

# CUresult (cuda.h).
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE = 0, 1, 2, 3, 100, 101
INVALID_CONTEXT, NO_BINARY_FOR_GPU, INVALID_PTX, INVALID_HANDLE = 201, 209, 218, 400
NOT_FOUND, LAUNCH_FAILED, CAPTURE_UNSUPPORTED, UNKNOWN = 500, 719, 900, 999
ERRORS = {
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    NOT_INITIALIZED: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    NO_DEVICE: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_CONTEXT: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    NO_BINARY_FOR_GPU: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
    INVALID_PTX: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    LAUNCH_FAILED: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    CAPTURE_UNSUPPORTED: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
    UNKNOWN: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}
_C_TYPES = {"i32": ctypes.c_uint32, "i64": ctypes.c_uint64, "ptr": ctypes.c_void_p}

_ABANDONED: list[DriverTable] = []  # kept alive: closing their open contexts calls them


class Loaded(Protocol):
    """A compiled library, such as ``mlc_runtime.Library``."""

    @property
    def path(self) -> Path: ...


class DriverError(Exception):
    """A CUresult other than CUDA_SUCCESS."""

    def __init__(self, code: int):
        super().__init__(ERRORS.get(code, ERRORS[UNKNOWN])[0])
        self.code = code


class DriverTable:
    """A driver whose functions are the methods ``_cuInit(flags)`` … of a derived class, used by installed libraries.

    Methods take integers and raise DriverError to return an error. calls: number of calls of each function.
    fault: the error of a kernel, or another exception raised by a method.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.fault: Exception | None = None
        self._planned: dict[str, tuple[int, int]] = {}
        self._objects: dict[int, Any] = {}
        self._handles = count(1 << 12)
        self._texts = {code: [ctypes.create_string_buffer(t.encode()) for t in pair] for code, pair in ERRORS.items()}
        self._callbacks = [self._callback(name) for name in DRIVER]
        pointers = [ctypes.cast(function, ctypes.c_void_p).value for function in self._callbacks]
        self._table = (ctypes.c_void_p * len(DRIVER))(*pointers)
        self._libraries: list[ctypes.CDLL] = []

    def install(self, library: Loaded) -> None:
        """Make a library use this driver until the end of the ``with`` block; contexts must be created afterwards."""
        loaded = ctypes.CDLL(str(library.path))
        getattr(loaded, SET_DRIVER)(self._table)
        self._libraries.append(loaded)

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """Make a future call of a function return an error once, after ``after`` successful calls."""
        self._planned[name] = (self.calls[name] + after, code)

    @property
    def objects(self) -> Counter[str]:
        """The number of existing modules, streams and graphs by kind."""
        return Counter(type(o).__name__ for o in self._objects.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for library in self._libraries:
            getattr(library, SET_DRIVER)(None)
        if self._objects:
            _ABANDONED.append(self)

    def _callback(self, name: str) -> Any:
        method = getattr(self, f"_{name}")

        def call(*args: int | None) -> int:
            number = self.calls[name]
            self.calls[name] += 1
            if self._planned.get(name, (-1, 0))[0] == number:
                return self._planned.pop(name)[1]
            try:
                method(*(0 if a is None else a for a in args))
            except DriverError as error:
                return error.code
            except Exception as error:  # C callers cannot handle exceptions
                self.fault = error
                return UNKNOWN
            return SUCCESS

        return ctypes.CFUNCTYPE(ctypes.c_int32, *(_C_TYPES[kind] for kind in DRIVER[name]))(call)

    def _new(self, thing: object) -> int:
        handle = next(self._handles)
        self._objects[handle] = thing
        return handle

    def _get(self, handle: int, kind: type) -> Any:
        if not isinstance(self._objects.get(handle), kind):
            raise DriverError(INVALID_HANDLE)
        return self._objects[handle]

    def _remove(self, handle: int, kind: type) -> None:
        self._get(handle, kind)
        del self._objects[handle]

    def _cuGetErrorName(self, error: int, text: int) -> None:
        write(text, ctypes.c_void_p, ctypes.addressof(self._texts.get(error, self._texts[UNKNOWN])[0]))

    def _cuGetErrorString(self, error: int, text: int) -> None:
        write(text, ctypes.c_void_p, ctypes.addressof(self._texts.get(error, self._texts[UNKNOWN])[1]))


def write(address: int, kind: Any, value: int) -> None:
    """Store a result at an address given by the caller."""
    kind.from_address(address).value = value
