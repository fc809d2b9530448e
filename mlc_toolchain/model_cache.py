"""The cache of prepared models: where entries are, what they are, which can go.

An entry is a folder with a model's weights and configuration, a library for each machine and choice of options, or a
library alone. It is made under a temporary name and renamed, so that an entry is whole whenever it is there. Its
``mlc-entry.json`` says what it is; the time of that file is the entry's last use.
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
    """What an entry is made of: the model as the user named it, the scheme of its weights, and who made it."""

    source: str
    quantization: str
    stamp: str


@dataclass(frozen=True)
class Entry:
    """An entry. used: seconds since 1970; manifest: None of one that an interrupted run has left."""

    path: Path
    nbytes: int
    used: float
    manifest: Manifest | None

    @property
    def is_stale(self) -> bool:
        """Whether nothing will use it: it is not whole, or another version of the tool made it."""
        return self.manifest is None or self.manifest.stamp != tool_stamp()


def cache_root() -> Path:
    """``$MLC_CACHE_DIR``, else ``~/.cache/mlc_cli``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "mlc_cli"


def entry_path(name: str) -> Path:
    """Where the entry of this name is, or would be."""
    return cache_root() / "models" / name


def digest(value: object) -> str:
    """A short name for a JSON value: equal for equal ones."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@cache
def tool_stamp() -> str:
    """The version of the tool and the state of the sources that conversion and compilation depend on."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    states = [(str(path.relative_to(ROOT)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{__version__}-{digest(states)}"


@contextmanager
def locked(name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of an entry's name, across processes; ``waiting`` is called before a wait for another process."""
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
    """Make a folder of the cache. Raises MLCError where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MLCError(
            f"cannot write to the cache of prepared models: {error.strerror}",
            where=[str(folder)],
            hint=f"name another folder in {CACHE_VARIABLE}",
        ) from None


def partial(path: Path) -> Path:
    """The folder in which an entry is made; one that an interrupted run has left is continued."""
    folder = path.with_name(path.name + PARTIAL)
    make_folder(folder)
    return folder


def publish(folder: Path, path: Path, manifest: Manifest) -> None:
    """Give what ``partial`` returned its name, with the manifest."""
    with whole_file(folder / MANIFEST, durable=True) as file:
        file.write(json.dumps(asdict(manifest), indent=2).encode())
    os.rename(folder, path)


def mark_used(path: Path) -> None:
    """Note that an entry is used now."""
    with suppress(OSError):
        os.utime(path / MANIFEST)


def entries() -> list[Entry]:
    """All entries, the last used first."""
    folder = cache_root() / "models"
    found = [_entry(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda entry: -entry.used)


def outdated(older_than: float | None, everything: bool) -> list[Entry]:
    """The entries to remove: stale ones, those not used for ``older_than`` seconds, or all."""
    limit = time.time() - older_than if older_than is not None else None
    return [e for e in entries() if everything or e.is_stale or (limit is not None and e.used < limit)]


def remove(entry: Entry, waiting: Callable[[], None]) -> None:
    """Delete an entry; waits while a process is making it."""
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
