"""Read AWQ, GPTQ and scaled fp8 checkpoints under the names of the unquantized model.

A linear layer ``x`` is stored as ``x.qweight``, ``x.qzeros``, ``x.scales`` (and ``x.g_idx``), or as an fp8 ``x.weight``
with ``x.weight_scale_inv``. The readers present it as one tensor ``x.weight`` [out, in], read as float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlc_toolchain.mxfp4_checkpoint import Mxfp4Checkpoint
from mlc_toolchain.packed_settings import (
    AWQSettings,
    BlockSettings,
    GPTQSettings,
    IntegerSettings,
    Mxfp4Settings,
    packed_settings,
)
from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, TensorInfo
from quantization import awq
from quantization.kept_codes import Levels, StoredForm

WORD_BITS = 32
ONE_SCALE_BLOCK = (128, 128)
"""The blocks of a matrix with one scale, as in mlc_llm."""


def open_packed(reader: CheckpointReader, config: Mapping[str, Any], where: str) -> CheckpointReader:
    """Wrap ``reader`` according to config.json's quantization_config; see ``packed_settings``."""
    match packed_settings(config, where):
        case None:
            return reader
        case AWQSettings() as settings:
            return AWQCheckpoint(reader, settings)
        case GPTQSettings() as settings:
            return GPTQCheckpoint(reader, settings)
        case BlockSettings() as settings:
            return BlockFp8Checkpoint(reader, settings)
        case Mxfp4Settings():
            return Mxfp4Checkpoint(reader)


class PackedCheckpoint(CheckpointReader):
    """Replaces the tensors of every packed layer by one ``weight``; other tensors are unchanged."""

    main = ""
    parts: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __init__(self, base: CheckpointReader):
        self._base = base
        self._held = set(base.names())
        suffix = f".{self.main}"
        stems = [name.removesuffix(suffix) for name in base.names() if name.endswith(suffix)]
        self._packed = {f"{stem}.weight": stem for stem in stems if self._is_packed(stem)}
        self._names = [renamed for name in base.names() if (renamed := self._renamed(name))]
        for name, stem in self._packed.items():
            self._check(name, stem)

    def names(self) -> list[str]:
        return self._names

    def info(self, name: str) -> TensorInfo:
        stem = self._packed.get(name)
        if stem is None:
            return self._base.info(name)
        return TensorInfo(self._shape(stem), "float32", sum(self._base.info(part).nbytes for part in self._parts(stem)))

    def read(self, name: str) -> np.ndarray:
        stem = self._packed.get(name)
        return self._base.read(name) if stem is None else self._unpacked(stem)

    def file_of(self, name: str) -> Path:
        stem = self._packed.get(name)
        return self._base.file_of(name if stem is None else f"{stem}.{self.main}")

    def files(self) -> list[Path]:
        return self._base.files()

    def release(self, name: str) -> None:
        stem = self._packed.get(name)
        for part in [name] if stem is None else self._parts(stem):
            self._base.release(part)

    def _parts(self, stem: str) -> list[str]:
        return [part for kind in (self.main, *self.parts) if (part := f"{stem}.{kind}") in self._held]

    def _renamed(self, name: str) -> str | None:
        """This reader's name for a stored tensor; None for the secondary tensors of a packed layer."""
        stem, _, kind = name.rpartition(".")
        if f"{stem}.weight" in self._packed:
            return f"{stem}.weight" if kind == self.main else None if kind in (*self.parts, *self.dropped) else name
        return name

    def _is_packed(self, stem: str) -> bool:
        return True

    def _error(self, stem: str, message: str) -> CheckpointError:
        return CheckpointError(f"{stem}: {message}", where=[str(self._base.file_of(f"{stem}.{self.main}"))])

    @abstractmethod
    def _shape(self, stem: str) -> tuple[int, ...]:
        """The shape [out, in] of a layer's weight."""

    @abstractmethod
    def _unpacked(self, stem: str) -> np.ndarray:
        """The layer's weights float32 [out, in]."""

    @abstractmethod
    def _check(self, name: str, stem: str) -> None:
        """Raises CheckpointError unless the shapes and dtypes of a layer's tensors match."""


