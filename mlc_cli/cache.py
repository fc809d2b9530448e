"""`mlc_cli cache`: list and remove the models that commands have converted and compiled."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from mlc_cli import console
from mlc_cli.options import json_option
from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_toolchain.model_cache import Entry

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.group("cache", context_settings={"help_option_names": ["-h", "--help"]})
def cache() -> None:
    """List and remove models that other commands have prepared in $MLC_CACHE_DIR or ~/.cache/mlc_cli."""


@cache.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the entries, most recently used first: last use, size, state, quantization, model.

    Entries in a state other than "ready" are no longer used; prune removes them.
    """
    from mlc_toolchain.model_cache import cache_root, entries

    found = entries()
    if as_json:
        console.write_json("cache_list/1", {"folder": cache_root(), "entries": [_as_dict(entry) for entry in found]})
    elif found:
        columns = ["used", "size", "state", "weights", "model"]
        console.table(columns, [[row[c] for c in columns] for row in map(_as_row, found)])
        console.note(f"{console.format_bytes(sum(entry.nbytes for entry in found))} in {cache_root()}")
    else:
        console.note(f"nothing is prepared in {cache_root()}")


@cache.command("prune")
@click.option("--older-than", metavar="TIME", help="Also remove entries that were not used for TIME: 30d, 12h, 90m.")
@click.option("--all", "everything", is_flag=True, help="Remove all entries.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and stop.")
@json_option
def prune(older_than: str | None, everything: bool, dry_run: bool, as_json: bool) -> None:
    """Remove unusable entries: left by an interrupted run, or made by another version of this tool."""
    from mlc_toolchain import model_cache

    def waiting() -> None:
        console.note("waiting for a process that is preparing a model")

    seconds = None if older_than is None else _seconds(older_than)
    entries = model_cache.outdated(seconds, everything)
    for entry in () if dry_run else entries:
        model_cache.remove(entry, waiting)
    if as_json:
        console.write_json("cache_prune/1", {"removed": not dry_run, "entries": [_as_dict(entry) for entry in entries]})
        return
    for entry in entries:
        click.echo(f"{'would remove' if dry_run else 'removed'} {entry.path}, {console.format_bytes(entry.nbytes)}")
    if not entries:
        console.note("nothing to remove")


def _as_dict(entry: Entry) -> dict[str, Any]:
    manifest = entry.manifest
    return {
        "path": entry.path,
        "bytes": entry.nbytes,
        "used": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.used)),
        "state": _state(entry),
        "quantization": manifest.quantization if manifest else None,
        "model": manifest.source if manifest else None,
    }


def _as_row(entry: Entry) -> dict[str, str]:
    manifest = entry.manifest
    return {
        "used": time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used)),
        "size": console.format_bytes(entry.nbytes),
        "state": _state(entry),
        "weights": manifest.quantization if manifest else "",
        "model": manifest.source if manifest else entry.path.name,
    }


def _state(entry: Entry) -> str:
    if entry.manifest is None:
        return "incomplete"
    return "outdated" if entry.is_stale else "ready"


def _seconds(text: str) -> float:
    """Convert a duration such as `30d` to seconds."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if found is None:
        raise UsageError(f"--older-than: got {text!r}; expected a number and one of {', '.join(UNITS)}, such as 30d")
    return int(found[1]) * UNITS[found[2]]
