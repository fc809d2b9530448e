"""Calls a library's C functions with hand-made, mostly invalid arguments; prints the result of each call.

python -m tests.compiler.api.c_abi LIBRARY
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

INT, FLOAT, DLTENSOR, STRING, OBJECT, TENSOR = 1, 3, 7, 8, 64, 70


class FFIAny(ctypes.Structure):
    """TVMFFIAny with an integer or pointer."""

    _fields_ = (("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


class DLTensor(ctypes.Structure):
    """dlpack.h's DLTensor."""

    _fields_ = (
        *(("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)),
        *(("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
        *(("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)),
    )


class Caller:
    def __init__(self, path: str):
        self.library = ctypes.CDLL(path)
        self.error = (ctypes.c_char * 512).in_dll(self.library, "__mlc_last_error")
        self.kept: list[Any] = []
        status, self.context = self._invoke("context_create", [FFIAny(INT, 0, 2)])
        assert status == 0

    def _invoke(self, name: str, args: list[FFIAny]) -> tuple[int, int]:
        array, result = (FFIAny * max(len(args), 1))(*args), FFIAny()
        status = self.library[f"__tvm_ffi_{name}"](None, array, len(args), ctypes.byref(result))
        return status, result.value

    def __call__(self, name: str, *args: FFIAny) -> str:
        status, _ = self._invoke(name, [FFIAny(INT, 0, self.context), *args])
        return self.error.value.decode() if status else "called"

    def bare(self, name: str, *args: object) -> str:
        status = self.library[f"__tvm_ffi_{name}"](None, *args)
        return self.error.value.decode() if status else "called"

    def tensor(self, *shape: int, **fields: Any) -> FFIAny:
        """A tensor with that shape over a small float32 array."""
        memory, sizes = np.ones(64, np.float32), (ctypes.c_int64 * max(len(shape), 1))(*shape)
        named = {"data": memory.ctypes.data, "device_type": 1, "ndim": len(shape), "code": 2, "bits": 32, "lanes": 1}
        tensor = DLTensor(**{**named, "shape": ctypes.addressof(sizes), **fields})
        self.kept += [memory, sizes, tensor]
        return FFIAny(DLTENSOR, 0, ctypes.addressof(tensor))


def calls(c: Caller) -> Iterator[tuple[str, str]]:
    t, two = c.tensor, FFIAny(INT, 0, 2)
    w, out = t(4, 3), t(6, 2)
    for label, x in {
        "fits": t(2, 4),
        "no tensor": FFIAny(DLTENSOR, 0, 0),
        "no object": FFIAny(TENSOR, 0, 0),
        "a number": FFIAny(FLOAT, 0, 1),
        "none": FFIAny(0, 0, 0),
        "text": FFIAny(STRING, 0, 12345),
        "an object": FFIAny(OBJECT, 0, 12345),
        "unknown kind": FFIAny(-5, 0, 12345),
        "no data": t(2, 4, data=None),
        "no shape": t(2, 4, shape=None),
        "negative size": t(-2, 4),
        "huge": t(1 << 62, 4),
        "negative rank": t(2, 4, ndim=-1),
        "other lanes": t(2, 4, lanes=4),
        "offset": t(2, 4, offset=1),
        "a GPU": t(2, 4, device_type=2),
    }.items():
        yield label, c("main", x, w, two, out)
    yield "sizes that overflow", c("main", t(1 << 40, 4), t(4, 1 << 40), two, t(0, 2))
    yield "negative scalar", c("main", t(2, 4), w, FFIAny(INT, 0, -2), t(6, -2))
    yield "empty without data", c("main", t(0, 4, data=None), w, two, t(0, 2, data=None))
    yield "more than 32 bits", c("narrow", t((1 << 32) + 4), t(8))
    yield "32 bits overflow", c("narrow", t(1 << 30), t(8))
    yield "no arguments", c.bare("main", None, 5, ctypes.byref(FFIAny()))
    yield "no result", c.bare("main", (FFIAny * 5)(), 5, None)
    yield "negative count", c.bare("main", (FFIAny * 5)(), -1, ctypes.byref(FFIAny()))


if __name__ == "__main__":
    for label, answer in calls(Caller(sys.argv[1])):
        print(f"{label} | {answer}", flush=True)
