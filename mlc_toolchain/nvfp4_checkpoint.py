"""Read NVFP4 checkpoints, as ModelOpt and compressed-tensors write them.

Blocks of 16 inputs share a scale in E4M3, and all blocks of a matrix one in float32 (NVIDIA 2025, "Introducing NVFP4
for Efficient and Accurate Low-Precision Inference").
"""

from __future__ import annotations

import numpy as np

from mlc_toolchain.mxfp4_checkpoint import PAIRS
from mlc_toolchain.packed_layers import CACHE_SCALES, PackedCheckpoint

BLOCK = 16


class Nvfp4Checkpoint(PackedCheckpoint):
    """ModelOpt's layers. ``x.weight`` uint8 [out, in / 2]: two inputs per byte, the first in the low nibble. They are
    multiplied by ``x.weight_scale`` float8_e4m3fn [out, in / 16] and ``x.weight_scale_2`` float32 [].

    The scales of inputs and of the KV cache are not used: activations are not rounded to 4 bits.
    """

    main = "weight"
    parts: tuple[str, ...] = ("weight_scale", "weight_scale_2")
    dropped: tuple[str, ...] = ("input_scale", *CACHE_SCALES)

    def _is_packed(self, stem: str) -> bool:
        return f"{stem}.{self.parts[0]}" in self._held

    def _shape(self, stem: str) -> tuple[int, ...]:
        outputs, pairs = self._base.info(f"{stem}.{self.main}").shape
        return outputs, 2 * pairs

    def _unpacked(self, stem: str) -> np.ndarray:
        values: np.ndarray = PAIRS[self._base.read(f"{stem}.{self.main}")].reshape(self._shape(stem))
        scales = self._base.read(f"{stem}.{self.parts[0]}").astype(np.float32) * self._scale_of_all(stem)
        return values * np.repeat(scales, BLOCK, axis=1)

    def _scale_of_all(self, stem: str) -> np.float32:
        return np.float32(self._base.read(f"{stem}.{self.parts[1]}").reshape(()))

    def _check(self, name: str, stem: str) -> None:
        stored = {kind: self._base.info(f"{stem}.{kind}") for kind in self._kinds(stem)}
        found = {kind: (info.dtype, *info.shape) for kind, info in stored.items()}
        match [found.get(kind) for kind in (self.main, *self.parts)]:
            case [["uint8", int(outputs), int(pairs)], ["float8_e4m3fn", int(rows), int(blocks)], ["float32", *_]]:
                if (rows, blocks * BLOCK) == (outputs, 2 * pairs) and stored[self.parts[1]].elements == 1:
                    return
        raise self._error(
            stem,
            f"got {found}; expected {self.main} uint8 [out, in / 2], {self.parts[0]} float8_e4m3fn [out, in / {BLOCK}] "
            f"and {self.parts[1]} float32 []",
        )

    def _kinds(self, stem: str) -> list[str]:
        return [kind for kind in (self.main, *self.parts) if f"{stem}.{kind}" in self._held]


class CompressedNvfp4Checkpoint(Nvfp4Checkpoint):
    """compressed-tensors' layers: ``x.weight_packed``, and ``x.weight_global_scale``, by which weights are divided."""

    main = "weight_packed"
    parts = ("weight_scale", "weight_global_scale")
    dropped = ("input_global_scale", *CACHE_SCALES)

    def _scale_of_all(self, stem: str) -> np.float32:
        return np.float32(1) / super()._scale_of_all(stem)
