"""Base class of readers of quantized checkpoints: the tensors of a linear layer become one weight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, TensorInfo

CACHE_SCALES = ("k_scale", "v_scale")
"""Tensors of layers whose results a KV cache in float8 or 4 bits would store; this project's caches do not use them."""


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

    def _name_of(self, stem: str, kinds: Sequence[str]) -> str | None:
        """The first of a layer's tensors of these kinds that is stored."""
        return next((name for kind in kinds if (name := f"{stem}.{kind}") in self._held), None)

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
