"""Read JSON from untrusted files: bounded size, no duplicate keys, errors that name the file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from mlc_errors import MLCError
from mlc_files import read_limited
from mlc_toolchain.readers.errors import CheckpointError, shown

MAX_CONFIG_BYTES = 16 << 20
MAX_INDEX_BYTES = 64 << 20


def parse_json_object(data: bytes, path: Path) -> dict[str, Any]:
    """Parse a JSON object; ``path`` is for errors. Raises CheckpointError."""
    value = _parsed(data, path)
    if not isinstance(value, dict):
        raise CheckpointError(f"got a JSON {type(value).__name__}; expected an object", where=[str(path)])
    return value


def _parsed(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"the JSON is not UTF-8 at byte {error.start}", where=[str(path)]) from None
    except RecursionError:
        raise CheckpointError("the JSON is nested too deeply", where=[str(path)]) from None
    except ValueError as error:
        raise CheckpointError(f"not valid JSON: {shown(str(error))}", where=[str(path)]) from None


def read_json_object(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Read the JSON object in a file of at most ``limit`` bytes. Raises CheckpointError."""
    return parse_json_object(_content(path, limit), path)


def read_json_list(path: Path, limit: int = MAX_CONFIG_BYTES) -> list[Any]:
    """Read the JSON list in a file of at most ``limit`` bytes. Raises CheckpointError."""
    value = _parsed(_content(path, limit), path)
    if not isinstance(value, list):
        raise CheckpointError(f"got a JSON {type(value).__name__}; expected a list", where=[str(path)])
    return value


def _content(path: Path, limit: int) -> bytes:
    try:
        return read_limited(path, limit)
    except OSError as error:
        raise CheckpointError(f"cannot read the file: {error.strerror}", where=[str(path)]) from None
    except MLCError as error:
        raise CheckpointError(error.message, where=error.where) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {shown(twice)} appears twice")
    return found
