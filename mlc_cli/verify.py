"""`mlc_cli verify`: check the files of a model folder."""

from __future__ import annotations

from pathlib import Path

import click

from mlc_cli import console
from mlc_cli.options import NamedPath, json_option
from mlc_errors import MLCError


@click.command("verify")
@click.argument("folder", metavar="FOLDER", type=NamedPath(path_type=Path))
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check the model folder FOLDER without executing its code.

    Weights: location and checksum of all tensors. Libraries: their checksum, and that they were compiled for this
    configuration and these weights. Exits with 1 if a check fails.
    """
    from mlc_toolchain.verify import verify_folder

    with console.late_progress(seconds=1.0) as progress:
        found = verify_folder(folder, progress)
    if as_json:
        console.write_json("verify/1", found)
    else:
        console.table(["file", "", "found"], [[c.file, "wrong" if c.problem else "ok", c.detail] for c in found.checks])
    if found.problems:
        count = len(found.problems)
        raise MLCError(f"{count} of {len(found.checks)} checks failed", where=[*found.problems, str(folder)])
