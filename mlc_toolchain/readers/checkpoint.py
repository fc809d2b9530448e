"""Open a folder of weights as one reader: find the format, follow the index of a sharded checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path, PureWindowsPath

import numpy as np

from mlc_errors import UsageError
from mlc_toolchain.readers.base import MAX_TENSORS, CheckpointError, CheckpointReader, TensorInfo, shown
from mlc_toolchain.readers.bounded_json import MAX_INDEX_BYTES, read_json_object
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.readers.torch_bin import TorchReader

# Format name -> (index file, single file, reader), in order of preference.
FORMATS: dict[str, tuple[str, str, Callable[[Path], CheckpointReader]]] = {
    "safetensors": ("model.safetensors.index.json", "model.safetensors", SafetensorsReader),
    "pytorch": ("pytorch_model.bin.index.json", "pytorch_model.bin", TorchReader),
}
MAX_FILE_NAME = 255
LOG = logging.getLogger(__name__)
FORMAT_ALIASES = {"huggingface-safetensor": "safetensors", "huggingface-torch": "pytorch"}


class ShardedReader(CheckpointReader):
    """A sharded checkpoint with an index; names are grouped by file, files in the index's order."""

    def __init__(self, index: Path, open_file: Callable[[Path], CheckpointReader]):
        placed = _weight_map(index)
        by_file: dict[str, list[str]] = {}
        for name, file in placed.items():
            by_file.setdefault(file, []).append(name)
        shards = {file: open_file(contained_path(index.parent, file, index)) for file in by_file}
        self._readers = {name: shards[file] for file, names in by_file.items() for name in names}
        self._files = [path for reader in shards.values() for path in reader.files()]
        _check_index(placed, shards, index)

    def names(self) -> list[str]:
        return list(self._readers)

    def info(self, name: str) -> TensorInfo:
        return self._readers[name].info(name)

    def read(self, name: str) -> np.ndarray:
        return self._readers[name].read(name)

    def file_of(self, name: str) -> Path:
        return self._readers[name].file_of(name)

    def files(self) -> list[Path]:
        return self._files

    def release(self, name: str) -> None:
        self._readers[name].release(name)


def checked_formats(source_format: str) -> list[str]:
    """The formats to look for, in order of preference. Raises UsageError for an unknown name."""
    wanted = FORMAT_ALIASES.get(source_format, source_format)
    if wanted not in ("auto", *FORMATS):
        names = ", ".join(["auto", *FORMATS, *FORMAT_ALIASES])
        raise UsageError(f"unknown source format: got {source_format!r}; expected one of {names}")
    return list(FORMATS) if wanted == "auto" else [wanted]


def open_checkpoint(folder: Path, source_format: str = "auto") -> CheckpointReader:
    """Open the weights in ``folder``. Raises CheckpointError when there are none or a file is missing or damaged."""
    looked_for: list[str] = []
    present = [f for f in FORMATS if any((folder / name).is_file() for name in FORMATS[f][:2])]
    LOG.info("found the weight formats %s in %s; looking for %s", " and ".join(present), folder, source_format)
    for wanted in checked_formats(source_format):
        index, single, open_file = FORMATS[wanted]
        if (folder / index).is_file():
            LOG.info("using the weights of %s", folder / index)
            return ShardedReader(folder / index, open_file)
        if (folder / single).is_file():
            LOG.info("using the weights in %s", folder / single)
            return open_file(folder / single)
        looked_for += [index, single]
    raise CheckpointError(f"no weights in the folder: looked for {', '.join(looked_for)}", where=[str(folder)])


def index_files(index: Path) -> list[str]:
    """The shards that an index names, each checked to be a plain path inside its folder."""
    files = list(dict.fromkeys(_weight_map(index).values()))
    for file in files:
        check_plain(file, index)
    return files


def contained_path(folder: Path, name: str, index: Path) -> Path:
    """``folder/name`` for a plain relative path inside the folder. Links out of the folder are followed only if the
    folder itself consists of links, as in the Hugging Face cache. Raises CheckpointError for other names."""
    check_plain(name, index)
    path = folder / name
    if not path.is_file():
        raise CheckpointError(
            f"shard {shown(name)} is missing", where=[str(index)], hint="download the remaining files of the checkpoint"
        )
    _check_links(path, folder, index)
    return path


def check_plain(name: str, index: Path) -> None:
    """Raises CheckpointError for a name that could lead out of its folder on any system."""
    windows = PureWindowsPath(name)
    outside = not name or windows.drive or windows.root or ".." in windows.parts
    if outside or "\0" in name or "\\" in name or len(name.encode("utf-8", "surrogatepass")) > MAX_FILE_NAME:
        raise CheckpointError(f"got the file name {shown(name)}; expected one inside the folder", where=[str(index)])


def _check_links(path: Path, folder: Path, index: Path) -> None:
    resolved, home = path.resolve(), folder.resolve()
    allowed = (home, index.resolve().parent, home.parent.parent / "blobs")
    if not any(resolved.is_relative_to(root) for root in allowed):
        raise CheckpointError(f"shard {shown(path.name)} is a link out of its folder", where=[str(index)])


def _weight_map(index: Path) -> dict[str, str]:
    placed = read_json_object(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(placed, dict) or not placed or len(placed) > MAX_TENSORS:
        raise CheckpointError("the index has no usable weight_map", where=[str(index)])
    wrong = next((item for item in placed.items() if not isinstance(item[1], str)), None)
    if wrong:
        raise CheckpointError(f"the index places {shown(wrong[0])} in {shown(wrong[1])}", where=[str(index)])
    return placed


def _check_index(placed: dict[str, str], shards: dict[str, CheckpointReader], index: Path) -> None:
    """Raise CheckpointError unless the index names exactly the tensors of the shards."""
    held = {file: set(reader.names()) for file, reader in shards.items()}
    for name, file in placed.items():
        if name not in held[file]:
            raise CheckpointError(
                f"tensor {shown(name)} is not in {shown(file)}, where the index places it", where=[str(index)]
            )
    for file, names in held.items():
        extra = sorted(name for name in names if placed.get(name) != file)
        if extra:
            raise CheckpointError(
                f"{shown(file)} holds {shown(extra[0])}, which the index does not name", where=[str(index)]
            )
