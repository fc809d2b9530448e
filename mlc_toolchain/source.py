"""Find the model for a MODEL argument: a folder, a config.json, a GGUF file, a preset, or a repository on the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlc_errors import UsageError
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.readers.base import CheckpointReader
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.readers.checkpoint import checked_formats, open_checkpoint
from mlc_toolchain.source_base import CONFIG, ModelSource, RepositorySource

if TYPE_CHECKING:
    from mlc_toolchain.hub import HubSource

HUB_PREFIX = "HF://"
GGUF = ".gguf"
PRESETS = Path(__file__).resolve().parent.parent / "configs" / "models"


@dataclass(frozen=True)
class FolderSource(RepositorySource):
    """A Hugging Face folder with config.json and weights."""

    path: Path
    kind = "folder"

    def file(self, name: str) -> Path | None:
        path = self.path / name
        return path if path.is_file() else None

    def weights(self, source_format: str = "auto") -> CheckpointReader:
        return open_checkpoint(self.path, source_format)


@dataclass(frozen=True)
class PresetSource(ModelSource):
    """A config that is part of the toolchain, without weights."""

    path: Path
    kind = "preset"

    def config(self) -> dict[str, Any]:
        return read_json_object(self.path)

    def file(self, name: str) -> Path | None:
        return None

    def weights(self, source_format: str = "auto") -> CheckpointReader:
        raise UsageError(
            f"the preset {self.path.stem} has a config and no weights", hint="name their folder with --source DIR"
        )


@dataclass(frozen=True)
class GGUFSource(ModelSource):
    """A ``.gguf`` file, with a config derived from its metadata."""

    path: Path
    kind = "gguf"

    @cached_property
    def checkpoint(self) -> GGUFCheckpoint:
        return GGUFCheckpoint(self.path)

    @property
    def metadata(self) -> dict[str, Any]:
        """The file's key-value pairs, including the tokenizer."""
        return self.checkpoint.metadata

    def config(self) -> dict[str, Any]:
        return self.checkpoint.config()

    def file(self, name: str) -> Path | None:
        return None

    def weights(self, source_format: str = "auto") -> CheckpointReader:
        if source_format != "auto" and checked_formats(source_format):
            raise UsageError(f"--source-format {source_format}: {self.path.name} is a GGUF file", hint="use auto")
        return self.checkpoint


def hub_source(text: str, main: str = CONFIG) -> HubSource:
    """The repository ``HF://owner/name[@revision]``; ``main``: see ``HubSource``."""
    from mlc_toolchain.hub import HubSource  # huggingface_hub takes 0.1 s to import

    return HubSource.parse(text, main)


def resolve_source(text: str) -> ModelSource:
    """Find the source that ``text`` names. Raises UsageError if there is none that can be converted."""
    if text.startswith(HUB_PREFIX):
        repository, colon, file = text.removeprefix(HUB_PREFIX).partition(":")
        return _hub_file(HUB_PREFIX + repository, file) if colon else hub_source(text)
    path = Path(text).expanduser()
    if path.is_file():
        return _file_source(path)
    if path.is_dir():
        return _folder_source(path)
    preset = PRESETS / f"{text}.json"
    if "/" not in text and preset.is_file():
        return PresetSource(preset)
    raise UsageError(f"cannot find the model: {text!r} is no folder, file or preset", hint=_hint(text))


def _hub_file(repository: str, file: str) -> ModelSource:
    """The source for a file of a repository, ``HF://owner/name:model.gguf``."""
    if Path(file).suffix != GGUF:
        raise UsageError(f"cannot convert {file!r} of {repository}; expected a {GGUF} file")
    return GGUFSource(hub_source(repository, file).path / Path(file).name)


def _file_source(path: Path) -> ModelSource:
    if path.suffix == GGUF:
        return GGUFSource(path)
    if path.name == CONFIG:
        return FolderSource(path.parent)
    raise UsageError(f"{path.name} is no checkpoint; expected a folder, a {CONFIG} or a .gguf file", where=[str(path)])


def _folder_source(path: Path) -> ModelSource:
    if (path / CONFIG).is_file():
        return FolderSource(path)
    single = list(path.glob("*.gguf"))
    if len(single) == 1:
        return GGUFSource(single[0])
    problem = f"{len(single)} .gguf files" if single else f"no {CONFIG} and no .gguf file"
    raise UsageError(f"the folder has {problem}; expected a {CONFIG} or one .gguf file", where=[str(path)])


def _hint(text: str) -> str:
    if text.count("/") == 1 and not text.startswith((".", "/", "~")):
        return f"for a repository on Hugging Face write {HUB_PREFIX}{text}"
    near = get_close_matches(text.lower(), [path.stem for path in PRESETS.glob("*.json")], n=3, cutoff=0.5)
    return f"presets of similar names: {', '.join(near)}" if near else f"name a folder with a {CONFIG}, or a .gguf file"


def open_weights(text: str, source_format: str = "auto") -> CheckpointReader:
    """Open the checkpoint that ``text`` names: see ``resolve_source``, or a folder of weights without config.json."""
    path = Path(text).expanduser()
    if path.is_dir() and not list(path.glob("*.gguf")):
        return open_checkpoint(path, source_format)
    return resolve_source(text).weights(source_format)
