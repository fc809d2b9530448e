"""`mlc_cli doctor`: describe this machine, and report what is missing."""

from __future__ import annotations

import click

from mlc_cli import console
from mlc_cli.options import json_option
from mlc_errors import ResourceError


@click.command("doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Describe this machine: versions, CPU, linker, GPU, memory, cache. Exits with 4 when something needed is missing.

    Include the output in a bug report.
    """
    from mlc_toolchain.doctor import examine

    findings, memory = examine()
    if as_json:
        console.write_json("doctor/1", {"findings": findings, "memory": memory})
    else:
        console.show_fields({**{finding.name: finding.found for finding in findings}, **vars(memory)})
    for finding in findings:
        if finding.problem:
            raise ResourceError(f"{finding.name}: {finding.problem}", hint=finding.hint)
