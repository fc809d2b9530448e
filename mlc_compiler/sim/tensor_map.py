"""Tensor maps: descriptors of tensors in global memory for ``cp.async.bulk.tensor`` (PTX ISA 5.5).

The driver's format is not public; the simulator uses a different one, also of 128 bytes, and ``encode_tensor_map``
takes the place of ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.errors import Fault, SimulationError
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
FORMAT = struct.Struct("<4sBBHQ5I4Q5I")
MAGIC = b"TMAP"
NBYTES = 128
ITEM_BYTES = {0: 1, 1: 2, 2: 4, 6: 2, 7: 4, 9: 2}
"""Bytes per element by CUtensorMapDataType (cuda.h): unsigned integers, float16, float32, bfloat16."""
SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
"""Swizzle width in bytes by CUtensorMapSwizzle."""


@dataclass(frozen=True)
class Box:
    """Copies between a box of a tensor and shared memory: addresses of ``width`` bytes each, -1 outside the tensor."""

    shared: Array
    tensor: Array
    width: int


def swizzled(addresses: Array, swizzle: int) -> Array:
    """Swizzle shared addresses, permuting 16-byte chunks: chunk bits ^= row bits (PTX ISA 5.5.6).

    swizzle: 0 (none), 32, 64 or 128 bytes.
    """
    chunks = swizzle // 16 - 1 if swizzle else 0
    return addresses ^ (((addresses >> 7) & chunks) << 4)


@dataclass(frozen=True)
class TensorMap:
    """A tensor map. base: address; sizes, box: in elements, innermost first; strides: in bytes, all but innermost."""

    base: int
    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    def box_at(self, shared: int, start: Sequence[int], lane: int) -> Box:
        """The copies of the box whose first element has indices ``start``, to or from shared address ``shared``."""
        if len(start) != len(self.sizes):
            raise Fault(f"a tensor copy with {len(start)} coordinates; its map has {len(self.sizes)} dimensions", lane)
        if shared % 128:
            raise Fault(
                f"misaligned access: a tensor copy at shared address {shared:#x}; expected a multiple of 128", lane
            )
        width = gcd(16, self.box[0] * self.itemsize, self.sizes[0] * self.itemsize, start[0] * self.itemsize)
        per_unit = width // self.itemsize
        counts = (self.box[0] // per_unit, *self.box[1:])
        index = np.unravel_index(np.arange(prod(counts)), counts[::-1])[::-1]
        places = [start[0] + index[0] * per_unit, *(s + i for s, i in zip(start[1:], index[1:]))]
        inside = np.ones(len(index[0]), bool)
        tensor = np.full(len(index[0]), self.base, np.int64)
        for place, size, stride in zip(places, self.sizes, (self.itemsize, *self.strides)):
            inside &= (place >= 0) & (place < size)
            tensor += place * stride
        linear = shared + np.arange(len(tensor)) * width
        return Box(swizzled(linear, self.swizzle), np.where(inside, tensor, -1), width)


def encode_tensor_map(tensor: TensorMap) -> bytes:
    """Encode a tensor map to 128 bytes. Raises SimulationError for maps that the hardware rejects."""
    inner = tensor.box[0] * tensor.itemsize
    problems = {
        "a base address that is no multiple of 16": tensor.base % 16,
        "a stride that is no multiple of 16 bytes": any(stride % 16 for stride in tensor.strides),
        "a box with more than 256 elements in a dimension": max(tensor.box) > 256,
        "a box whose rows are no multiple of 16 bytes": inner % 16,
        "a box whose rows are longer than the swizzle's span": tensor.swizzle and inner > tensor.swizzle,
        "more than 5 dimensions, or unequal numbers of them": not (
            len(tensor.sizes) == len(tensor.box) == len(tensor.strides) + 1 <= 5
        ),
    }
    wrong = [problem for problem, found in problems.items() if found]
    if wrong:
        raise SimulationError(f"tensor map with {wrong[0]}")
    pad = lambda values, n: (*values, *(1,) * (n - len(values)))  # noqa: E731
    head = (MAGIC, len(tensor.sizes), tensor.itemsize, tensor.swizzle, tensor.base)
    data = FORMAT.pack(*head, *pad(tensor.sizes, 5), *pad(tensor.strides, 4), *pad(tensor.box, 5))
    return data.ljust(NBYTES, b"\0")


def decode_tensor_map(data: bytes) -> TensorMap | None:
    """Decode 128 bytes; None when they are no tensor map."""
    magic, rank, itemsize, swizzle, base, *rest = FORMAT.unpack_from(data)
    if magic != MAGIC:
        return None
    return TensorMap(base, itemsize, tuple(rest[:rank]), tuple(rest[5 : 4 + rank]), tuple(rest[9 : 9 + rank]), swizzle)


def read_tensor_map(m: Threads, address: Array, lane: int) -> TensorMap:
    """Load the tensor map at a generic address, [1]."""
    places = address + np.arange(0, NBYTES, 16)
    space = "param" if int(address[0]) < m.launch.layout.parameter_bytes else "generic"
    rows = access.load(m, space, places, np.full(len(places), lane), 16, np.dtype("u1"), counted=False)
    found = decode_tensor_map(rows.tobytes())
    if found is None:
        raise Fault(f"no tensor map at address {int(address[0]):#x}", lane)
    return found
