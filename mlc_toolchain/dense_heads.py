"""Read the weights of dense heads, which are in separate folders of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mlc_toolchain.readers.base import CheckpointReader, TensorInfo
from mlc_toolchain.readers.checkpoint import FORMATS
from mlc_toolchain.sentence_transformers import DenseHead
from quantization.kept_codes import Levels, StoredForm

STORED = "linear."
NAMED = "dense.{}."


class HeadsReader(CheckpointReader):
    """A checkpoint together with the weights of its dense heads, ``dense.0.weight`` and so on."""

    def __init__(self, base: CheckpointReader, heads: Sequence[DenseHead]):
        self._readers = {name: (base, name) for name in base.names()}
        self._files = list(base.files())
        for i, head in enumerate(heads):
            reader = _open(head.file)
            self._files += reader.files()
            for name in reader.names():
                self._readers[NAMED.format(i) + name.removeprefix(STORED)] = reader, name

    def names(self) -> list[str]:
        return list(self._readers)

    def info(self, name: str) -> TensorInfo:
        reader, own = self._readers[name]
        return reader.info(own)

    def read(self, name: str) -> np.ndarray:
        reader, own = self._readers[name]
        return reader.read(own)

    def read_rows(self, name: str) -> Iterator[np.ndarray]:
        reader, own = self._readers[name]
        return reader.read_rows(own)

    def file_of(self, name: str) -> Path:
        reader, own = self._readers[name]
        return reader.file_of(own)

    def files(self) -> list[Path]:
        return self._files

    def group_levels(self, name: str) -> Levels | None:
        reader, own = self._readers[name]
        return reader.group_levels(own)

    def stored_form(self, name: str) -> StoredForm | None:
        reader, own = self._readers[name]
        return reader.stored_form(own)

    def release(self, name: str) -> None:
        reader, own = self._readers[name]
        reader.release(own)


def _open(file: Path) -> CheckpointReader:
    return next(open_file for _, single, open_file in FORMATS.values() if single == file.name)(file)
