"""Read AWQ and GPTQ checkpoints: ``x.qweight``, ``x.qzeros``, ``x.scales`` (and ``x.g_idx``) as ``x.weight``."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

import numpy as np

from mlc_toolchain.packed_layers import PackedCheckpoint
from mlc_toolchain.packed_settings import GPTQSettings, IntegerSettings
from mlc_toolchain.readers.base import CheckpointReader
from quantization import awq
from quantization.kept_codes import Levels, StoredForm

WORD_BITS = 32


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


def _bit_stream(words: np.ndarray, bits: int) -> np.ndarray:
    """Unpack words uint32 [n, m] to codes uint8 [n, 32 m / bits], lowest bits first, also across words."""
    if bits == 3:
        every = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
        runs = every[:, : every.shape[1] // 3 * 3].reshape(len(words), -1, 3)
        return runs[..., 0] | runs[..., 1] << 1 | runs[..., 2] << 2
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    return ((words[..., None] >> shifts) & np.uint32((1 << bits) - 1)).astype(np.uint8).reshape(len(words), -1)
