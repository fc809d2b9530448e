"""Read scaled fp8 checkpoints: an fp8 ``x.weight`` with ``x.weight_scale_inv`` or ``x.weight_scale``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from mlc_toolchain.packed_layers import CACHE_SCALES, PackedCheckpoint
from mlc_toolchain.packed_settings import BlockSettings
from mlc_toolchain.readers.base import CheckpointReader
from quantization.kept_codes import StoredForm

ONE_SCALE_BLOCK = (128, 128)
"""The blocks of a matrix with one scale, as in mlc_llm."""


class BlockFp8Checkpoint(PackedCheckpoint):
    """Scaled fp8: weight float8 [out, in], multiplied block by block by weight_scale_inv [out / b, in / b].

    One scale per matrix, which may be called weight_scale, counts as equal scales of blocks. Scales of inputs, one per
    matrix or block of inputs, are part of the stored form alone.
    """

    main = "weight"
    parts = ("weight_scale_inv", "weight_scale")
    input_scales = ("input_scale", "activation_scale")
    dropped = (*input_scales, *CACHE_SCALES)

    def __init__(self, base: CheckpointReader, settings: BlockSettings):
        self._is_blocked, self._block = settings.block is not None, settings.block or ONE_SCALE_BLOCK
        self._static = settings.static
        super().__init__(base)

    def _is_packed(self, stem: str) -> bool:
        return any(f"{stem}.{part}" in self._held for part in self.parts)

    def _shape(self, stem: str) -> tuple[int, ...]:
        return self._base.info(f"{stem}.weight").shape

    def _unpacked(self, stem: str) -> np.ndarray:
        weight = self._base.read(f"{stem}.weight").astype(np.float32)
        scales = self._weight_scales(stem)
        rows, columns = self._block
        for row, start in enumerate(range(0, len(weight), rows)):
            weight[start : start + rows] *= np.repeat(scales[row], columns)[: weight.shape[1]]
        return weight

    def stored_form(self, name: str) -> StoredForm | None:
        stem = self._packed.get(name)
        if stem is None or self._base.info(name).dtype != "float8_e4m3fn":
            return None
        has_input_scales = self._static and self._name_of(stem, self.input_scales) is not None
        return StoredForm("block", self._block, partial(self._stored, stem), has_input_scales)

    def _stored(self, stem: str, kind: str) -> np.ndarray:
        match kind:
            case "weight_scale_inv":
                return self._weight_scales(stem)
            case "activation_scale":
                name = self._name_of(stem, self.input_scales)
                assert name is not None
                return np.broadcast_to(self._base.read(name).astype(np.float32).reshape(-1), self._blocks(stem)[1:])
        return self._base.read(f"{stem}.{kind}")

    def _weight_scales(self, stem: str) -> np.ndarray:
        """The scale of every block, float32 [out / b, in / b]."""
        name = self._name_of(stem, self.parts)
        assert name is not None
        scales = self._base.read(name).astype(np.float32)
        return scales if self._is_blocked else np.broadcast_to(scales.reshape(1, 1), self._blocks(stem))

    def _blocks(self, stem: str) -> tuple[int, ...]:
        return tuple(-(-size // block) for size, block in zip(self._shape(stem), self._block))

    def _check(self, name: str, stem: str) -> None:
        shape, scales = self._shape(stem), self._scales_shape(stem, self.parts)
        is_scaled = scales == self._blocks(stem) if self._is_blocked else prod(scales) == 1
        if len(shape) != 2 or not is_scaled:
            expected = self._block if self._is_blocked else "one scale"
            raise self._error(stem, f"weight {list(shape)} and weight_scale_inv {list(scales)} do not fit {expected}")
        if self._name_of(stem, self.input_scales) and self._static:
            inputs = self._scales_shape(stem, self.input_scales)
            if prod(inputs) != 1 and inputs != self._blocks(stem)[1:]:
                raise self._error(stem, f"weight {list(shape)} and scales of inputs {list(inputs)} do not fit")

    def _scales_shape(self, stem: str, kinds: Sequence[str]) -> tuple[int, ...]:
        name = self._name_of(stem, kinds)
        assert name is not None
        return self._base.info(name).shape
