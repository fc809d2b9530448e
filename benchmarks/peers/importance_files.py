"""Read and write importance matrices in the older format of llama.cpp's tool, which its forks also read.

The number of entries, then for each the length of its name, the name, the number of calls, the number of values and the
values; integers int32, values float32, little-endian. Values are sums over the calls; here the number of calls is 1.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np


def write(means: dict[str, np.ndarray], path: Path) -> None:
    """Write a file. means: mean squares, float32 [K], by GGUF name."""
    with path.open("wb") as file:
        file.write(struct.pack("<i", len(means)))
        for name, values in means.items():
            file.write(struct.pack("<i", len(name)) + name.encode())
            file.write(struct.pack("<ii", 1, len(values)) + values.tobytes())


def read(path: Path) -> dict[str, np.ndarray]:
    """Read a file written by ``write``."""
    data, means, place = path.read_bytes(), {}, 4
    for _ in range(struct.unpack_from("<i", data)[0]):
        (length,) = struct.unpack_from("<i", data, place)
        name = data[place + 4 : place + 4 + length].decode()
        _, count = struct.unpack_from("<ii", data, place + 4 + length)
        means[name] = np.frombuffer(data, "<f4", count, place + 12 + length)
        place += 12 + length + 4 * count
    return means
