"""Random, mostly invalid arguments: other types, other array layouts, objects with a broken DLPack protocol."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch

from mlc_runtime.arrays import to_tensor
from mlc_runtime.dtypes import DTYPES, dtype_of
from tests.compiler.api.c_abi import DLTensor

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 8, 17)
INTEGERS = (
    0,
    1,
    2,
    3,
    -1,
    -7,
    127,
    1 << 20,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 70),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, "text", "", b"bytes", bytearray(8), 1.5, float("nan"), float("inf"), 1j, [], [1.0, 2.0], (), {}, {1}),
    *(object(), len, np.ndarray, np.float32, np.float32(1.5), np.int64(3), np.bool_(True), memoryview(b"12345678")),
    *(range(3), [[1, 2], [3]], np.dtype("f4"), torch.float32, Ellipsis, np.array(None), np.array("text")),
)


class Managed(DLTensor):
    """dlpack.h's DLManagedTensor."""

    _fields_ = (("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Forged:
    """An object with an arbitrary DLPack tensor, whose memory is kept alive."""

    kept: tuple[Any, ...] = ()

    def __init__(self, shape: list[int], **fields: int):
        self.memory = np.zeros(64, np.float32)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        address = ctypes.addressof(self.shape)
        named = {
            "data": self.memory.ctypes.data,
            "device_type": 1,
            "ndim": len(shape),
            "code": 2,
            "bits": 32,
            "lanes": 1,
        }
        self.managed = Managed(**{**named, "shape": address, **fields})
        Forged.kept += (self,)

    def __dlpack__(self, **_: Any) -> Any:
        return _new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.managed.device_type, 0)


class Broken:
    """An object whose ``__dlpack__`` returns or raises an arbitrary object."""

    def __init__(self, answer: Any):
        self.answer = answer

    def __dlpack__(self, **_: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def __dlpack_device__(self) -> Any:
        return (1, 0)


LIES: tuple[dict[str, int], ...] = (
    *({}, {"data": 0}, {"device_type": 2}, {"device_type": 77}, {"code": 9}, {"bits": 0}, {"bits": 7}),
    *({"lanes": 0}, {"lanes": 4}, {"code": 5, "bits": 64}, {"offset": 3}),
)


def forged(rng: Random) -> Any:
    shape = [rng.choice((-1, -(1 << 62), 0, 1, 2, 3, 4)) for _ in range(rng.randint(0, 3))]
    return Forged(shape, **rng.choice(LIES))


def broken(rng: Random) -> Any:
    used = np.zeros(3).__dlpack__()
    np.from_dlpack(Broken(used))
    errors = (LookupError("none"), RuntimeError(), MemoryError())
    return Broken(rng.choice([None, 42, "capsule", used, np.zeros(3), *errors]))


def array(rng: Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    values = np.array([rng.randint(0, 7) for _ in range(int(np.prod(shape)))])
    return values.astype(dtype_of(dtype)).reshape(shape)


def spoiled(rng: Random, x: np.ndarray) -> Any:
    """The array with another dtype, layout, shape or type; the result is most often invalid."""
    if x.nbytes > 1 << 20 or max(x.shape, default=0) > 1 << 20:
        return x
    forms: list[Callable[[], Any]] = [
        lambda: x.T,
        lambda: x[::-1] if x.ndim else x,
        lambda: np.asfortranarray(x),
        lambda: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
        lambda: np.broadcast_to(x[:1], x.shape) if x.ndim and len(x) else x,
        lambda: np.broadcast_to(x, (1 << 40, *x.shape)),
        lambda: np.zeros(x.nbytes + 64, np.uint8)[1 : 1 + x.nbytes].view(x.dtype).reshape(x.shape),
        lambda: x.astype(x.dtype.newbyteorder(">")),
        lambda: x.astype(object),
        lambda: x.astype(complex),
        lambda: x.tolist(),
        lambda: to_tensor(x),
        lambda: frozen(x),
        lambda: torch.from_numpy(x.astype(np.float32)),
        lambda: torch.from_numpy(x.astype(np.float32)).requires_grad_(),
        lambda: torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16),
        lambda: torch.from_numpy(x.astype(np.float32)).to("meta"),
        lambda: torch.from_numpy(x.astype(np.float32)).T if x.ndim == 2 else x,
        lambda: torch.from_numpy(x.astype(np.float32)).to_sparse() if x.ndim else x,
        lambda: np.ma.masked_array(x),
        lambda: np.zeros(x.shape, [("a", "f4")]),
    ]
    try:
        return rng.choice(forms)()
    except (TypeError, ValueError, RuntimeError, BufferError):  # not available for this dtype
        return x


def frozen(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y


def anything(rng: Random) -> Any:
    shape = tuple(rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3))))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(OTHERS)
    if kind == 1:
        return rng.choice(INTEGERS)
    if kind == 2:
        return rng.choice((forged, broken))(rng)
    x = array(rng, rng.choice(DTYPES), shape)
    return x if kind < 5 else spoiled(rng, x)


def change(rng: Random, args: list[Any]) -> None:
    """Replace one argument, at any depth of tuples, by a random one."""
    at = rng.randrange(len(args)) if args else 0
    kind = rng.randrange(8)
    if kind == 0:
        args.insert(at, anything(rng))
    elif not args:
        args.append(anything(rng))
    elif kind == 1:
        del args[at]
    elif kind == 2:
        args[at] = args[rng.randrange(len(args))]
    elif isinstance(args[at], list | tuple) and kind < 6:
        inner = list(args[at])
        change(rng, inner)
        args[at] = inner
    elif isinstance(args[at], np.ndarray) and kind < 6:
        args[at] = spoiled(rng, args[at])
    else:
        args[at] = anything(rng)
