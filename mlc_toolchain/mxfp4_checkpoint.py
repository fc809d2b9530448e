"""Read checkpoints with MXFP4 experts under the names and in the layout of the unquantized model.

Format: Open Compute Project 2023, "Microscaling Formats (MX) Specification", section 5.3: blocks of 32 elements in E2M1
that share a scale in E8M0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, TensorInfo

BLOCKS, SCALES = "_blocks", "_scales"
BLOCK_BYTES, BLOCK_SIZE = 16, 32
BIAS = 127
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
PAIRS = np.stack(np.meshgrid(*[np.concatenate([E2M1, -E2M1])] * 2), axis=-1).reshape(256, 2)
"""The two elements of each byte value, low nibble first."""


class Mxfp4Checkpoint(CheckpointReader):
    """Reads ``x_blocks`` uint8 [E, out, in / 32, 16] and ``x_scales`` uint8 [E, out, in / 32] as ``x`` [E, in, out].

    ``x`` is float32; other tensors are unchanged. Raises CheckpointError if shapes of blocks and scales do not match.
    """

    def __init__(self, base: CheckpointReader):
        self._base = base
        held = set(base.names())
        self._packed = {name.removesuffix(BLOCKS) for name in held if name.endswith(BLOCKS)}
        for name in self._packed:
            self._check(name, held)
        scales = {name + SCALES for name in self._packed}
        self._names = [self._renamed(name) for name in base.names() if name not in scales]

    def names(self) -> list[str]:
        return self._names

    def info(self, name: str) -> TensorInfo:
        if name not in self._packed:
            return self._base.info(name)
        experts, outputs, blocks, _ = self._base.info(name + BLOCKS).shape
        nbytes = sum(self._base.info(part).nbytes for part in self._parts(name))
        return TensorInfo((experts, blocks * BLOCK_SIZE, outputs), "float32", nbytes)

    def read(self, name: str) -> np.ndarray:
        return np.concatenate(list(self.read_rows(name))) if name in self._packed else self._base.read(name)

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        if name not in self._packed:
            yield from self._base.read_rows(name)
            return
        for blocks, scales in zip(*(self._base.read(part) for part in self._parts(name)), strict=True):
            yield decoded(blocks, scales).T[None]

    def file_of(self, name: str) -> Path:
        return self._base.file_of(self._parts(name)[0])

    def files(self) -> list[Path]:
        return self._base.files()

    def release(self, name: str) -> None:
        for part in self._parts(name):
            self._base.release(part)

    def _parts(self, name: str) -> tuple[str, ...]:
        return (name + BLOCKS, name + SCALES) if name in self._packed else (name,)

    def _renamed(self, name: str) -> str:
        stem = name.removesuffix(BLOCKS)
        return stem if stem in self._packed else name

    def _check(self, name: str, held: set[str]) -> None:
        infos = [self._base.info(part) if part in held else None for part in (name + BLOCKS, name + SCALES)]
        blocks, scales = ((info.dtype, *info.shape) if info else () for info in infos)
        is_block = len(blocks) == 5 and blocks[0] == "uint8" and blocks[-1] == BLOCK_BYTES
        if not is_block or scales != blocks[:-1] or name in held:
            raise CheckpointError(
                f"{name}: got blocks {blocks} and scales {scales}; expected bytes [experts, out, in / {BLOCK_SIZE}, "
                f"{BLOCK_BYTES}], a scale for each block, and no {name}",
                where=[str(self._base.file_of(name + BLOCKS))],
            )


def decoded(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Dequantize blocks uint8 [..., n, 16] with scales uint8 [..., n] to float32 [..., 32 n]; scale 255 is invalid."""
    values = PAIRS[blocks].reshape(*scales.shape, BLOCK_SIZE)
    with np.errstate(over="ignore", invalid="ignore"):
        values *= np.ldexp(np.float32(1), scales.astype(np.int32) - BIAS)[..., None]
    return values.reshape(*scales.shape[:-1], -1)
