"""The cache of prepared models: paths, manifests and removal of entries.

An entry is a folder with a model's weights and configuration and a library for each machine and set of options, or only
with libraries. It is created under a temporary name and renamed, so that an existing entry is complete. Its
``mlc-entry.json`` describes it; the modification time of that file is the entry's last use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from mlc_errors import MLCError
from mlc_files import read_limited, whole_file
from mlc_version import __version__

CACHE_VARIABLE = "MLC_CACHE_DIR"
MANIFEST, PARTIAL = "mlc-entry.json", ".partial"
MANIFEST_BYTES = 1 << 20
PACKAGES = ("mlc_compiler", "mlc_toolchain", "model_zoo", "quantization")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Manifest:
    """The description of an entry: the model as the user named it, its quantization, and the version of the tool."""

    source: str
    quantization: str
    stamp: str


@dataclass(frozen=True)
class Entry:
    """An entry. used: time of last use, seconds since 1970; manifest: None if an interrupted run left the entry."""

    path: Path
    nbytes: int
    used: float
    manifest: Manifest | None

    @property
    def is_stale(self) -> bool:
        """Whether the entry is unusable: incomplete, or made by another version of the tool."""
        return self.manifest is None or self.manifest.stamp != tool_stamp()


def cache_root() -> Path:
    """``$MLC_CACHE_DIR``, else ``~/.cache/mlc_cli``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "mlc_cli"


def entry_path(name: str) -> Path:
    """The path of the entry of this name, which need not exist."""
    return cache_root() / "models" / name


def digest(value: object) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@cache
def tool_stamp() -> str:
    """The tool's version and a stamp of the source files that conversion and compilation depend on."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    states = [(str(path.relative_to(ROOT)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{__version__}-{digest(states)}"


@contextmanager
def locked(name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an entry's inter-process lock; ``waiting`` is called before waiting for another process."""
    folder = cache_root() / "locks"
    make_folder(folder)
    descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder in the cache. Raises MLCError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MLCError(
            f"cannot write to the cache of prepared models: {error.strerror}",
            where=[str(folder)],
            hint=f"name another folder in {CACHE_VARIABLE}",
        ) from None


def partial(path: Path) -> Path:
    """The temporary folder in which an entry is created; one left by an interrupted run is continued."""
    folder = path.with_name(path.name + PARTIAL)
    make_folder(folder)
    return folder


def publish(folder: Path, path: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder from ``partial`` and rename it to the entry's path."""
    with whole_file(folder / MANIFEST, durable=True) as file:
        file.write(json.dumps(asdict(manifest), indent=2).encode())
    os.rename(folder, path)


def mark_used(path: Path) -> None:
    """Record that an entry is used now."""
    with suppress(OSError):
        os.utime(path / MANIFEST)


def entries() -> list[Entry]:
    """All entries, most recently used first."""
    folder = cache_root() / "models"
    found = [_entry(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda entry: -entry.used)


def outdated(older_than: float | None, everything: bool) -> list[Entry]:
    """The entries to remove: stale ones, those not used for ``older_than`` seconds, or all."""
    limit = time.time() - older_than if older_than is not None else None
    return [e for e in entries() if everything or e.is_stale or (limit is not None and e.used < limit)]


def remove(entry: Entry, waiting: Callable[[], None]) -> None:
    """Delete an entry; waits while another process is creating it."""
    with locked(entry.path.name.removesuffix(PARTIAL), waiting):
        shutil.rmtree(entry.path, ignore_errors=True)


def _entry(path: Path) -> Entry:
    manifest = None if path.name.endswith(PARTIAL) else _manifest(path)
    dated = path / MANIFEST if manifest else path
    return Entry(path, _size(path), dated.stat().st_mtime, manifest)


def _manifest(path: Path) -> Manifest | None:
    try:
        return Manifest(**json.loads(read_limited(path / MANIFEST, MANIFEST_BYTES)))
    except (OSError, ValueError, TypeError, MLCError):
        return None


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
