"""`mlc_cli schema`: the JSON schemas of the output of commands with --json."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import json_option
from mlc_errors import UsageError

FOLDER = Path(__file__).parent / "schemas"


@click.command("schema")
@click.argument("name", metavar="[NAME]", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON schema NAME; without NAME, list all schemas.

    The output of a command with --json begins with its schema and version: {"schema": "compile/1", ...}. Fields keep
    their meaning within a version; releases may add fields. Removed or changed fields need a new version.
    """
    known = schemas()
    if name is None:
        _show_all(known, as_json)
        return
    path = known.get(name.partition("/")[0])
    if path is None or name not in (path.stem, _read(path)["$id"]):
        near = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else None
        raise UsageError(f"no schema {name!r}; expected one of {', '.join(known)}", hint=hint)
    click.echo(path.read_text(encoding="utf-8"), nl=False)


def schemas() -> dict[str, Path]:
    """The files of the schemas, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def _show_all(known: dict[str, Path], as_json: bool) -> None:
    rows = [(found["$id"], found["title"]) for found in map(_read, known.values())]
    if as_json:
        console.write_json("schema/1", {"schemas": [{"name": name, "title": title} for name, title in rows]})
    else:
        console.table(("schema", "of"), rows)


def _read(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found
