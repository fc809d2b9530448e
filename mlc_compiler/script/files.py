"""Modules as files: the text, and its constants in a file of the same name with the suffix .npz."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from mlc_errors import MLCError

from ..ir.dtype import to_numpy
from .printer import ScriptText


def write_script(path: Path, printed: ScriptText) -> None:
    """Write a text, and its constants if it has any; a file of constants from an earlier text is removed."""
    path.write_text(printed.text, encoding="utf-8")
    file = _constants_file(path)
    if printed.constants:
        with zipfile.ZipFile(file, "w") as archive:
            for i, constant in enumerate(printed.constants):
                with archive.open(f"{i}_{constant.dtype}.npy", "w") as entry:
                    np.save(entry, _as_bytes(constant))
    else:
        file.unlink(missing_ok=True)


def read_constants(path: Path) -> tuple[np.ndarray, ...]:
    """Read the constants of the text in ``path``, none without a file of them. Raises MLCError for an invalid file."""
    file = _constants_file(path)
    if file == path or not file.is_file():
        return ()
    try:
        with np.load(file, allow_pickle=False) as stored:
            keys = sorted(stored, key=lambda key: int(key.partition("_")[0]))
            return tuple(_from_bytes(stored[key], key.partition("_")[2]) for key in keys)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise MLCError(f"the constants of {path.name} cannot be read: {error}", where=[str(file)]) from None


def _constants_file(path: Path) -> Path:
    return path.with_suffix(".npz")


def _as_bytes(constant: np.ndarray) -> np.ndarray:
    """View the elements as bytes along one more axis, since numpy's files have no bfloat16."""
    return np.frombuffer(constant.tobytes(), np.uint8).reshape(*constant.shape, constant.dtype.itemsize)


def _from_bytes(stored: np.ndarray, dtype: str) -> np.ndarray:
    return np.frombuffer(stored.tobytes(), to_numpy(dtype)).reshape(stored.shape[:-1])