class IntegerCheckpoint(PackedCheckpoint):
    """Base class of AWQ and GPTQ: low-bit codes, with a zero point and a scale per group of inputs."""

    main = "qweight"
    parts = ("qzeros", "scales", "g_idx")

    def __init__(self, base: CheckpointReader, settings: IntegerSettings):
        self._bits, self._group = settings.bits, settings.group
        super().__init__(base)

    def group_levels(self, name: str) -> Levels | None:
        """The layer's own integer levels; None if its groups are not of consecutive inputs (act order)."""
        stem = self._packed.get(name)
        if stem is None or not self._in_order(stem):
            return None
        codes, zeros, scales = self._codes(stem)
        group = self._group_size(stem)
        return Levels(codes.astype(np.int16) - np.repeat(zeros, group, axis=1), scales, group)

    def _unpacked(self, stem: str) -> np.ndarray:
        codes, zeros, scales = self._codes(stem)
        index = self._group_index(stem)
        return (codes.astype(np.float32) - zeros[:, index]) * scales.astype(np.float32)[:, index]

    def _shape(self, stem: str) -> tuple[int, ...]:
        rows, columns = self._base.info(f"{stem}.qweight").shape
        return self._sizes(rows, columns)

    def _group_size(self, stem: str) -> int:
        return self._shape(stem)[1] if self._group == -1 else self._group

    def _group_index(self, stem: str) -> np.ndarray:
        return np.arange(self._shape(stem)[1]) // self._group_size(stem)

    def _in_order(self, stem: str) -> bool:
        return True

    def _check(self, name: str, stem: str) -> None:
        shapes = {kind: self._base.info(f"{stem}.{kind}").shape for kind in self._matrices(stem)}
        outputs, inputs = self._shape(stem)
        group = max(1, self._group_size(stem))
        expected = {
            "qweight": shapes["qweight"],
            "qzeros": (inputs // group, outputs * self._bits // WORD_BITS),
            "scales": (inputs // group, outputs),
        }
        if shapes != expected or inputs % group or name in self._held:
            raise self._error(
                stem, f"got shapes {shapes}; expected {expected} for {self._bits} bits, groups of {group}"
            )
        dtypes = {self._base.info(f"{stem}.{kind}").dtype for kind in ("qweight", "qzeros")}
        if not dtypes <= {"int32", "uint32"}:
            raise self._error(stem, f"got codes in {', '.join(sorted(dtypes))}; expected 32-bit integers")

    def _matrices(self, stem: str) -> tuple[str, ...]:
        kinds = ("qweight", "qzeros", "scales")
        for kind in kinds:
            if f"{stem}.{kind}" not in self._held or len(self._base.info(f"{stem}.{kind}").shape) != 2:
                raise self._error(stem, f"{kind} is missing or no matrix")
        return kinds

    @abstractmethod
    def _sizes(self, rows: int, columns: int) -> tuple[int, int]:
        """The shape [out, in] for a qweight of the given shape."""

    @abstractmethod
    def _codes(self, stem: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes uint8 [out, in], zero points int16 [out, groups] and scales [out, groups]."""

    def _words(self, stem: str, kind: str) -> np.ndarray:
        return np.ascontiguousarray(self._base.read(f"{stem}.{kind}")).view(np.uint32)

    def _scales(self, stem: str) -> np.ndarray:
        return np.ascontiguousarray(self._base.read(f"{stem}.scales").T)


class AWQCheckpoint(IntegerCheckpoint):
    """AWQ: qweight [in, out / 8] and qzeros [groups, out / 8], eight outputs per word in AWQ's order of nibbles."""

    def _sizes(self, rows: int, columns: int) -> tuple[int, int]:
        return columns * 8, rows

    def _codes(self, stem: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, zeros = (awq.unpack(self._words(stem, kind)).T for kind in ("qweight", "qzeros"))
        return codes, zeros.astype(np.int16), self._scales(stem)

    def stored_form(self, name: str) -> StoredForm | None:
        stem = self._packed.get(name)
        return None if stem is None else StoredForm("awq", (1, self._group_size(stem)), partial(self._stored, stem))

    def _stored(self, stem: str, kind: str) -> np.ndarray:
        return (self._base.read(f"{stem}.{kind}") if kind == "scales" else self._words(stem, kind)).T


class GPTQCheckpoint(IntegerCheckpoint):
    """GPTQ: qweight [in * bits / 32, out], codes of consecutive inputs as a bit stream; qzeros likewise along outputs.

    checkpoint_format "gptq" stores zero points minus one. g_idx [in]: the group of each input.
    """

    def __init__(self, base: CheckpointReader, settings: GPTQSettings):
        self._zero_offset = settings.zero_offset
        super().__init__(base, settings)

    def _sizes(self, rows: int, columns: int) -> tuple[int, int]:
        return columns, rows * WORD_BITS // self._bits

    def _codes(self, stem: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = _bit_stream(self._words(stem, "qweight").T, self._bits)
        zeros = _bit_stream(self._words(stem, "qzeros"), self._bits).T.astype(np.int16) + self._zero_offset
        return codes, zeros, self._scales(stem)

    def _group_index(self, stem: str) -> np.ndarray:
        part = f"{stem}.g_idx"
        return self._base.read(part) if part in self._held else super()._group_index(stem)

    def _in_order(self, stem: str) -> bool:
        return np.array_equal(self._group_index(stem), super()._group_index(stem))

    def _check(self, name: str, stem: str) -> None:
        super()._check(name, stem)
        if f"{stem}.g_idx" in self._held:
            index = self._base.read(f"{stem}.g_idx")
            groups = self._base.info(f"{stem}.scales").shape[0]
            whole = index.shape == (self._shape(stem)[1],) and index.dtype.kind in "iu" and index.size
            if not whole or index.min() < 0 or index.max() >= groups:
                raise self._error(stem, f"g_idx does not name a group below {groups} for every input")


class BlockFp8Checkpoint(PackedCheckpoint):
    """Scaled fp8: weight float8 [out, in], multiplied block by block by weight_scale_inv [out / b, in / b].

    One scale per matrix, which may be called weight_scale, counts as equal scales of blocks. Scales of inputs, one per
    matrix or block of inputs, are part of the stored form alone.
    """

    main = "weight"
    parts = ("weight_scale_inv", "weight_scale")
    dropped = ("input_scale", "activation_scale")

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
        has_input_scales = self._static and self._name_of(stem, self.dropped) is not None
        return StoredForm("block", self._block, partial(self._stored, stem), has_input_scales)

    def _stored(self, stem: str, kind: str) -> np.ndarray:
        match kind:
            case "weight_scale_inv":
                return self._weight_scales(stem)
            case "activation_scale":
                name = self._name_of(stem, self.dropped)
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

    def _name_of(self, stem: str, kinds: Sequence[str]) -> str | None:
        return next((name for kind in kinds if (name := f"{stem}.{kind}") in self._held), None)

    def _check(self, name: str, stem: str) -> None:
        shape, scales = self._shape(stem), self._scales_shape(stem, self.parts)
        is_scaled = scales == self._blocks(stem) if self._is_blocked else prod(scales) == 1
        if len(shape) != 2 or not is_scaled:
            expected = self._block if self._is_blocked else "one scale"
            raise self._error(stem, f"weight {list(shape)} and weight_scale_inv {list(scales)} do not fit {expected}")
        if self._name_of(stem, self.dropped) and self._static:
            inputs = self._scales_shape(stem, self.dropped)
            if prod(inputs) != 1 and inputs != self._blocks(stem)[1:]:
                raise self._error(stem, f"weight {list(shape)} and scales of inputs {list(inputs)} do not fit")

    def _scales_shape(self, stem: str, kinds: Sequence[str]) -> tuple[int, ...]:
        name = self._name_of(stem, kinds)
        assert name is not None
        return self._base.info(name).shape


def _bit_stream(words: np.ndarray, bits: int) -> np.ndarray:
    """Unpack words uint32 [n, m] to codes uint8 [n, 32 m / bits], lowest bits first, also across words."""
    if bits == 3:
        every = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
        runs = every[:, : every.shape[1] // 3 * 3].reshape(len(words), -1, 3)
        return runs[..., 0] | runs[..., 1] << 1 | runs[..., 2] << 2
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    return ((words[..., None] >> shifts) & np.uint32((1 << bits) - 1)).astype(np.uint8).reshape(len(words), -1)
